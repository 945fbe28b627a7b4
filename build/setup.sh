#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes a clone ready: Debian packages that are missing, an environment in
# .work/venv, the extension and the BPF objects. What is done already is not
# done again, and then nothing asks the network.
#
# usage: build/setup.sh [--clients]     --clients: also the CUDA clients from PyPI
set -euo pipefail
cd "$(dirname "$0")/.."
. build/common.sh

# The interpreter for the environment: IGSDK_PYTHON, else the newest that the
# pins know and that can make an environment and build an extension.
usable_python() {
    "$1" - 2>/dev/null <<'PY'
import sys, sysconfig, pathlib, venv, ensurepip
header = pathlib.Path(sysconfig.get_paths()["include"], "Python.h")
sys.exit(not ((3, 10) <= sys.version_info[:2] <= (3, 13) and header.exists()))
PY
}

find_python() {
    local name
    for name in ${IGSDK_PYTHON:-python3 /usr/bin/python3 python3.13 python3.12 python3.11 python3.10}; do
        if command -v "$name" >/dev/null 2>&1 && usable_python "$name"; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

has_any() {
    local name
    for name in "$@"; do
        if command -v "$name" >/dev/null 2>&1; then return 0; fi
    done
    return 1
}

has_header() { [ -e "/usr/include/$1" ] || compgen -G "/usr/include/*/$1" >/dev/null; }

# What is missing, by what it is needed for: a tool of another version or from
# elsewhere serves as well.
missing_packages() {
    has_any "${IGSDK_CLANG:-clang}" clang-19 clang-18 clang-17 clang-16 clang-15 clang-14 || echo "$(newest_clang)"
    has_any llvm-strip llvm-strip-19 llvm-strip-18 llvm-strip-17 llvm-strip-16 llvm-strip-15 llvm-strip-14 || echo llvm
    has_header bpf/libbpf.h || echo libbpf-dev
    has_header gelf.h || echo libelf-dev
    has_header zlib.h || echo zlib1g-dev
    has_any gcc || echo gcc
    has_any g++ || echo g++
    has_any make || echo make
    has_any pkg-config || echo pkg-config
    find_python >/dev/null || printf '%s\n' python3 python3-venv python3-dev
}

# Newer clangs make smaller programs, which old verifiers take more easily.
newest_clang() {
    if apt-cache policy clang-19 2>/dev/null | grep -q 'Candidate: [0-9]'; then echo clang-19; else echo clang; fi
}

install_packages() {
    local packages
    mapfile -t packages < <(missing_packages)
    [ ${#packages[@]} -gt 0 ] || return 0
    has_any apt-get || stop 12 "These packages are missing and this system has no apt-get: ${packages[*]}." \
        "Install what they are called here with the system's own package manager."
    say "igsdk: installs these Debian packages, up to 600 MB on disk, 1 to 4 minutes: ${packages[*]}"
    logged apt-update apt-get -o DPkg::Lock::Timeout=600 -o APT::Update::Error-Mode=any update ||
        stop 16 "apt-get could not fetch its package lists." "Check the network, the proxy and the sources of apt, then run this again."
    # The lists may be what tells which clang there is.
    mapfile -t packages < <(missing_packages)
    DEBIAN_FRONTEND=noninteractive logged apt-install apt-get -o DPkg::Lock::Timeout=600 \
        install -y --no-install-recommends "${packages[@]}" ||
        stop 17 "apt-get could not install ${packages[*]}." "Read the lines above; 'apt-get -f install' mends a half-done installation."
}

make_environment() {
    local python version
    python="$(find_python)" || stop 13 "No CPython 3.10 to 3.13 with venv and headers was found." \
        "Install python3-venv and python3-dev, or name an interpreter in IGSDK_PYTHON."
    version="$("$python" -c 'import sys; print(sys.executable, sys.version)')"
    fresh venv "$version" && [ -x "$VENV/bin/python" ] && return 0
    say "igsdk: makes an environment in $VENV with $("$python" --version)"
    rm -rf "$VENV" "$STAMPS"
    "$python" -m venv "$VENV"
    done_with venv "$version"
}

# install_pinned NAME FILE SIZE TIME
install_pinned() {
    local hash
    hash="$(fingerprint "$2")"
    fresh "$1" "$hash" && return 0
    say "igsdk: installs the Python packages of $2 into $VENV, about $3 on disk, $4"
    logged "pip-$1" "$VENV/bin/python" -m pip install --disable-pip-version-check --require-hashes --no-deps -r "$2" ||
        stop 18 "pip could not install what $2 lists." "Check the network and the package index that pip is set up with, then run this again."
    done_with "$1" "$hash"
}

install_igsdk() {
    local hash
    hash="$(fingerprint setup.py setup.cfg pyproject.toml python/igsdk/_version.py)"
    if ! fresh editable "$hash"; then
        # The extension is not pip's to build here: native.sh does it in place, and
        # compiles only what changed.
        IGSDK_SKIP_NATIVE=1 logged editable "$VENV/bin/python" -m pip install --disable-pip-version-check \
            --no-build-isolation --no-deps --no-index -e . || stop 19 "pip could not install the clone." "Read the lines above."
        done_with editable "$hash"
    fi
    build/native.sh
}

install_packages
make_environment
install_pinned dev build/requirements-dev.txt "350 MB" "about a minute"
install_igsdk
[ "${1-}" != --clients ] || install_pinned clients tests/requirements-clients.txt "500 MB" "1 to 3 minutes"
