# SPDX-License-Identifier: Apache-2.0
"""Where a walk ends: which stacks are whole, and what is said of the others."""

from __future__ import annotations

from typing import Any, cast

import pytest

from igsdk._events import Frame
from igsdk.runtime.stacks import StackResolver

MISSING = "[callers without frame pointers]"


class Resolver(StackResolver):
    """Names instead of addresses: address n is the nth of them; what lies behind is no code."""

    def __init__(self, *names: str) -> None:
        super().__init__(cast("Any", None))
        self._names = names

    def _frame(self, pid: int, address: int) -> Frame | None:
        # a caller's address is looked up one byte before it
        number = (address + 15) // 16
        return Frame(self._names[number]) if number < len(self._names) else None

    def walk(self, count: int, cut: bool = False) -> tuple[str, ...]:
        stack = self._resolve(1, [16 * number for number in range(count)], cut)
        return tuple(frame.function for frame in stack.frames)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["f", "_start"], ["f", "_start"]),
        (["f", "main"], ["f", "main"]),
        (["f", "main", "libc.so.6+0x27249"], ["f", "main"]),
        (["main"], ["main"]),
        (["f", "main", "g", "h"], ["f", "main", "g", "h", MISSING]),
        (["f", "g"], ["f", "g", MISSING]),
        (["f", "main", "__libc_start_call_main"], ["f", "main", "__libc_start_call_main"]),
    ],
)
@pytest.mark.parametrize("behind", [0, 1])
def test_where_a_stack_ends(names: list[str], expected: list[str], behind: int) -> None:
    """With a last address that is no code, and without."""
    assert Resolver(*names).walk(len(names) + behind) == tuple(expected)


def test_a_stack_that_was_too_deep_says_so() -> None:
    assert Resolver("f", "g").walk(2, cut=True) == ("f", "g", "[deeper callers]")
    assert Resolver("f", "main").walk(2, cut=True) == ("f", "main")
