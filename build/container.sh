#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes the container image of deploy/agent.yaml: Debian's Python on a minimal Debian, the
# packages of build/requirements-container.txt, and the wheel. Three layers, of which the
# first two are kept in .work/container until what they are made of changes. The archive is
# in the form that `docker load`, `podman load` and `ctr images import` read.
#
# usage: build/container.sh [REFERENCE]      default: igsdk-agent:VERSION
# Says the archive's path on standard output. It takes Debian and root.
set -euo pipefail
cd "$(dirname "$0")/.."
. build/common.sh

ROOM="$PWD/$WORK/container"
INCLUDE=python3,ca-certificates
# Wheels for this processor by their older names too: pip takes only those that are listed.
PLATFORMS=(manylinux_2_34 manylinux_2_31 manylinux_2_28 manylinux_2_27 manylinux_2_26 manylinux_2_24 manylinux_2_17 manylinux2014 manylinux_2_12 manylinux2010 manylinux_2_5 manylinux1)

# made_of NAME HASH: is this layer there, and made of that?
made_of() { [ -e "$ROOM/$1.tar" ] && [ "$(cat "$ROOM/$1.stamp" 2>/dev/null)" = "$2" ]; }

# Where this machine gets Debian from, the image gets it too.
sources() {
    apt-get indextargets --format "${1:-deb \$(REPO_URI) \$(RELEASE) \$(COMPONENT)}" 'Created-By: Packages' 'Origin: Debian'
}

find_mmdebstrap() {
    local name
    for name in mmdebstrap "$PWD/$WORK/cluster/system/usr/bin/mmdebstrap"; do
        if command -v "$name"; then return 0; fi
    done
    stop 31 "There is no mmdebstrap, which makes the image's Debian." "apt-get install mmdebstrap"
}

make_debian() {
    local tool
    made_of debian "$1" && return 0
    tool="$(find_mmdebstrap)"
    [ -n "$(sources)" ] || stop 29 "apt knows no source of Debian's packages here." "Make the image on Debian 12."
    say "igsdk: makes the image's Debian, 40 MB of packages, about a minute"
    sources | logged_in debian alone "$tool" --mode=root --variant=minbase --include="$INCLUDE" \
        --aptopt='Acquire::Languages "none"' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-include=/usr/share/doc/*/copyright' "$suite" "$ROOM/debian.tar" - ||
        stop 31 "mmdebstrap made no Debian." "Read the lines above; apt's sources have to be those of one Debian."
    printf '%s\n' "$1" >"$ROOM/debian.stamp"
}

# alone COMMAND: without our open files. mmdebstrap names a file of its own to a shell that
# knows numbers of one digit only.
alone() {
    "$VENV/bin/python" -c 'import os, sys; os.closerange(3, 65536); os.execvp(sys.argv[1], sys.argv[1:])' "$@"
}

# As logged, with our standard input.
logged_in() {
    local log="$WORK/logs/$1.log"
    shift
    mkdir -p "$WORK/logs"
    "$@" >"$log" 2>&1 || { tail -n 20 "$log" >&2 && return 1; }
}

# install NAME ARGUMENTS: packages into the folder NAME, for the image's interpreter
install() {
    local root="$ROOM/$1" platforms
    rm -rf "$root"
    mapfile -t platforms < <(printf -- '--platform=%s_x86_64\n' "${PLATFORMS[@]}")
    logged "container-$1" "$VENV/bin/python" -m pip install --disable-pip-version-check --no-compile --no-deps \
        --target "$root/usr/local/lib/python$python/dist-packages" --implementation cp \
        --python-version "$python" "${platforms[@]}" --only-binary=:all: "${@:2}" ||
        stop 33 "pip could not install the image's packages." "Read the lines above."
    rm -rf "$root/usr/local/lib/python$python/dist-packages/bin"
    # Its root is not to be written to, so what is not compiled now is compiled at each start.
    [ "$("$VENV/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" != "$python" ] ||
        "$VENV/bin/python" -m compileall -q -j 2 --invalidation-mode unchecked-hash -s "$root" "$root" || true
}

make_packages() {
    made_of packages "$1" && return 0
    say "igsdk: installs the image's Python packages"
    install packages --require-hashes -r build/requirements-container.txt
    "$VENV/bin/python" build/container_image.py layer "$ROOM/packages" "$ROOM/packages.tar"
    printf '%s\n' "$1" >"$ROOM/packages.stamp"
    rm -rf "$ROOM/packages"
}

make_igsdk() {
    local wheel
    made_of igsdk "$1" && return 0
    wheel="$(build/wheel.sh "$ROOM/wheel")"
    install igsdk --no-index "$wheel"
    mkdir -p "$ROOM/igsdk/usr/local/bin"
    printf '#!/usr/bin/python3\nimport sys\nfrom igsdk.cli import main\nsys.exit(main())\n' >"$ROOM/igsdk/usr/local/bin/igsdk"
    chmod 755 "$ROOM/igsdk/usr/local/bin/igsdk"
    "$VENV/bin/python" build/container_image.py layer "$ROOM/igsdk" "$ROOM/igsdk.tar"
    printf '%s\n' "$1" >"$ROOM/igsdk.stamp"
    rm -rf "$ROOM/igsdk"
}

[ "$(uname -m)" = x86_64 ] || stop 21 "The image is made for x86_64 only, so far." "Make it on such a machine."
command -v apt-get >/dev/null 2>&1 || stop 29 "This system has no apt-get, and the image is a Debian." "Make it on Debian 12."
build/preflight.sh machine
build/setup.sh
give_to_caller_at_exit
mkdir -p "$ROOM"
exec 7>"$ROOM/lock"
flock 7
suite="$(sources '$(CODENAME)' | head -n 1 | cut -d- -f1)"
debian="$(printf '%s ' "$suite" "$INCLUDE")"
make_debian "$debian"
python="$("$VENV/bin/python" build/container_image.py python "$ROOM/debian.tar")"
packages="$python $(fingerprint build/requirements-container.txt)"
make_packages "$packages"
make_igsdk "$python $(fingerprint python bpf setup.py setup.cfg pyproject.toml build/wheel.sh build/container.sh)"
reference="${1:-igsdk-agent:$("$VENV/bin/python" -c 'import igsdk; print(igsdk.__version__.replace("+", "-"))')}"
archive="$ROOM/image.tar"
"$VENV/bin/python" build/container_image.py image "$reference" "$archive" "$ROOM"/{debian,packages,igsdk}.tar
say "igsdk: $archive has $reference"
echo "$archive"
