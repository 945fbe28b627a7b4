# SPDX-License-Identifier: Apache-2.0
"""Who holds it: the lines that asked, functions with total and self, and whole stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from igsdk._units import format_bytes, plural
from igsdk.profile.driver import asking, is_driver
from igsdk.profile.names import VALUES
from igsdk.views.text import cut_place, frame_label, sentence, shorten, table

if TYPE_CHECKING:
    from igsdk._events import Frame
    from igsdk.profile import Profile, TopRow
    from igsdk.profile.top import By

#: of a deep stack are shown its root, the frame that asked with its callers, and its leaf
_ROOT_FRAMES, _CALLERS, _LEAF_FRAMES = 4, 15, 4
WORDS = {
    "inuse_space": "in use",
    "alloc_space": "allocated over time",
    "peak_space": "in use at the peak",
    "failed_space": "refused",
    "inuse_objects": "blocks in use",
    "alloc_objects": "blocks allocated over time",
    "peak_objects": "blocks in use at the peak",
    "failed_objects": "refused calls",
}
#: (name, file) -> total and self, as they are shown
Figures = dict[tuple[str, "str | None"], tuple[str, str]]
_TITLES = {"own": "memory of devices", "pinned": "host memory", "managed": "managed memory"}


def shown_value(profile: Profile) -> str:
    """The default value; where that is nothing at all, the peak, then what was allocated."""
    wanted, lacks = profile.default_value, profile.metadata.lacks
    if wanted == "inuse_space":
        for value in ("inuse_space", "peak_space", "alloc_space"):
            if any(profile.totals(value).values()) or profile.total(value):
                return value
    if wanted in lacks:
        return next((value for value in VALUES if value not in lacks), wanted)
    return wanted


def shown_amount(value: str, count: int) -> str:
    """A value as people read it: bytes with a unit, blocks and calls as a number."""
    return format_bytes(count) if value.endswith("space") else f"{count:,}"


def asking_lines(profile: Profile, top: int, width: int) -> list[str]:
    """The lines that asked for most, where the profile knows lines of Python.

    It is what people come for: the line to look at, whatever native code it called.
    """
    if not any(frame.kind == "python" for frame in profile.frames()):
        return []
    value = shown_value(profile)
    rows = asking_rows(profile, top, value)
    if not rows:
        return []
    whole = profile.total(value)
    cells = [
        [shown_amount(value, row.self), _percent(row.self, whole), frame_label(row.frames[0])]
        for row in rows
    ]
    title = f"{_title(value)}: lines of code that asked for it{_words(value, '', ', ')}"
    return [title, *table(["self", "self %", "<line"], cells, width, cut_place)]


def asking_rows(profile: Profile, top: int, value: str) -> list[TopRow]:
    """The lines that asked for most themselves, largest first."""
    rows = [row for row in profile.asked().top(10**9, value, "line") if row.self]
    return sorted(rows, key=lambda row: -abs(row.self))[:top]


def holder_rows(profile: Profile, top: int, value: str, by: By) -> list[TopRow]:
    """Functions or lines by what they hold themselves, their callers after them; or stacks."""
    if by == "stack":
        return profile.top(top, value, "stack")
    rows = profile.asked().top(10**9, value, by)
    return sorted(rows, key=lambda row: (-abs(row.self), -abs(row.total)))[:top]


def function_lines(profile: Profile, top: int, width: int) -> list[str]:
    """The functions that hold most themselves, with total and self as flame graphs have them."""
    value = shown_value(profile)
    rows = holder_rows(profile, top, value, "function")
    if not rows:
        return []
    whole = profile.total(value)
    headers = ["self", "total", "total %", "<function"]
    cells = [
        [
            shown_amount(value, row.self),
            shown_amount(value, row.total),
            _percent(row.total, whole),
            frame_label(row.frames[0], row.file or ""),
        ]
        for row in rows
    ]
    title = f"{_title(value)}: functions, {_words(value, ', ')}{_mixed(profile, value)}"
    return [*sentence(title, width, ""), *table(headers, cells, width, cut_place)]


def line_lines(profile: Profile, top: int, width: int) -> list[str]:
    """The lines of code that hold most themselves; functions where the profile has no lines."""
    value = shown_value(profile)
    rows = holder_rows(profile, top, value, "line")
    if not rows:
        return []
    if not any(frame.line for frame in profile.frames()):
        text = "This profile has no lines: its stacks tell functions only. By function:"
        return [*sentence(text, width, ""), *function_lines(profile, top, width)]
    cells = [
        [shown_amount(value, row.self), shown_amount(value, row.total), frame_label(row.frames[0])]
        for row in rows
    ]
    return table(["self", "total", "<line"], cells, width, cut_place)


def stack_lines(profile: Profile, top: int, width: int, host: str | None = None) -> list[str]:
    """The largest stacks, each from its root down to its leaf, as in a flame graph.

    Stacks of the same functions and lines at different addresses are one.
    ``host`` names one class of memory; without it all that the processes allocated.
    """
    value = shown_value(profile)
    printed = profile.without_addresses()
    rows = printed.top(top, value, "stack", host)
    if not rows:
        return []
    whole = profile.total(value, host)
    bare = printed.asked().top(10**9, value, host=host)
    figures = {
        (row.name, row.frames[0].file): (
            shown_amount(value, row.total),
            shown_amount(value, row.self),
        )
        for row in bare
    }
    told = [f"{host} memory"] if host else []
    told += [words] if (words := _words(value, "")) else []
    title = ", ".join([f"{_title(value)}: stacks", *told])
    lines = [f"{title} (root first, leaf last)"]
    for number, row in enumerate(rows, 1):
        share = _percent(row.self, whole)
        held = f"{shown_amount(value, row.self)}, {share}{_blocks(printed, row, value)}"
        lines.append(shorten(f"  {number}. {held}", width))
        lines.append(f"    {'total':>10}  {'self':>10}")
        lines += _frame_lines(row.frames, figures, width)
    return lines


def _frame_lines(frames: tuple[Frame, ...], figures: Figures, width: int) -> list[str]:
    ordered = list(reversed(frames))
    shown = _shown_depths(len(ordered), len(ordered) - 1 - asking(frames))
    lines = []
    for before, depth in zip([-1, *shown], shown, strict=False):
        if depth > before + 1:
            hidden = plural(depth - before - 1, "frame")
            lines.append(f"    {'':>10}  {'':>10}  … {hidden} …")
        lines.append(_frame_line(ordered[depth], figures, width))
    return lines


def _shown_depths(length: int, asked: int) -> list[int]:
    """Which frames of a stack are shown, root first; `asked` is the one that asked."""
    middle = range(max(0, asked - _CALLERS), asked + 1)
    shown = {*range(_ROOT_FRAMES), *middle, *range(length - _LEAF_FRAMES, length)}
    # a gap of one frame takes no less room than the frame
    shown |= {depth for depth in range(length) if {depth - 1, depth + 1} <= shown}
    return sorted(shown & set(range(length)))


def _frame_line(frame: Frame, figures: Figures, width: int) -> str:
    nothing = "", ""
    known = nothing if is_driver(frame) else figures.get((frame.name, frame.file), nothing)
    total, own = known
    return f"    {total:>10}  {own:>10}  {cut_place(frame_label(frame), width - 28)}".rstrip()


def _blocks(profile: Profile, row: TopRow, value: str) -> str:
    """How many blocks a stack holds, and whose they are, as far as the profile says."""
    objects = value.replace("space", "objects")
    mine = [sample for sample in profile.of_stack(row.frames).samples() if sample[value]]
    names = sorted({(s["process"], s["pid"]) for s in mine if s["process"] or s["pid"]})
    shown = [f"{name or '?'} ({pid})" if pid else name for name, pid in names[:3]]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    whose = f": {', '.join(shown)}{more}" if shown else ""
    if objects == value or objects in profile.metadata.lacks:
        return whose
    unit = "call" if value.startswith("failed") else "block"
    return f", in {plural(sum(sample[objects] for sample in mine), unit)}{whose}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _title(value: str) -> str:
    return "Asked for and refused" if value.startswith("failed") else "Largest holders"


def _words(value: str, end: str, start: str = "") -> str:
    """What a value is, unless the title says it."""
    return "" if value.startswith("failed") else f"{start}{WORDS.get(value, value)}{end}"


def _mixed(profile: Profile, value: str) -> str:
    """What the sum is made of."""
    totals = profile.totals(value).items()
    sums = {host: shown_amount(value, n) for host, n in totals if host in _TITLES and n}
    whole = shown_amount(value, profile.total(value))
    if len(sums) <= 1:
        name = _TITLES[next(iter(sums))] if sums else "all memory"
        return f"{name} {whole}"
    return f"{whole} = {' + '.join(f'{_TITLES[host]} {n}' for host, n in sums.items())}"
