#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sets up, then runs the benchmarks; arguments name some of them.
set -euo pipefail
cd "$(dirname "$0")/.."
. build/common.sh

build/preflight.sh machine
give_to_caller_at_exit
build/setup.sh --clients
"$VENV/bin/python" -m benchmarks "$@"
