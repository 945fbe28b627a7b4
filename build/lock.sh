#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Pins the requirement files: NAME.in -> NAME.txt, with versions and hashes for
# CPython 3.10 to 3.13. Run by hand when a dependency is to move; needs uv.
set -eu
cd "$(dirname "$0")/.."

uv="${UV:-uv}"
command -v "$uv" >/dev/null 2>&1 || {
    echo "lock: uv is not installed. Install it with pip in an environment of your own, or set UV." >&2
    exit 1
}

pin() {
    "$uv" pip compile --quiet --universal --python-version "${lowest:-3.10}" --generate-hashes \
        --no-emit-index-url --no-header --no-annotate "$@"
}

pin build/requirements-dev.in -o build/requirements-dev.txt
pin build/requirements-proto.in -o build/requirements-proto.txt
pin build/requirements-vm.in -o build/requirements-vm.txt
pin build/requirements-container.in -c build/requirements-dev.txt -o build/requirements-container.txt
[ ! -f tests/requirements-clients.in ] || pin tests/requirements-clients.in \
    -c build/requirements-dev.txt -o tests/requirements-clients.txt
[ ! -f tests/requirements-frames.in ] || pin tests/requirements-frames.in \
    -c build/requirements-dev.txt -o tests/requirements-frames.txt
# No dependencies: the file says which of them are needed. PyTorch takes 3.11 and later.
lowest=3.11 pin tests/requirements-large.in --no-deps -o tests/requirements-large.txt
