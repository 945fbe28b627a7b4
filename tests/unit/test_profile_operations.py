# SPDX-License-Identifier: Apache-2.0
"""No operation of a profile loses a value, doubles one, or has one row twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.profile_cases import LIBCUDA, A, B, C, sample

from igsdk.ledger import Frame, marker
from igsdk.profile import Profile
from igsdk.profile.names import HOSTS
from igsdk.profile.shown import VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from igsdk.profile.shown import View

    Operation = Callable[[Profile], Profile]

OTHER_CALL = Frame("cuMemAllocAsync", None, 0, 0x240, "/usr/lib/libcuda.so.1", "ab12")
OP, OTHER_OP = (Frame("op", None, 0, at, "/srv/ext.so", "cd") for at in (0x10, 0x20))
EVAL = Frame("_PyEval_EvalFrameDefault", None, 0, 9, "/usr/bin/python3", kind="interpreter")
CUT = marker("native frames cut after 32 KiB of stack")
# Few frames, places and processes: what is cut or hidden leaves stacks that are alike.
stacks = st.lists(
    st.sampled_from([LIBCUDA, OTHER_CALL, OP, OTHER_OP, EVAL, CUT, A, B, C]),
    min_size=1,
    max_size=5,
)


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    values = {name: draw(st.integers(-(2**40), 2**40)) for name in Profile.values}
    host = draw(st.sampled_from(HOSTS[:2]))
    return sample(*draw(stacks), host=host, pid=draw(st.integers(1, 2)), **values)


profiles = st.builds(Profile.from_samples, st.lists(rows(), max_size=12))


def view_of(view: View) -> Operation:
    return lambda profile: profile.shown(view)


OPERATIONS: dict[str, Operation] = {
    **{view: view_of(view) for view in VIEWS},
    "asked": Profile.asked,
    "shown, asked": lambda profile: profile.shown().asked(),
    "without driver": Profile.without_driver,
    "without addresses": Profile.without_addresses,
    "by stack": lambda profile: profile.group(["pid", "stack"]),
    "by function": lambda profile: profile.asked().group(["function"]),
}
operations = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=list(OPERATIONS))
often = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def sums(profile: Profile) -> dict[str, dict[str, int]]:
    return {name: profile.totals(name) for name in Profile.values}


def keys(profile: Profile) -> Iterator[tuple[Any, ...]]:
    for row in profile.samples():
        yield (row["stack"], *(row[name] for name in Profile.labels))


def test_calls_through_different_code_of_one_line_are_one_row() -> None:
    """As a cut stack of PyTorch: its operators differ, the line that asked does not."""
    profile = Profile.from_samples(
        [
            sample(LIBCUDA, OP, B, C, inuse_space=5),
            sample(OTHER_CALL, OTHER_OP, B, C, inuse_space=7),
        ]
    ).asked()
    [row] = profile.top(by="stack")
    assert (row.frames, row.self) == ((B, C), 12)


@operations
@given(profile=profiles)
@often
def test_values_are_kept_and_rows_are_distinct(operation: Operation, profile: Profile) -> None:
    changed = operation(profile)
    assert sums(changed) == sums(profile)
    assert not [key for key, times in Counter(keys(changed)).items() if times > 1]
    assert operation(changed) == changed


@operations
@given(one=profiles, other=profiles)
@often
def test_an_operation_of_a_sum_is_the_sum(
    operation: Operation, one: Profile, other: Profile
) -> None:
    merged = operation(Profile.merge(one, other))
    assert merged == Profile.merge(operation(one), operation(other))
    difference = operation(one.subtract(other))
    assert difference == operation(one).subtract(operation(other))
    assert sums(Profile.merge(difference, operation(other))) == sums(operation(one))


@given(profile=profiles, pattern=st.sampled_from(["op", "cu*", "work", "_PyEval*", "none"]))
@often
def test_a_filter_and_what_it_leaves_out_are_the_whole(profile: Profile, pattern: str) -> None:
    for changed in (profile, profile.shown(), profile.asked()):
        left = changed.filter(function=pattern)
        out = changed.subtract(left)
        assert not len(out.filter(function=pattern))
        assert sums(Profile.merge(left, out)) == sums(changed)
    by_pid = [profile.filter(pid=pid) for pid in (1, 2)]
    assert Profile.merge(*by_pid) == profile


@pytest.mark.parametrize("suffix", [".pb.gz", ".json"])
@operations
@given(profile=profiles)
@often
def test_files_keep_what_an_operation_left(
    tmp_path: Path, suffix: str, operation: Operation, profile: Profile
) -> None:
    changed = operation(profile)
    changed.write(tmp_path / f"x{suffix}")
    assert Profile.read(tmp_path / f"x{suffix}") == changed
