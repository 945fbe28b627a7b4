# SPDX-License-Identifier: Apache-2.0
"""Stacks as they come from a runtime: whole ones from the agent, texts from Inspektor Gadget."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk._errors import AnswerInvalid
from igsdk._events import Frame, Stack, marker
from igsdk.client.cuda_rows import lengths, number, word

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from igsdk.client.columns import Array, Columns

#: what `how` of every stack of Inspektor Gadget's begins with
INSPEKTOR_GADGET = "inspektor-gadget"
_FIELD = "ustack_raw"
#: values of ``enum igsdk_stack_state``
OFF, TAKEN, UNREADABLE, TABLE_FULL, NONE = range(5)
_REASONS = {
    UNREADABLE: "no frame could be read",
    TABLE_FULL: "too many different stacks",
    TAKEN: "stack lost",
}
_LACKS = "names of shared libraries and of Python functions, frames without a frame pointer"
_MOST_FRAMES = 4096


def agent_stacks(columns: Columns, known: Container[int]) -> Iterator[Stack]:
    """The stacks of rows of ``stacks`` that are not known yet, as they are.

    Raises:
        AnswerInvalid: a row has no frames of ours in it.
    """
    for row, number_ in enumerate(columns["id"].tolist()):
        if number_ in known:
            continue
        frames = _frames_of(word(columns, "frames", row))
        missing = word(columns, "missing", row) or None
        yield Stack(number_, frames, word(columns, "how", row), missing)


def _frames_of(text: str) -> tuple[Frame, ...]:
    try:
        items = json.loads(text)
        return tuple(_frame(*item) for item in items[:_MOST_FRAMES])
    except (ValueError, TypeError, KeyError) as error:
        raise AnswerInvalid(
            f"A stack of the daemon's cannot be read: {text[:80]!r}.",
            "Use igsdk of the same version on both sides.",
        ) from error


def _frame(
    function: str,
    file: str | None,
    line: int,
    address: int,
    mapping: str | None,
    build_id: str | None,
    kind: Any,
    *_: Any,  # what a later version adds
) -> Frame:
    return Frame(function, file, line, address, mapping, build_id, kind)


def has_texts(columns: Columns) -> bool:
    """Whether the rows carry Inspektor Gadget's own user stack."""
    return f"{_FIELD}.addresses" in columns


def gadget_stack(columns: Columns, row: int) -> Stack | None:
    """The stack of one row with Inspektor Gadget's texts; None: stacks are off.

    Frames have the name that its symbolizer gave; those without one have the build id and
    the offset in the file where the daemon collected them, else the bare address, which
    means something in this one process only.
    """
    # An event does not say how its stack went, only what the stack is.
    state = number(columns, "stack_state_raw", row, TAKEN if number(columns, "stack", row) else 0)
    addresses = _parts(word(columns, f"{_FIELD}.addresses", row))
    if not addresses:
        reason = _REASONS.get(state)
        return Stack.of([marker(reason)], INSPEKTOR_GADGET, reason) if reason else None
    symbols = _parts(word(columns, f"{_FIELD}.symbols", row))
    builds = _parts(word(columns, f"{_FIELD}.buildid", row))
    if len(symbols) > len(addresses):  # another's stack, which it took for the better one
        addresses, builds = [""] * len(symbols), []
    frames = [
        _gadget_frame(address, _at(symbols, place), _at(builds, place))
        for place, address in enumerate(addresses)
    ]
    return Stack.of(frames, f"{INSPEKTOR_GADGET} {_way(symbols, builds)}", _LACKS)


def untold(columns: Columns, rows: Array, stack: Array, named: Array) -> Array:
    """Which of some rows have a stack to be read that is new, or has names now.

    Args:
        stack: the ids that are known of them, 0 where there is none.
        named: whether those have names.
    """
    some = lengths(columns, f"{_FIELD}.addresses")[rows] > 0
    if "stack_state_raw" in columns:
        some |= np.isin(columns["stack_state_raw"][rows], list(_REASONS))
    better = (lengths(columns, f"{_FIELD}.symbols")[rows] > 0) & (named == 0)
    wanted: Array = ((stack == 0) & some) | better
    return wanted


def is_named(columns: Columns, row: int) -> bool:
    """Whether a symbolizer had something to say."""
    return bool(word(columns, f"{_FIELD}.symbols", row))


def _gadget_frame(address: str, symbol: str, build: str) -> Frame:
    name = "" if symbol.startswith("0x") else symbol
    build_id, _, offset = build.partition(" +")
    if offset:
        return Frame(name, address=_hex(offset), build_id=build_id)
    return Frame(name, address=0 if name else _hex(address or symbol))


def _way(symbols: list[str], builds: list[str]) -> str:
    words = ["symbols"] if symbols else []
    words += ["build ids"] if any(" +" in one for one in builds) else []
    return " and ".join(words) or "addresses"


def _parts(text: str) -> list[str]:
    """``a; b; `` as a list; each part has its separator behind it."""
    return text.split("; ")[:-1][:_MOST_FRAMES]


def _at(parts: list[str], place: int) -> str:
    return parts[place] if place < len(parts) else ""


def _hex(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0
