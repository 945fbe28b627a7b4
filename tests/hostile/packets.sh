#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# By hand: the reader of packets alone, built with the address and undefined behaviour
# sanitizers, against its tests. Python's own memory comes from malloc, so that a read behind
# the end of a packet is seen. Arguments go to pytest; takes about three minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
. build/common.sh

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cat >"$folder/module.cpp" <<'END'
#include "parts.h"
PYBIND11_MODULE(_native, m) { register_packets(m); }
END
include="$("$VENV/bin/python" -m pybind11 --includes)"
# shellcheck disable=SC2086 # several words
g++ -std=c++17 -O1 -g -fPIC -shared -fvisibility=hidden -fsanitize=address,undefined \
    -fno-sanitize-recover=undefined -Wall -Wextra $include -Ipython/native \
    "$folder/module.cpp" python/native/packet*.cpp python/native/shared_texts.cpp -o "$folder/_native.so"
cat >"$folder/run.py" <<'END'
import importlib.util, sys
import igsdk
import pytest
spec = importlib.util.spec_from_file_location("igsdk._native", sys.argv[1])
igsdk._native = sys.modules["igsdk._native"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(igsdk._native)
sys.exit(pytest.main(sys.argv[2:]))
END
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so) $(gcc -print-file-name=libstdc++.so)" \
    ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
    "$VENV/bin/python" "$folder/run.py" "$folder/_native.so" -q -p no:cacheprovider --timeout 900 \
    tests/unit/test_client_native.py tests/unit/test_client_rows.py "$@"
