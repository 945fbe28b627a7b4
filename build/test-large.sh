#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The tests that need PyTorch: sets up an environment for it in .work/large, then
# runs tests/large; arguments go to pytest. Where PyTorch can't be had (no disk,
# no network, a Python that it does not know) it says so and ends with 0.
set -euo pipefail
cd "$(dirname "$0")/.."
. build/common.sh

LARGE="$WORK/large"
REQUIREMENTS=tests/requirements-large.txt

skip() {
    say "igsdk: the large tests are SKIPPED: $1"
    exit 0
}

build/preflight.sh machine
give_to_caller_at_exit
build/setup.sh
mkdir -p "$LARGE"
exec 9>"$LARGE/setup.lock"
flock 9

hash="$("$VENV/bin/python" -VV | cat - "$REQUIREMENTS" | sha256sum)"
if [ "$(cat "$LARGE/stamp" 2>/dev/null)" != "$hash" ]; then
    "$VENV/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        skip "PyTorch needs CPython 3.11 or later, and .work/venv has $("$VENV/bin/python" -V)."
    [ "$(uname -m)" = x86_64 ] || skip "they are known on x86_64 only."
    said="$(build/preflight.sh large pip 2>&1)" || skip "$said"
    say "igsdk: installs PyTorch into $LARGE: 540 MB to download, 1.2 GB on the disk, about a minute"
    rm -rf "$LARGE/venv" "$LARGE/tmp"
    mkdir -p "$LARGE/tmp"
    "$VENV/bin/python" -m venv "$LARGE/venv" || stop 33 "No environment could be made in $LARGE." "Read the lines above."
    start=$SECONDS
    # No cache: it would hold the same 540 MB once more.
    TMPDIR="$PWD/$LARGE/tmp" logged pip-large "$LARGE/venv/bin/python" -m pip install --disable-pip-version-check \
        --no-cache-dir --require-hashes --no-deps -r "$REQUIREMENTS" ||
        skip "pip could not install what $REQUIREMENTS lists, see above."
    rm -rf "$LARGE/tmp"
    say "igsdk: that took $((SECONDS - start)) s, $(du -sm "$LARGE/venv" | cut -f1) MB"
    printf '%s\n' "$hash" >"$LARGE/stamp"
fi
flock -u 9
"$VENV/bin/python" -m pytest tests/large "$@"
