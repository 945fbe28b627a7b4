#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The first five minutes: sets up, records two real CUDA clients, shows the
# reports and says what to do next.
#
# IGSDK_DRIVER=simulated takes the simulated driver where there is a GPU too.
set -euo pipefail
cd "$(dirname "$0")/.."
. build/common.sh

has_gpu() {
    [ "${IGSDK_DRIVER-}" != simulated ] || return 1
    { [ -c /dev/nvidiactl ] || [ -c /dev/dxg ]; } && ldconfig -p | grep -q 'libcuda\.so\.1 '
}

build/preflight.sh machine
if has_gpu; then
    model="$(sed -n 's/^Model:[[:space:]]*//p' /proc/driver/nvidia/gpus/*/information 2>/dev/null | sort | uniq -c | xargs || true)"
    echo "The numbers below come from a REAL GPU${model:+ ($model)}, through the machine's own driver."
elif [ "${IGSDK_DRIVER-}" = simulated ]; then
    echo "The numbers below come from a SIMULATED driver, as IGSDK_DRIVER asks."
else
    echo "The numbers below come from a SIMULATED driver: this machine has no NVIDIA driver."
fi

give_to_caller_at_exit
build/setup.sh --clients

bin="$PWD/$VENV/bin"
setting=()
if has_gpu; then
    "$bin/python" -c 'import sys; from cuda.bindings import driver; sys.exit(int(driver.cuInit(0)[0]))' ||
        stop 36 "The driver of this machine does not start (cuInit failed)." \
            "Look at nvidia-smi, or run on the simulated driver: IGSDK_DRIVER=simulated make run"
else
    folder="$("$bin/python" tests/support/simdriver.py)"
    setting=("LD_LIBRARY_PATH=$folder")
fi

# Under sudo the command gets the caller's environment, so what it needs is
# named behind the dashes too.
record() {
    local profile="$WORK/run/$1.pb.gz"
    mkdir -p "$WORK/run"
    echo
    echo "== examples/$1.py"
    env "${setting[@]}" "$bin/igsdk" record -o "$profile" -- \
        env "${setting[@]}" "$bin/python" "examples/$1.py" 2>&1
}

record hold_and_fail
record numba_arrays

sudo="${SUDO_UID:+sudo }"
if has_gpu; then
    own="${sudo}$bin/igsdk record -- python your_program.py"
    hint="python is the one that your program uses, with its CUDA packages"
else
    own="${sudo}$bin/igsdk record -- env ${setting[*]} $bin/python your_program.py"
    hint="on the simulated driver, which runs no kernels; that python has cuda-bindings and numba"
fi
cat <<END

== Next
Your own program:  $own
                   ($hint)
These profiles:    $PWD/$WORK/run/hold_and_fail.pb.gz
                   $PWD/$WORK/run/numba_arrays.pb.gz
To open one:       $bin/igsdk report FILE, go tool pprof -http=: FILE, or drop it on speedscope
What works here:   ${sudo}$bin/igsdk doctor
END
