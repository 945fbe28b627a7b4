#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ends every process of this clone's test clusters, those in their containers too: all are in
# control groups of ours, whatever became of the program that started them. With the last
# one their network and mounts are gone.
#
# usage: build/cluster-end.sh [INSTANCE]     default: all of this clone's
set -eu
cd "$(dirname "$0")/.."

# The same name as tests/cluster/kube/groups.py has.
clone="$(printf '%s' "$PWD" | cksum | cut -d' ' -f1)"

groups() {
    find /sys/fs/cgroup -maxdepth 2 -type d -name "igsdk-cluster-$clone-${1:-*}"
}

members() {
    groups "$@" | while read -r group; do
        find "$group" -name cgroup.procs -exec cat {} + 2>/dev/null || true
    done | sort -nu
}

rounds=0
while pids="$(members "$@")" && [ -n "$pids" ]; do
    # shellcheck disable=SC2086
    kill -KILL $pids 2>/dev/null || true
    rounds=$((rounds + 1))
    [ "$rounds" -le 100 ] || { echo "igsdk: these processes do not end: $(echo "$pids" | tr '\n' ' ')" >&2 && exit 1; }
    sleep 0.1
done
# A group whose last process has just ended is busy for a moment.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    groups "$@" | while read -r group; do
        find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true
    done
    [ -n "$(groups "$@")" ] || break
    sleep 0.1
done
