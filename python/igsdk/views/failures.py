# SPDX-License-Identifier: Apache-2.0
"""Refused allocations, as a profile carries them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from igsdk._events import frame_of
from igsdk._results import OUT_OF_MEMORY, result_name
from igsdk._units import format_bytes, plural
from igsdk.profile.driver import asking
from igsdk.views.text import cut_place, frame_label, sentence, short_device

if TYPE_CHECKING:
    from igsdk._events import Frame
    from igsdk.profile import Profile

_SHOWN = 20
#: frames of a stack that are shown: those of a library that asked, and of who used it
_NEAREST, _OUTERMOST = 3, 4
#: what a failure says that an older or later version wrote without some of it
_UNTOLD: dict[str, Any] = {
    "process": "?",
    "pid": 0,
    "api": "?",
    "kind": "?",
    "device": -1,
    "device_name": "",
    "bytes": 0,
    "result": 0,
    "result_name": "",
    "in_use": 0,
    "stack": [],
}


def failure_lines(profile: Profile, width: int) -> list[str]:
    """Out of memory first, then other failures; the same failure again is counted, not repeated."""
    groups = _grouped([{**_UNTOLD, **failure} for failure in profile.metadata.failures])
    if not groups:
        return []
    ordered = sorted(groups, key=lambda group: group[0]["result"] != OUT_OF_MEMORY)
    total = sum(row.failed_calls() for row in profile.metadata.processes)
    total = max(total, len(profile.metadata.failures))
    lines = [f"Failed allocations: {plural(total, 'call')}"]
    for failure, count in ordered[:_SHOWN]:
        lines += _lines(failure, count, width)
    if len(ordered) > _SHOWN:
        lines.append(f"  … {len(ordered) - _SHOWN} more; --json has them all")
    return lines


def _grouped(failures: list[dict[str, Any]]) -> list[tuple[dict[str, Any], int]]:
    """Failures of one process, size, result and asking line: (the last of them, how many).

    An allocator that frees its caches and tries again does so from another line of its own.
    """
    groups: dict[str, tuple[dict[str, Any], int]] = {}
    for failure in failures:
        names = ("boot", "pid", "start_ns", "api", "bytes", "result", "device")
        asked = [frame_label(frame) for frame in _calling(failure)]
        key = repr([*(failure.get(name) for name in names), asked])
        groups[key] = (failure, groups.get(key, (failure, 0))[1] + 1)
    return list(groups.values())


def _lines(failure: dict[str, Any], count: int, width: int) -> list[str]:
    code = failure["result"]
    name = failure["result_name"] or result_name(code)
    times = f" {count} times" if count > 1 else ""
    device = failure["device_name"] or (failure["device"] if failure["device"] >= 0 else "")
    text = (
        f"{name} ({code}){times}: {failure['process']} (pid {failure['pid']}) asked for "
        f"{format_bytes(failure['bytes'])} of {failure['kind']} memory"
        f"{f' on device {short_device(str(device))}' if device != '' else ''} by "
        f"{failure['api']}, "
        f"when it had {format_bytes(failure['in_use'])} in use itself"
    )
    return [*sentence(text, width), *_leaf(failure, width)]


def _leaf(failure: dict[str, Any], width: int) -> list[str]:
    """The code that asked, and its callers: the nearest, and those that the program is of."""
    calling = _calling(failure)
    hidden = len(calling) - _NEAREST - _OUTERMOST
    lines = [
        f"    {'by' if number else 'at'} {cut_place(frame_label(frame), width - 7)}"
        for number, frame in enumerate(calling)
    ]
    if hidden > 1:  # a gap of one frame takes no less room than the frame
        lines[_NEAREST:-_OUTERMOST] = [f"    … {plural(hidden, 'frame')} …"]
    return lines


def _calling(failure: dict[str, Any]) -> list[Frame]:
    """The frame that asked and its callers, leaf first."""
    frames = [frame_of(frame) for frame in failure["stack"]]
    return frames[asking(frames) :]
