#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sets up, then runs the benchmarks; arguments name some of them.
set -euo pipefail
cd "$(dirname "$0")/.."
. build/common.sh

build/preflight.sh machine
build/setup.sh --clients
exec "$VENV/bin/python" -m benchmarks "$@"
