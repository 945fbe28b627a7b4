#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the gadget's image, for amd64 and arm64, into a tar file that `ig image
# import` and `igsdk gadget push` take.
#
# usage: build/gadget.sh [FILE]      default: dist/profile_cuda_memory.tar
#
# With SOURCE_DATE_EPOCH set the same source gives the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
. build/common.sh

file="${1:-dist/profile_cuda_memory.tar}"
build/setup.sh
mkdir -p "$(dirname "$file")"
"$VENV/bin/igsdk" gadget build gadget -o "$file"
say "igsdk: to a registry with: $VENV/bin/igsdk gadget push $file REGISTRY/profile_cuda_memory:TAG"
