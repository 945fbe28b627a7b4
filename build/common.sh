# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts of this folder; to be sourced by bash, from the root of
# the clone.

WORK=.work
VENV="$WORK/venv"
STAMPS="$WORK/stamps"

# Where our own environment is active, the next one must not be made from it.
PATH="${PATH//"$PWD/$VENV/bin:"/}"

say() { printf '%s\n' "$*" >&2; }

# stop CODE CAUSE REMEDY
stop() {
    say "igsdk: $2"
    say "igsdk: $3"
    exit "$1"
}

# One hash over names and contents of the given files and folders.
fingerprint() {
    find "$@" -type f ! -name '*.pyc' -print0 2>/dev/null | sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1
}

# fresh NAME HASH: has step NAME been done for these inputs?
fresh() { [ "$(cat "$STAMPS/$1" 2>/dev/null)" = "$2" ]; }

done_with() {
    mkdir -p "$STAMPS"
    printf '%s\n' "$2" >"$STAMPS/$1"
}

# Runs a command with its output in a log; shows the log's end if it fails.
logged() {
    local log="$WORK/logs/$1.log"
    shift
    mkdir -p "$WORK/logs"
    if ! "$@" >"$log" 2>&1 </dev/null; then
        tail -n 40 "$log" >&2
        say "igsdk: the whole of it is in $log"
        return 1
    fi
}

# Under sudo, what root made in the clone belongs to the caller, who can then
# remove it.
give_to_caller_at_exit() {
    [ -n "${SUDO_UID-}" ] || return 0
    trap 'find . -path ./.git -prune -o -user 0 -exec chown -h "$SUDO_UID:${SUDO_GID-}" {} +' EXIT
}
