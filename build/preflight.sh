#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Says whether igsdk can work here, before anything is installed. Plain sh and
# coreutils, so that a fresh machine can run it.
#
# usage: build/preflight.sh [machine|disk|large|apt|pip]...     default: machine disk
#   machine  system, WSL, container, kernel, root, BTF, permission to use BPF
#   disk     room in the clone and, for packages, in /usr
#   large    room in the clone for PyTorch
#   apt      apt-get reaches its sources (waits for another apt's lock)
#   pip      pip reaches its index
#
# exit codes (docs/exit-codes.md):
#   20 not Linux           24 not root           28 no room on the disk
#   21 architecture        25 no kernel BTF      29 apt-get reaches nothing
#   22 WSL 1               26 no BPF permission  30 pip reaches nothing
#   23 kernel too old      27 kernel lockdown
set -u

proc="${IGSDK_PREFLIGHT_PROC:-/proc}"
sys="${IGSDK_PREFLIGHT_SYS:-/sys}"
clone="$(cd "$(dirname "$0")/.." && pwd)"

note() { printf 'igsdk: note: %s\n' "$*" >&2; }

# stop CODE CAUSE REMEDY
stop() {
    printf 'igsdk: %s\nigsdk: %s\n' "$2" "$3" >&2
    exit "$1"
}

check_system() {
    [ "$(uname -s)" = Linux ] || stop 20 "This is $(uname -s), and igsdk traces with the BPF of the Linux kernel." \
        "Run it on a Linux machine; reading profiles works everywhere: pip install this clone, then igsdk report FILE."
    case "$(uname -m)" in
        x86_64) ;;
        aarch64) note "arm64 compiles and has not been tested." ;;
        *) stop 21 "The processor is $(uname -m), and igsdk has probes for x86_64 and aarch64 only." \
            "Run it on a machine with one of the two." ;;
    esac
}

check_wsl() {
    case "$(uname -r)" in
        *-Microsoft) stop 22 "This is WSL 1, which has no Linux kernel and so no BPF." \
            "Convert the distribution to WSL 2 (wsl --set-version NAME 2), or use a Linux machine." ;;
        *icrosoft*) note "this is WSL 2, where the driver is a bridge to Windows: untested." ;;
    esac
}

in_container() {
    [ -e /.dockerenv ] || [ -e /run/.containerenv ] ||
        tr '\0' '\n' <"$proc/1/environ" 2>/dev/null | grep -q '^container='
}

check_kernel() {
    release="$(uname -r)"
    major="${release%%.*}"
    minor="${release#*.}"
    minor="${minor%%[!0-9]*}"
    [ "$((major * 100 + minor))" -ge 601 ] || stop 23 "The kernel is $release, and igsdk needs 6.1 or later." \
        "Boot a newer kernel: Debian 12 has 6.1; on Ubuntu 22.04 install linux-generic-hwe-22.04."
    [ "$((major * 100 + minor))" -ge 606 ] ||
        note "on kernel $release probes are taken off one by one, about 0.1 s each, in the background; 6.6 and later do it at once."
}

check_root() {
    [ "$(id -u)" -eq 0 ] || stop 24 "Tracing takes root, and this runs as the user $(id -un)." \
        "Run it again as root: sudo make run"
}

check_btf() {
    [ -s "$sys/kernel/btf/vmlinux" ] || stop 25 "The kernel does not describe its types: $sys/kernel/btf/vmlinux is missing." \
        "Boot a kernel that is built with CONFIG_DEBUG_INFO_BTF=y, as those of Debian 12 and Ubuntu 22.04 and later are; in a container, mount /sys."
}

# has_capability BIT: is it in the effective set?
has_capability() {
    [ "$((0x$capabilities >> $1 & 1))" -eq 1 ]
}

# Root of a container often lacks what root of the host has. CAP_SYS_ADMIN (21)
# stands for both of the newer CAP_BPF (39) and CAP_PERFMON (38).
check_permission() {
    capabilities="$(sed -n 's/^CapEff:[[:space:]]*//p' "$proc/self/status")"
    has_capability 21 || { has_capability 38 && has_capability 39; } || refuse_permission
    # The inode of the machine's first PID namespace is a constant of the kernel.
    case "$(readlink "$proc/self/ns/pid")" in
        '' | 'pid:[4026531836]') ;;
        *) note "this is a container or another PID namespace: its own processes can be traced; --pid=host shows the host's." ;;
    esac
}

refuse_permission() {
    if in_container; then
        stop 26 "This container's root may not use BPF: CAP_SYS_ADMIN (or CAP_BPF with CAP_PERFMON) is missing." \
            "Start the container with --privileged --pid=host, or run igsdk on the host."
    fi
    stop 26 "This root may not use BPF: CAP_SYS_ADMIN (or CAP_BPF with CAP_PERFMON) is missing." \
        "Run it from a shell whose capabilities are not limited (see CapEff in /proc/self/status)."
}

check_lockdown() {
    case "$(cat "$sys/kernel/security/lockdown" 2>/dev/null)" in
        *'[confidentiality]'*) stop 27 "The kernel is locked down for confidentiality, and then BPF may not read memory." \
            "Boot with lockdown=integrity or none." ;;
    esac
}

# room FOLDER MEGABYTES WHAT
room() {
    free="$(df -Pk "$1" 2>/dev/null | awk 'NR == 2 { print int($4 / 1024) }')"
    [ "${free:-0}" -ge "$2" ] || stop 28 "$1 has ${free:-0} MB free, and $3 needs $2 MB." \
        "Free some room there, or clone the project to another disk."
}

check_disk() {
    room "$clone" 2000 "the Python environment in .work"
    room "${TMPDIR:-/tmp}" 300 "unpacking and compiling"
}

check_large() {
    room "$clone" 2500 "the environment with PyTorch in .work/large"
}

# update_lists: apt-get update, waiting up to ten minutes for another apt.
update_lists() {
    waited=0
    while :; do
        told="$(LC_ALL=C apt-get -q -o Acquire::Retries=1 -o APT::Update::Error-Mode=any update 2>&1 </dev/null)" && return 0
        case "$told" in
            *'Could not get lock'* | *'Unable to lock'*) ;;
            *) return 1 ;;
        esac
        [ "$waited" -lt 600 ] || return 1
        [ "$waited" -gt 0 ] || note "another apt is at work; waits for it, at most ten minutes."
        sleep 3
        waited=$((waited + 3))
    done
}

check_apt() {
    command -v apt-get >/dev/null 2>&1 || stop 29 "This system has no apt-get, and packages are missing." \
        "Install what build/setup.sh names with the system's own package manager, then run this again."
    [ "$(id -u)" -eq 0 ] || stop 24 "Installing packages takes root, and this runs as the user $(id -un)." "Run it again as root: sudo make run"
    room /usr 1500 "the packages that are missing"
    update_lists || stop 29 "apt-get could not fetch its lists: $(printf '%s\n' "$told" | grep -m1 '^[EW]:')" \
        "Check the network, the proxy and the sources of apt, then run this again."
}

# A pip that can be asked before there is an environment: the environment's own,
# else the interpreter's. Without one, the first installation is the check.
find_pip() {
    for python in "$clone/.work/venv/bin/python" "${IGSDK_PYTHON:-python3}"; do
        if "$python" -m pip --version >/dev/null 2>&1; then return 0; fi
    done
    return 1
}

check_pip() {
    find_pip || return 0
    folder="$(mktemp -d)"
    "$python" -m pip download -q --disable-pip-version-check --retries 1 --no-deps --no-cache-dir \
        -d "$folder" iniconfig >"$folder/log" 2>&1 </dev/null
    reached=$?
    why="$(grep -m1 -i 'error' "$folder/log")"
    rm -rf "$folder"
    [ "$reached" -eq 0 ] || stop 30 "pip could not fetch a package: ${why:-no reason given}" \
        "Check the network, the proxy and the package index that pip is set up with, then run this again."
}

check_machine() {
    check_system
    check_wsl
    check_kernel
    check_root
    check_btf
    check_permission
    check_lockdown
}

[ $# -gt 0 ] || set -- machine disk
for what in "$@"; do
    case "$what" in
        machine | disk | large | apt | pip) "check_$what" ;;
        *) stop 2 "There is no check called $what." "Name machine, disk, large, apt or pip." ;;
    esac
done
