# SPDX-License-Identifier: Apache-2.0
"""This kernel takes the objects, whatever is set; and what older ones count is not exceeded.

`make kernel-test` has other kernels verify the same (tests/kernels).
"""

from __future__ import annotations

import pytest
from tests.support.loadings import USERS, Compiler, all_of, compilers, few_of, object_of, refusals
from tests.support.switches import covering, deepest

COMPILERS = compilers()
OTHERS = pytest.mark.parametrize("by", COMPILERS[1:], ids=map(str, COMPILERS[1:]))
#: of stack, over all calls; 6.1 rounds each function's part up, newer ones less
STACK_BYTES, OLD_UNIT = 512, 32


def check(user: str, by: Compiler, few: bool = False) -> None:
    data = object_of(user, by)
    ways = few_of(user, data) if few else all_of(user, data)
    assert len(ways) >= 3
    assert not refusals(data, ways)


@pytest.mark.parametrize("user", USERS)
def test_every_combination_is_verified(user: str) -> None:
    check(user, COMPILERS[0])


@OTHERS
@pytest.mark.parametrize("user", USERS)
def test_other_compilers(user: str, by: Compiler) -> None:
    check(user, by, few=True)


@pytest.mark.parametrize("by", COMPILERS, ids=map(str, COMPILERS))
@pytest.mark.parametrize("program", ["gadget", "local"])
def test_stack_is_enough_on_old_kernels(program: str, by: Compiler) -> None:
    taken, by_whom = deepest(by.compile(program), OLD_UNIT)
    assert 200 < taken <= STACK_BYTES, by_whom


def test_covering_has_all_combinations_of_each_group() -> None:
    values = {"a": (0, 1), "b": (0, 1, 2), "c": (0, 1), "alone": (0, 1)}
    together = [frozenset("ab"), frozenset("bc"), frozenset({"alone", "unknown"})]
    made = covering(together, values)
    assert {(one["a"], one["b"]) for one in made} == {(a, b) for a in (0, 1) for b in (0, 1, 2)}
    assert {(one["b"], one["c"]) for one in made} == {(b, c) for c in (0, 1) for b in (0, 1, 2)}
    assert {one["alone"] for one in made} == {0, 1}
    assert len(made) == 6
