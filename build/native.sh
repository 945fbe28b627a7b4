#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the extension and the BPF objects beside the Python sources, as the
# editable installation reads them, when their sources have changed.
set -euo pipefail
cd "$(dirname "$0")/.."
. build/common.sh

mkdir -p .work
exec 9>.work/native.lock
flock 9 # two builds at once would spoil each other's objects
hash="$(fingerprint setup.py setup.cfg bpf python/native)"
built=(python/igsdk/_native.*.so)
if fresh native "$hash" && [ -e "${built[0]}" ] && [ -e python/igsdk/_bpf/local.amd64.bpf.o ]; then
    exit 0
fi
say "igsdk: builds the extension and the BPF objects"
export IGSDK_REQUIRE_NATIVE=1
logged native "$VENV/bin/python" setup.py build_bpf --inplace build_ext --inplace ||
    stop 34 "The extension could not be built." "Read the compiler's lines above."
done_with native "$hash"
