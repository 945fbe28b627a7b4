# SPDX-License-Identifier: Apache-2.0
"""The ledger: replaces by key, heals, counts one epoch, explains what no account explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from igsdk.ledger import Ledger, ProcessInfo, Stack, marker
from igsdk.ledger.columns import HEAP, PROCESSES
from igsdk.ledger.groups import codes, group

if TYPE_CHECKING:
    import random

BOOT, EPOCH = 7, 100


def heap(*rows: dict[str, int]) -> dict[str, np.ndarray]:
    base = {"boot": BOOT, "epoch": EPOCH, "process": 1, "kind": 1, "device": 0}
    return {
        name: np.array([{**base, **row}.get(name, 0) for row in rows], dtype=kind)
        for name, kind in HEAP.types.items()
    }


def processes(*rows: dict[str, int]) -> dict[str, np.ndarray]:
    base = {"boot": BOOT, "epoch": EPOCH, "process": 1, "kind": 1, "device": 0}
    return {
        name: np.array([{**base, **row}.get(name, 0) for row in rows], dtype=kind)
        for name, kind in PROCESSES.types.items()
    }


def alloc(size: int, calls: int = 1, **more: int) -> dict[str, int]:
    return {"alloc_bytes": size, "alloc_calls": calls, **more}


def total(ledger: Ledger, name: str) -> int:
    return int(ledger.rows()[name].sum())


def test_a_second_batch_replaces_and_adds_nothing():
    ledger = Ledger()
    for _ in range(3):
        ledger.update_heap(heap(alloc(100, stack=5)))
    assert total(ledger, "alloc_bytes") == 100
    ledger.update_heap(heap(alloc(150, 2, stack=5)))
    assert total(ledger, "in_use_bytes") == 150


def test_an_older_row_never_replaces_a_newer_one():
    ledger = Ledger()
    ledger.update_heap(heap(alloc(300, 3, free_bytes=100, free_calls=1)))
    assert total(ledger, "in_use_bytes") == 200
    ledger.update_heap(heap(alloc(300, 3)))
    assert total(ledger, "in_use_bytes") == 200


def test_an_end_wins_over_the_same_totals_without_it():
    ledger = Ledger()
    ended = alloc(300, 3, implicit_bytes=300, implicit_calls=3, ended=1)
    ledger.update_heap(heap(ended))
    ledger.update_heap(heap(alloc(300, 3)))
    assert total(ledger, "in_use_bytes") == 0
    assert total(ledger, "implicit_bytes") == 300


def test_a_free_that_races_with_the_end_moves_bytes_out_of_implicit():
    ledger = Ledger()
    ledger.update_heap(heap(alloc(300, 3, implicit_bytes=300, implicit_calls=3, ended=1)))
    late = {"free_bytes": 100, "free_calls": 1, "implicit_bytes": 200, "implicit_calls": 2}
    ledger.update_heap(heap(alloc(300, 3, ended=1, **late)))
    assert total(ledger, "implicit_bytes") == 200
    assert total(ledger, "in_use_bytes") == 0


def test_accounts_that_vanish_stay():
    ledger = Ledger()
    ledger.update_heap(heap(alloc(10, stack=1), alloc(20, stack=2)))
    ledger.update_heap(heap(alloc(40, 2, stack=2)))
    assert total(ledger, "alloc_bytes") == 50


def test_what_an_ended_process_held_stays_in_use():
    ledger = Ledger()
    held = alloc(300, 3, free_bytes=100, free_calls=1, implicit_bytes=200, implicit_calls=2)
    ledger.update_heap(heap({**held, "ended": 2}))
    assert total(ledger, "in_use_bytes") == 200
    assert total(ledger, "in_use_calls") == 2
    assert total(ledger, "implicit_bytes") == 200


def test_an_account_whose_end_was_not_told_yet_is_held_once():
    ledger = Ledger()
    ledger.update_heap(heap(alloc(100, 2, free_bytes=60, free_calls=1)))
    ended = {"free_bytes": 60, "free_calls": 1, "implicit_bytes": 40, "implicit_calls": 1}
    ledger.update_processes(processes(alloc(100, 2, in_use=0, **ended)))
    ledger.update_process_info([ProcessInfo(instance=1, pid=10, ended_ns=5)])
    assert total(ledger, "in_use_bytes") == 40
    assert total(ledger, "in_use_calls") == 1


def test_the_caller_may_reuse_its_buffers():
    ledger, batch = Ledger(), heap(alloc(10))
    ledger.update_heap(batch)
    batch["alloc_bytes"][:] = 99
    assert total(ledger, "alloc_bytes") == 10


@pytest.mark.parametrize(("prefer", "expected"), [(None, 10), (200, 20), (100, 10), (999, 10)])
def test_two_epochs_on_one_boot_are_counted_once(prefer: int | None, expected: int):
    ledger = Ledger(prefer_epoch=prefer)
    ledger.update_heap(heap(alloc(20, epoch=200), alloc(10, epoch=100)))
    ledger.update_processes(
        processes(alloc(20, epoch=200, in_use=20), alloc(10, epoch=100, in_use=10))
    )
    ledger.update_losses({"events": 5}, boot=BOOT, epoch=200)
    assert total(ledger, "alloc_bytes") == expected
    assert int(ledger.processes()["alloc_bytes"].sum()) == expected
    assert ledger.losses() == ({"events": 5} if expected == 20 else {})


def test_two_boots_are_both_counted():
    ledger = Ledger()
    ledger.update_heap(heap(alloc(20, boot=1, epoch=200), alloc(10, boot=2, epoch=100)))
    assert total(ledger, "alloc_bytes") == 30


def test_what_no_account_explains_is_a_row_of_its_own():
    ledger = Ledger()
    ledger.update_heap(heap(alloc(60, 2, stack=5)))
    ledger.update_processes(processes(alloc(100, 3, in_use=100)))
    by = ledger.totals(by=["marker"])
    assert by["marker"].tolist() == [0, 2]
    assert by["in_use_bytes"].tolist() == [60, 40]
    assert by["in_use_calls"].tolist() == [2, 1]
    assert ledger.losses() == {}


def test_accounts_ahead_of_the_authority_are_a_loss_and_no_negative_row():
    ledger = Ledger()
    ledger.update_heap(heap(alloc(100, 3, stack=5)))
    ledger.update_processes(processes(alloc(60, 2, in_use=60)))
    assert ledger.losses() == {"accounts_ahead_bytes": 40}
    assert total(ledger, "in_use_bytes") == 100


def test_a_process_that_the_authority_does_not_name_is_left_alone():
    ledger = Ledger()
    ledger.update_heap(heap(alloc(100, process=1), alloc(7, process=2)))
    ledger.update_processes(processes(alloc(7, process=2, in_use=7)))
    assert total(ledger, "alloc_bytes") == 107
    assert ledger.losses() == {}


@pytest.mark.parametrize("told", [40, 0])
def test_what_an_ended_process_held_without_accounts(told: int):
    ledger = Ledger()
    ended = {"free_bytes": 60, "free_calls": 1, "implicit_bytes": 40, "implicit_calls": 1}
    ledger.update_processes(processes(alloc(100, 2, in_use=told, **ended)))
    ledger.update_process_info([ProcessInfo(instance=1, pid=10, ended_ns=5)])
    rows = ledger.rows()
    assert rows["in_use_bytes"].tolist() == [40]
    assert rows["in_use_calls"].tolist() == [1]


def test_an_overflow_account_is_marked():
    ledger = Ledger()
    ledger.update_heap(heap(alloc(100, overflow=1)))
    assert ledger.rows()["marker"].tolist() == [1]


def test_an_end_stays_an_end_and_a_peak_never_falls():
    ledger = Ledger()
    ledger.update_process_info([ProcessInfo(1, 10, ended_ns=5, peak=100)])
    ledger.update_process_info([ProcessInfo(1, 10, peak=50, cmdline="python x.py")])
    info = ledger.info(1, BOOT)
    assert info is not None
    assert (info.ended_ns, info.peak, info.cmdline) == (5, 100, "python x.py")


def test_a_batch_without_a_column_is_refused_by_name():
    batch = heap(alloc(1))
    del batch["free_calls"]
    with pytest.raises(ValueError, match="free_calls"):
        Ledger().update_heap(batch)
    with pytest.raises(ValueError, match="equally long"):
        Ledger().update_heap({**heap(alloc(1)), "stack": np.zeros(2, dtype="u8")})


def test_totals_refuse_what_is_not_a_key():
    with pytest.raises(ValueError, match="colour"):
        Ledger().totals(by=["colour"])


def test_an_empty_ledger_answers():
    ledger = Ledger()
    assert ledger.totals(by=["process"])["in_use_bytes"].tolist() == []
    assert ledger.losses() == {}


def test_stacks_and_devices_by_name():
    ledger = Ledger()
    stack = Stack.of([marker("why")])
    ledger.update_stacks([stack, stack])
    assert ledger.stack(stack.id) is stack
    ledger.update_devices({(None, 0): "GPU-all", (1, 0): "GPU-mine"}, boot=BOOT)
    assert ledger.device_name(BOOT, 1, 0) == "GPU-mine"
    assert ledger.device_name(BOOT, 2, 0) == "GPU-all"
    assert ledger.device_name(BOOT, 2, 1) == "1"
    assert ledger.device_name(BOOT, 2, -1) == "unknown"


# One process's accounts as a runtime reads them: each step allocates or frees at one
# account, every state in between is a batch that may arrive late, twice or never.
steps = st.lists(
    st.tuples(st.integers(0, 3), st.booleans(), st.integers(1, 2**50)), min_size=1, max_size=30
)


def play(steps_: list[tuple[int, bool, int]]) -> list[list[dict[str, int]]]:
    accounts: dict[int, dict[str, int]] = {}
    history = []
    for stack, frees, size in steps_:
        zero = dict.fromkeys(("alloc_bytes", "alloc_calls", "free_bytes", "free_calls"), 0)
        row = dict(accounts.get(stack, {"stack": stack, **zero}))
        left = row["alloc_bytes"] - row["free_bytes"]
        if frees and left:
            row["free_bytes"] += min(size, left)
            row["free_calls"] += 1
        else:
            row["alloc_bytes"] += size
            row["alloc_calls"] += 1
        accounts[stack] = row
        history.append([dict(row) for row in accounts.values()])
    return history


@given(steps, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_replay_duplicates_and_disorder_heal(steps_: list, shuffle: random.Random):
    history = play(steps_)
    batches = [*history, *history]
    shuffle.shuffle(batches)
    ledger = Ledger()
    for number, batch in enumerate(batches):
        ledger.update_heap(heap(*batch))
        if number % 3 == 0:
            ledger.rows()
    for name in ("alloc_bytes", "alloc_calls", "free_bytes", "free_calls"):
        assert total(ledger, name) == sum(row[name] for row in history[-1])
    left = sum(row["alloc_bytes"] - row["free_bytes"] for row in history[-1])
    assert total(ledger, "in_use_bytes") == left


@given(steps, steps)
@settings(max_examples=60, deadline=None)
def test_bytes_are_conserved_whatever_the_accounts_lack(known: list, lost: list):
    """Accounts and the rest add up to the authority, to the byte and to the call."""
    accounts = play(known)[-1]
    everything = accounts + play(lost)[-1]
    sums = {
        name: sum(row[name] for row in everything)
        for name in ("alloc_bytes", "alloc_calls", "free_bytes", "free_calls")
    }
    ledger = Ledger()
    ledger.update_heap(heap(*accounts))
    in_use = sums["alloc_bytes"] - sums["free_bytes"]
    ledger.update_processes(processes({**sums, "in_use": in_use}))
    assert total(ledger, "in_use_bytes") == in_use
    for name, expected in sums.items():
        assert total(ledger, name) == expected
    assert ledger.losses() == {}


@given(st.lists(st.tuples(*[st.integers(0, 2**64 - 1) | st.integers(0, 2)] * 4), max_size=40))
@settings(max_examples=60, deadline=None)
def test_groups_are_the_ones_that_a_dict_finds(rows: list[tuple[int, ...]]):
    columns = [np.array([row[i] for row in rows], dtype=np.uint64) for i in range(4)]
    groups = group(columns, len(rows))
    expected: dict[tuple[int, ...], int] = {}
    for row in rows:
        expected[row] = (expected.get(row, 0) + row[0]) % 2**64
    found = {rows[at]: int(s) for at, s in zip(groups.first, groups.sums(columns[0]), strict=True)}
    assert found == expected
    assert [rows[groups.first[g]] for g in groups.inverse] == rows


def test_codes_renumber_where_the_digits_do_not_fit():
    rng = np.random.default_rng(1)
    columns = [rng.integers(0, 2**63, 5000, dtype=np.uint64) for _ in range(6)]
    doubled = [np.concatenate([column, column]) for column in columns]
    found = codes(doubled, 10000)
    assert np.array_equal(found[:5000], found[5000:])
    assert len(np.unique(found)) == 5000
