#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes a clone ready: Debian packages that are missing, an environment in
# .work/venv, the extension and the BPF objects. What is done already is not
# done again, and then nothing asks the network.
#
# usage: build/setup.sh [--clients | --tests]     --clients: also the CUDA clients that
#     the examples and the tests run; --tests: and the packages for data frames
# exit codes: those of build/preflight.sh, 31 packages, 32 no Python, 33 pip,
# 34 the extension does not build
set -euo pipefail
cd "$(dirname "$0")/.."
. build/common.sh

# What Debian's packages ask before they start a service.
POLICY=/usr/sbin/policy-rc.d

declare -A SIZES=(
    [dev]="about 250 MB, about a minute"
    [clients]="about 450 MB, 1 to 3 minutes"
    [frames]="about 280 MB, half a minute"
)

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
    has_header elfutils/libdw.h || echo libdw-dev
    has_header lzma.h || echo liblzma-dev
    has_header zlib.h || echo zlib1g-dev
    has_any gcc || echo gcc
    has_any g++ || echo g++
    has_any make || echo make
    has_any pkg-config || echo pkg-config
    find_python >/dev/null || printf '%s\n' python3 python3-venv python3-dev
    # Other tools that tests compare us with or need; without them, those tests say so.
    if [ -n "${CI:-}" ]; then
        has_any bpftrace || echo bpftrace
        has_any bpftool || echo bpftool
        has_any runc || echo runc
        # Not where an init system would start it as a service.
        [ -d /run/systemd/system ] || has_any containerd || echo containerd
        [ -d /run/systemd/system ] || has_any docker-registry || echo docker-registry
        has_any skopeo || echo skopeo
        has_any openssl || echo openssl
    fi
}

# Newer clangs make smaller programs, which old verifiers take more easily.
newest_clang() {
    if apt-cache policy clang-19 2>/dev/null | grep -q 'Candidate: [0-9]'; then echo clang-19; else echo clang; fi
}

# In CI some packages are wanted as programs, not as services of this machine.
deny_services() {
    [ -n "${CI:-}" ] && [ ! -e "$POLICY" ] || return 1
    printf '#!/bin/sh\nexit 101\n' >"$POLICY"
    chmod 755 "$POLICY"
}

install_packages() {
    local denied=0 failed=0
    deny_services || denied=$?
    # The lists, fresh now, may be what tells which clang there is.
    mapfile -t packages < <(missing_packages)
    DEBIAN_FRONTEND=noninteractive logged apt-install apt-get -o DPkg::Lock::Timeout=600 \
        install -y --no-install-recommends "${packages[@]}" || failed=1
    [ "$denied" != 0 ] || rm -f "$POLICY"
    [ "$failed" = 0 ] ||
        stop 31 "apt-get could not install ${packages[*]}." "Read the lines above; 'apt-get -f install' mends a half-done installation."
}

make_environment() {
    rm -rf "$VENV" "$STAMPS"
    "$python" -m venv "$VENV" || stop 33 "No environment could be made in $VENV." "Read the lines above."
    done_with venv "$version"
}

# install_pinned NAME FILE
install_pinned() {
    logged "pip-$1" "$VENV/bin/python" -m pip install --disable-pip-version-check --require-hashes --no-deps -r "$2" ||
        stop 33 "pip could not install what $2 lists." "Read the lines above; check the network and pip's package index, then run this again."
    done_with "$1" "$(fingerprint "$2")"
}

# The extension is not pip's to build here: native.sh does it in place, and
# compiles only what changed.
install_igsdk() {
    local hash
    hash="$(fingerprint setup.py setup.cfg pyproject.toml python/igsdk/_version.py)"
    fresh editable "$hash" || IGSDK_SKIP_NATIVE=1 logged editable "$VENV/bin/python" -m pip install \
        --disable-pip-version-check --no-build-isolation --no-deps --no-index -e . ||
        stop 33 "pip could not install the clone." "Read the lines above."
    done_with editable "$hash"
    build/native.sh
}

give_to_caller_at_exit
mkdir -p "$WORK"
exec 9>"$WORK/setup.lock"
flock -n 9 || { say "igsdk: waits for another set-up of this clone"; flock 9; }

wanted=(dev:build/requirements-dev.txt)
case "${1-}" in --clients | --tests) wanted+=(clients:tests/requirements-clients.txt) ;; esac
[ "${1-}" != --tests ] || wanted+=(frames:tests/requirements-frames.txt)

# First what is missing, then whether it can be had, then the installation.
plan=()
checks=(disk)
mapfile -t packages < <(missing_packages)
if [ ${#packages[@]} -gt 0 ]; then
    plan+=("Debian packages, up to 1.1 GB on a bare system, 1 to 4 minutes: ${packages[*]}")
    checks+=(apt)
fi
if python="$(find_python)"; then
    version="$("$python" -c 'import sys; print(sys.executable, sys.version)')"
    fresh venv "$version" && [ -x "$VENV/bin/python" ] || rm -rf "$STAMPS"
fi
for item in "${wanted[@]}"; do
    fresh "${item%%:*}" "$(fingerprint "${item#*:}")" && continue
    plan+=("Python packages into $VENV, ${SIZES[${item%%:*}]}: those of ${item#*:}")
    [ "${checks[-1]}" = pip ] || checks+=(pip)
done

if [ ${#plan[@]} -gt 0 ]; then
    say "igsdk: installs, and touches nothing else outside this folder (make clean removes what is inside):"
    for line in "${plan[@]}"; do say "igsdk:   $line"; done
    build/preflight.sh "${checks[@]}"
fi

[ ${#packages[@]} -eq 0 ] || install_packages
python="$(find_python)" || stop 32 "No CPython 3.10 to 3.13 with venv and headers was found." \
    "Install python3-venv and python3-dev, or name an interpreter in IGSDK_PYTHON."
version="$("$python" -c 'import sys; print(sys.executable, sys.version)')"
fresh venv "$version" || make_environment
# Where Python came with the packages, there was no pip to ask before.
[ ${#packages[@]} -eq 0 ] || [ "${checks[-1]}" != pip ] || build/preflight.sh pip
for item in "${wanted[@]}"; do
    fresh "${item%%:*}" "$(fingerprint "${item#*:}")" || install_pinned "${item%%:*}" "${item#*:}"
done
install_igsdk
