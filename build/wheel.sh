#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes a wheel that needs neither clang nor libbpf: the BPF objects and the
# libraries are inside. It asks for the glibc of its platform tag, 2.34, which
# is what Debian 12's packages come to; a newer distribution's ask for more.
#
# usage: build/wheel.sh [FOLDER]      default: dist
set -euo pipefail
cd "$(dirname "$0")/.."
. build/common.sh

folder="${1:-dist}"
platform="${IGSDK_WHEEL_PLATFORM:-manylinux_2_34_$(uname -m)}"
build/setup.sh
exec 9>"$WORK/setup.lock"
flock -n 9 || { say "igsdk: waits for another set-up of this clone"; flock 9; }

# What an earlier build left there would be packed again, deleted modules too.
rm -rf "$WORK"/setuptools/lib.* "$WORK"/setuptools/bdist.* "$WORK/wheel"
say "igsdk: builds the wheel"
IGSDK_REQUIRE_NATIVE=1 logged wheel "$VENV/bin/python" -m pip wheel --disable-pip-version-check \
    --no-build-isolation --no-deps --no-index -w "$WORK/wheel" . ||
    stop 34 "The wheel could not be built." "Read the lines above."
PATH="$PWD/$VENV/bin:$PATH" logged repair "$VENV/bin/auditwheel" repair --strip --plat "$platform" \
    -w "$folder" "$WORK"/wheel/igsdk-*.whl ||
    stop 35 "The libraries of this system do not make a $platform wheel." \
        "Build it on Debian 12, or name what fits in IGSDK_WHEEL_PLATFORM (auditwheel show $WORK/wheel/*.whl tells)."
floor="$(sed -E "s/manylinux_([0-9]+)_([0-9]+)_.*/\1.\2/" <<<"$platform")"
made="$(ls -t "$folder"/igsdk-*"$platform"*.whl | head -n 1)"
echo "$made"
say "igsdk: it needs glibc $floor or later; install it with: pip install $made"
