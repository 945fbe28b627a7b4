#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Undoes what the other scripts did inside the clone. Debian packages stay.
set -eu
cd "$(dirname "$0")/.."

# A test cluster that outlived who started it: its mounts and its network go with it.
build/cluster-end.sh
rm -rf .work dist python/igsdk/_bpf python/*.egg-info \
    .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
rm -f python/igsdk/_native.*.so igsdk.pb.gz
find . -name .git -prune -o -type d -name __pycache__ -print0 | xargs -0 rm -rf
