#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# All checks that need no kernel. Each one runs, so that one call shows all that
# is wrong. --fix lets the formatters rewrite the sources first.
set -euo pipefail
cd "$(dirname "$0")/.."
. build/common.sh

build/setup.sh
bin="$VENV/bin"
mapfile -d '' native < <(find bpf python/native tests benchmarks build -name '*.[ch]' -print0 -o -name '*.[ch]pp' -print0 2>/dev/null | sort -z)

if [ "${1-}" = --fix ]; then
    "$bin/ruff" check --fix -q . || true
    "$bin/ruff" format -q .
    "$bin/clang-format" -i "${native[@]}"
fi

# The generator lives in an environment of its own: see requirements-proto.in.
generated_code() {
    local hash
    hash="$(fingerprint build/requirements-proto.txt)"
    if ! fresh proto "$hash"; then
        "$bin/python" -m venv --clear "$WORK/proto"
        logged pip-proto "$WORK/proto/bin/python" -m pip install --disable-pip-version-check \
            --require-hashes --no-deps -r build/requirements-proto.txt || return 1
        done_with proto "$hash"
    fi
    "$WORK/proto/bin/python" build/generate_proto.py --check
}

failed=()
check() {
    local name="$1"
    shift
    say "lint: $name"
    "$@" || failed+=("$name")
}

check mypy "$bin/mypy"
mapfile -t around < <(ls -d setup.py build tests benchmarks examples 2>/dev/null)
check "mypy around the package" "$bin/mypy" --config-file build/mypy-tools.ini "${around[@]}"
check ruff "$bin/ruff" check -q .
check "ruff format" "$bin/ruff" format -q --diff .
check clang-format "$bin/clang-format" --dry-run -Werror "${native[@]}"
check "import layers" "$bin/lint-imports" --no-cache --no-logo
check "generated code" generated_code
check house "$bin/python" build/check_house.py

[ ${#failed[@]} -eq 0 ] || stop 1 "These checks failed: $(printf '%s; ' "${failed[@]}")" "make format mends style; the rest is for you."
say "lint: all good"
