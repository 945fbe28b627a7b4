#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Starts a real Kubernetes of two nodes and has tests/cluster use it: API server, controllers,
# scheduler and kubelets built from their Go modules, etcd, containerd and runc from Debian's
# packages, which are unpacked and not installed. All of it runs in a network namespace and a
# mount namespace of its own, and in control groups by which it is ended, however this ends.
# Where it can't be had (no Go, no module proxy, no Debian) it says so and ends with 0.
#
# usage: build/cluster-test.sh [PYTEST ARGUMENTS]
#        build/cluster-test.sh --up        keeps a cluster until Ctrl-C, and says how to use it
#        build/cluster-test.sh --prepare   only makes what the tests need
#
# All is in .work/cluster: bin and system are kept for the next time, run goes at the start.
set -euo pipefail
cd "$(dirname "$0")/.."
. build/common.sh

ROOM="$PWD/$WORK/cluster"
TOOLS=tests/cluster/tools
KUBERNETES=v1.34.4
PACKAGES=(etcd-server containerd runc containernetworking-plugins mmdebstrap)

skip() {
    say "igsdk: the tests on Kubernetes are SKIPPED: $1"
    exit 0
}

# done_here NAME HASH: is .work/cluster/NAME made of that?
done_here() { [ "$(cat "$ROOM/$1/stamp" 2>/dev/null)" = "$2" ]; }

install_tools() {
    local said
    command -v ip >/dev/null 2>&1 || [ -x /usr/sbin/ip ] || [ -x /sbin/ip ] || {
        said="$(build/preflight.sh apt 2>&1)" || skip "$said"
        DEBIAN_FRONTEND=noninteractive logged apt-cluster apt-get -o DPkg::Lock::Timeout=600 \
            install -y --no-install-recommends iproute2 || skip "apt-get could not install iproute2."
    }
}

# Programs of packages that would come as services: unpacked, nothing of them starts by itself.
unpack_packages() {
    local hash fresh="$ROOM/fresh" said
    hash="$(printf '%s ' "${PACKAGES[@]}" | sha256sum)"
    ! done_here system "$hash" || return 0
    say "igsdk: fetches Debian packages, 44 MB: ${PACKAGES[*]}"
    rm -rf "$fresh" "$ROOM/system"
    mkdir -p "$fresh/root"
    # apt drops its rights, and must still be able to write there; nobody else, since what is
    # there will run as root.
    chown _apt "$fresh" 2>/dev/null || true
    apt-cache show "${PACKAGES[@]}" >/dev/null 2>&1 || said="$(build/preflight.sh apt 2>&1)" || skip "$said"
    (cd "$fresh" && apt-get -q download "${PACKAGES[@]}") >"$ROOM/fetch.log" 2>&1 </dev/null ||
        skip "apt-get could not fetch ${PACKAGES[*]}: $(grep -m1 '^E:' "$ROOM/fetch.log")"
    for package in "$fresh"/*.deb; do dpkg-deb -x "$package" "$fresh/root"; done
    printf '%s\n' "$hash" >"$fresh/root/stamp"
    mv "$fresh/root" "$ROOM/system"
    rm -rf "$fresh"
}

# Go's own cache keeps what was compiled: the next time it takes seconds.
build_kubernetes() {
    local hash version="k8s.io/component-base/version" client="k8s.io/client-go/pkg/version"
    hash="$(fingerprint "$TOOLS") $(GOTOOLCHAIN=local go env GOVERSION)"
    ! done_here bin "$hash" || return 0
    say "igsdk: builds Kubernetes $KUBERNETES, minutes the first time"
    rm -rf "$ROOM/bin"
    mkdir -p "$ROOM/bin"
    (cd "$TOOLS" && CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-mod=readonly nice go build -trimpath -o "$ROOM/bin/" \
        -ldflags "-s -w -X $version.gitVersion=$KUBERNETES -X $version.gitMajor=1 -X $version.gitMinor=34 -X $client.gitVersion=$KUBERNETES" \
        tool) >"$ROOM/go.log" 2>&1 </dev/null || go_failed
    printf '%s\n' "$hash" >"$ROOM/bin/stamp"
}

go_failed() {
    grep -qE 'dial tcp|no such host|i/o timeout|connection refused|Forbidden' "$ROOM/go.log" &&
        skip "the modules of Kubernetes can't be had here: $(tail -n 1 "$ROOM/go.log")"
    tail -n 40 "$ROOM/go.log" >&2
    stop 1 "Kubernetes does not build." "The whole of it is in $ROOM/go.log"
}

has_go() {
    local version
    version="$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null)" || return 1
    [[ "$version" =~ ^go1\.([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge 24 ]
}

# no_image CODE: without sources there can be none; all else is a mistake that must be seen
no_image() {
    case "$1" in
    29 | 30) skip "the agent's image could not be made, see above." ;;
    *) stop "$1" "The agent's image could not be made." "Read the lines above." ;;
    esac
}

# What an earlier call left when it was killed, and what is left of this one.
clear_up() {
    build/cluster-end.sh "$instance"
    rm -rf "$ROOM/run/$instance"
}

build/preflight.sh machine
[ "$(uname -m)" = x86_64 ] || skip "they were tried on x86_64 only."
command -v apt-get >/dev/null 2>&1 || skip "this system has no apt-get."
has_go || skip "there is no Go 1.24 or later."
instance=test
[ "${1-}" != --up ] || instance=up
build/setup.sh
mkdir -p "$ROOM"
exec 9>"$ROOM/lock.$instance"
flock -n 9 || { say "igsdk: waits for another test cluster of this clone"; flock 9; }
exec 8>"$ROOM/lock"
flock 8
PATH="$PATH:/usr/sbin:/sbin"
install_tools
unpack_packages
build_kubernetes
agent="$(build/container.sh igsdk.test/agent:1)" || no_image $?
flock -u 8
[ "${1-}" != --prepare ] || exit 0

run_there() {
    clear_up
    trap clear_up EXIT
    # What runs as a child hears of Ctrl-C by itself, and ends in order; we wait for it.
    trap : INT TERM
    IGSDK_CLUSTER_OUTSIDE="$(readlink /proc/self/ns/net /proc/self/ns/mnt | xargs)" IGSDK_CLUSTER_AGENT="$agent" \
        PYTHONPATH="$PWD/python:$PWD" unshare --net --mount --propagation private -- "$VENV/bin/python" -m "$@"
}

give_to_caller_at_exit
if [ "$instance" = up ]; then
    (run_there tests.cluster.up "$agent")
else
    case " $* " in *" tests/cluster"*) ;; *) set -- tests/cluster "$@" ;; esac
    (run_there pytest "$@")
fi
