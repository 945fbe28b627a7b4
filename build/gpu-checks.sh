#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sets up, then compares what igsdk believes of a CUDA driver with this machine's
# own; arguments go to gpu_checks.py. Without a GPU it says so before it installs.
set -euo pipefail
cd "$(dirname "$0")/.."
. build/common.sh

case " $* " in
    *' --simulated '* | *' --list '*) ;;
    *) [ -c /dev/nvidiactl ] || [ -c /dev/dxg ] ||
        stop 37 "This machine has no NVIDIA GPU that a program could use: no /dev/nvidiactl." \
            "Run this on one that has, or see the checks work: make gpu-checks CHECKS=--simulated" ;;
esac

build/preflight.sh machine
give_to_caller_at_exit
build/setup.sh --clients
"$VENV/bin/python" build/gpu_checks.py "$@"
