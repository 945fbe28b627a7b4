#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sets up, then runs the tests; arguments go to pytest. The last line is pytest's.
set -euo pipefail
cd "$(dirname "$0")/.."
. build/common.sh

build/preflight.sh machine
give_to_caller_at_exit
build/setup.sh --tests
# Minutes of CPU the first time; says why where it can't be, and then its tests skip.
"$VENV/bin/python" -m tests.support.pyroscope
"$VENV/bin/python" -m pytest "$@"
