# SPDX-License-Identifier: Apache-2.0
"""Each allocation is counted once, whatever rows do between two pushes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.held import BACKWARD, FORWARD, MAIN, MALLOC, MIB, profile, row

from igsdk._events import marker
from igsdk.profile import Profile
from igsdk.sinks.changes import Counted

UNKNOWN = (marker("stack not received"),)
STACKS = (UNKNOWN, (MALLOC, FORWARD, MAIN), (MALLOC, BACKWARD, MAIN))


def due(counted: Counted, now: Profile, arrives: bool = True) -> Profile:
    rows = counted.due(now._table)
    if arrives:
        counted.settle([rows])
    return Profile(rows)


def test_only_what_is_new() -> None:
    counted = Counted()
    assert due(counted, profile(row(allocated=5 * MIB))).total("alloc_space") == 5 * MIB
    assert due(counted, profile(row(allocated=7 * MIB))).total("alloc_space") == 2 * MIB
    assert len(due(counted, profile(row(allocated=7 * MIB)))) == 0


def test_what_did_not_arrive_stays_due() -> None:
    counted = Counted()
    due(counted, profile(row(allocated=5 * MIB)), arrives=False)
    assert due(counted, profile(row(allocated=7 * MIB))).total("alloc_space") == 7 * MIB


def test_a_row_that_moves_is_no_allocation() -> None:
    """Its stack gets names, its process a pod, its device a name."""
    counted = Counted()
    due(counted, profile(row(UNKNOWN, allocated=5 * MIB, in_use=MIB)))
    now = due(counted, profile(row(allocated=6 * MIB, in_use=MIB, pod="p", device="GPU-2")))
    assert (now.total("alloc_space"), now.total("inuse_space")) == (MIB, MIB)


def test_another_processs_row_is_its_own() -> None:
    counted = Counted()
    due(counted, profile(row(allocated=5 * MIB)))
    assert due(counted, profile(row(allocated=5 * MIB, pid=8))).total("alloc_space") == 5 * MIB


def test_what_goes_away_and_comes_back_was_counted() -> None:
    counted = Counted()
    due(counted, profile(row(allocated=5 * MIB)))
    due(counted, profile())
    assert due(counted, profile(row(allocated=6 * MIB))).total("alloc_space") == MIB


_STEP = st.tuples(
    st.lists(st.integers(0, 40), min_size=3, max_size=3), st.booleans(), st.booleans()
)


@given(st.lists(_STEP, max_size=8))
@settings(deadline=None, max_examples=60)
def test_the_sum_of_pushes_is_what_was_allocated(
    steps: list[tuple[list[int], bool, bool]],
) -> None:
    """Stacks grow, now and then unnamed ones get their names, some pushes fail."""
    counted, sums, pushed = Counted(), [0, 0, 0], 0
    for grown, renamed, arrives in [*steps, ([0, 0, 0], False, True)]:
        sums = [before + more for before, more in zip(sums, grown, strict=True)]
        if renamed:
            sums = [0, sums[1] + sums[0], sums[2]]
        rows = [row(stack, allocated=sums[n], in_use=n) for n, stack in enumerate(STACKS)]
        now = due(counted, profile(*rows), arrives)
        assert now.total("inuse_space") == 3
        assert all(sample["alloc_space"] >= 0 for sample in now.samples())
        pushed += now.total("alloc_space") if arrives else 0
    assert pushed == sum(sums)
