#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Boots Debian's other kernels in virtual machines, one after the other, and has the
# programs verified, attached and compared with the driver's books there
# (tests/kernels). One line a kernel and check; exits with 1 if one failed. Where no
# machine can be had (no qemu, no mirror, another processor) it says so and ends with 0.
#
# usage: build/kernel-test.sh [--all] [PREFIX]...     versions; default: 6.1. 6.12.
#   --all: verifies all combinations of switches for all compilers, not just for ours
#
# Nothing is installed but qemu and kmod: the kernels stay in .work/kernels.
set -euo pipefail
cd "$(dirname "$0")/.."
. build/common.sh

ROOM="$PWD/$WORK/kernels"
REQUIREMENTS=build/requirements-vm.txt
# Packages by version: 6.1 is Debian 12's own, 6.12 its backport.
declare -A PACKAGES=(
    [6.1.]='^linux-image-6\.1\.0-[0-9]+-amd64$'
    [6.12.]='^linux-image-6\.12\.[0-9]+\+deb12-amd64$'
)
# An emulated processor: minutes here, on a busy machine many more.
LIMIT_S=2400

skip() {
    say "igsdk: the tests on other kernels are SKIPPED: $1"
    exit 0
}

missing_tools() {
    command -v qemu-system-x86_64 >/dev/null 2>&1 || echo qemu-system-x86
    command -v depmod >/dev/null 2>&1 || [ -x /usr/sbin/depmod ] || echo kmod
    # virtme-ng makes its first file system with it, and asks `file` for a kernel's version.
    command -v busybox >/dev/null 2>&1 || echo busybox-static
    command -v file >/dev/null 2>&1 || echo file
}

install_tools() {
    local said tools
    mapfile -t tools < <(missing_tools)
    [ ${#tools[@]} -gt 0 ] || return 0
    say "igsdk: installs Debian packages, about 300 MB: ${tools[*]}"
    said="$(build/preflight.sh apt 2>&1)" || skip "$said"
    DEBIAN_FRONTEND=noninteractive logged apt-vm apt-get -o DPkg::Lock::Timeout=600 \
        install -y --no-install-recommends "${tools[@]}" || skip "apt-get could not install ${tools[*]}."
}

make_environment() {
    local hash said
    hash="$("$VENV/bin/python" -VV | cat - "$REQUIREMENTS" | sha256sum)"
    [ "$(cat "$ROOM/stamp" 2>/dev/null)" != "$hash" ] || return 0
    said="$(build/preflight.sh pip 2>&1)" || skip "$said"
    "$VENV/bin/python" -m venv --clear "$ROOM/venv"
    logged pip-vm "$ROOM/venv/bin/python" -m pip install --disable-pip-version-check \
        --require-hashes --no-deps -r "$REQUIREMENTS" || skip "pip could not install what $REQUIREMENTS lists."
    printf '%s\n' "$hash" >"$ROOM/stamp"
}

# newest PATTERN: the package's name; nothing where apt knows none
newest() {
    apt-cache search --names-only "$1" 2>/dev/null | cut -d' ' -f1 | grep -E "$1" | sort -V | tail -n 1
}

# fetch_kernel PACKAGE: into a folder of its name, as in the system's root; whole or not at all
fetch_kernel() {
    local fresh="$ROOM/fresh"
    rm -rf "$fresh"
    mkdir -p "$fresh/root"
    # apt drops its rights, and must still be able to write there.
    chmod 777 "$fresh"
    (cd "$fresh" && logged_here apt-get -q download "$1") || return 1
    dpkg-deb -x "$fresh/$1"_*.deb "$fresh/root" || return 1
    depmod -b "$fresh/root" "${1#linux-image-}" || return 1
    mv "$fresh/root" "$ROOM/$1"
    rm -rf "$fresh"
}

logged_here() { "$@" >"$ROOM/fetch.log" 2>&1 </dev/null || { tail -n 5 "$ROOM/fetch.log" >&2 && return 1; }; }

# find_kernel PREFIX: the package's name; a mirror that is out gives way to what is here
find_kernel() {
    local name here
    here="$(cd "$ROOM" && compgen -G "linux-image-$1*" | sort -V | tail -n 1)" || true
    name="$(newest "${PACKAGES[$1]}")" || true
    if [ -z "$name$here" ] && build/preflight.sh apt >&2; then
        name="$(newest "${PACKAGES[$1]}")" || true
    fi
    if [ -n "$name" ] && [ ! -d "$ROOM/$name" ]; then
        say "igsdk: fetches $name, 70 to 110 MB"
        fetch_kernel "$name" || name=
    fi
    printf '%s\n' "${name:-$here}"
}

# Interpreters whose stacks are looked at: the clone's own, Debian's, pyenv's newest.
pythons() {
    local newest_pyenv
    newest_pyenv="$(compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.1[0-9]*/bin/python3" | sort -V | tail -n 1)" || true
    for python in "$VENV/bin/python" /usr/bin/python3 $newest_pyenv; do
        if [ -x "$python" ]; then readlink -f "$python"; fi
    done | sort -u
}

# A plain processor: with the emulated AVX of the default one, numpy died of faults.
# boot PACKAGE: the checks of one kernel, whose lines go to standard output; 1 if one failed
boot() {
    local release="${1#linux-image-}" start=$SECONDS status=0 machine
    local result="$ROOM/result.$release" log="$ROOM/console.$release"
    rm -f "$result"
    local command
    command="$(printf '%q ' env PYTHONDONTWRITEBYTECODE=1 "PYTHONPATH=$PWD/python:$PWD" \
        "$PWD/$VENV/bin/python" tests/kernels/guest.py "$ROOM/prepared" "$result" "${interpreters[@]}")"
    PATH="$ROOM/venv/bin:$PATH:/usr/sbin:/sbin" timeout "$LIMIT_S" virtme-ng --verbose \
        -r "$ROOM/$1/boot/vmlinuz-$release" --disable-kvm --force-9p --rwdir="$PWD" --cwd="$PWD" \
        --qemu-opts="-cpu Nehalem" --cpus 2 --memory 4G --user root -- "$command" >"$log" 2>&1 </dev/null &
    machine=$!
    # What runs in the background does not hear of Ctrl-C by itself.
    trap 'kill "$machine"; exit 130' INT TERM
    wait "$machine" || true
    [ ! -e "$result" ] || grep -v '^end$' "$result" || true
    if ! grep -qs '^end$' "$result"; then
        tail -n 40 "$log" >&2
        echo "FAILED $release: the machine ended before its checks, or took over $LIMIT_S s, see $log"
        status=1
    elif grep -q '^FAILED' "$result"; then
        say "igsdk: what the machine said is in $log"
        status=1
    fi
    echo "       $release: $((SECONDS - start)) s with start and end"
    return "$status"
}

build/preflight.sh machine
[ "$(uname -m)" = x86_64 ] || skip "the kernels are those for x86_64."
give_to_caller_at_exit
build/setup.sh
mkdir -p "$ROOM"
exec 9>"$ROOM/lock"
flock 9
install_tools
make_environment
PATH="$PATH:/usr/sbin:/sbin"
all=()
if [ "${1-}" = --all ]; then
    all=(--all)
    shift
fi
[ $# -gt 0 ] || set -- 6.1. 6.12.
failed=0
packages=()
for prefix in "$@"; do
    [ -n "${PACKAGES[$prefix]-}" ] || stop 2 "No kernel is known as $prefix." "Name some of: ${!PACKAGES[*]}"
    package="$(find_kernel "$prefix")"
    if [ -n "$package" ]; then
        packages+=("$package")
    else
        echo "SKIPPED ${prefix}x: no mirror that apt knows gives a package ${PACKAGES[$prefix]}"
    fi
done
[ ${#packages[@]} -gt 0 ] || exit 0
PYTHONPATH="$PWD/python:$PWD" "$VENV/bin/python" tests/kernels/prepare.py "$ROOM/prepared" "${all[@]}"
mapfile -t interpreters < <(pythons)
# One after the other: two emulated machines at once take longer than that, and are so slow
# that what has a time limit in them goes past it.
for package in "${packages[@]}"; do
    boot "$package" || failed=1
done
exit "$failed"
