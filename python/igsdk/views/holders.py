# SPDX-License-Identifier: Apache-2.0
"""Who holds it: functions with total and self, and the stacks that lead there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from igsdk._units import format_bytes, plural
from igsdk.profile.driver import is_driver
from igsdk.views.text import sentence, shorten, table

if TYPE_CHECKING:
    from igsdk._events import Frame
    from igsdk.profile import Profile, TopRow

#: of a deep stack the root's and the leaf's ends are shown
_ROOT_FRAMES, _LEAF_FRAMES = 4, 16
WORDS = {
    "inuse_space": "in use",
    "alloc_space": "allocated over time",
    "peak_space": "in use at the peak",
    "failed_space": "refused",
}
_TITLES = {"own": "memory of devices", "pinned": "host memory", "managed": "managed memory"}


def shown_value(profile: Profile) -> str:
    """The default value; where that is nothing at all, the peak, then what was allocated."""
    wanted = profile.default_value
    if wanted == "inuse_space":
        for value in ("inuse_space", "peak_space", "alloc_space"):
            if any(profile.totals(value).values()) or profile.total(value):
                return value
    return wanted


def function_lines(profile: Profile, top: int, width: int) -> list[str]:
    """The functions that hold most themselves, with total and self as flame graphs have them."""
    value = shown_value(profile)
    rows = profile.without_driver().top(10**9, value)
    rows = sorted(rows, key=lambda row: (-abs(row.self), -abs(row.total)))[:top]
    if not rows:
        return []
    whole = profile.total(value)
    headers = ["self", "total", "total %", "<function"]
    cells = [
        [format_bytes(r.self), format_bytes(r.total), _percent(r.total, whole), _place(r)]
        for r in rows
    ]
    title = f"Largest holders: functions, {_words(value)}, {_mixed(profile, value)}"
    return [*sentence(title, width, ""), *table(headers, cells, width)]


def stack_lines(profile: Profile, top: int, width: int, host: str | None = None) -> list[str]:
    """The largest stacks, each from its root down to its leaf, as in a flame graph.

    ``host`` names one class of memory; without it all that the processes allocated.
    """
    value = shown_value(profile)
    rows = profile.top(top, value, "stack", host)
    if not rows:
        return []
    whole = profile.total(value, host)
    bare = profile.without_driver().top(10**9, value, host=host)
    figures = {(row.name, row.frames[0].file): row for row in bare}
    what = f"{host} memory, " if host else ""
    lines = [f"Largest holders: stacks, {what}{_words(value)} (root first, leaf last)"]
    for number, row in enumerate(rows, 1):
        share = _percent(row.self, whole)
        held = f"{format_bytes(row.self)}, {share}, {_blocks(profile, row, value)}"
        lines.append(shorten(f"  {number}. {held}", width))
        lines.append(f"    {'total':>10}  {'self':>10}")
        lines += _frame_lines(row.frames, figures, width)
    return lines


def _frame_lines(
    frames: tuple[Frame, ...], figures: dict[tuple[str, str | None], TopRow], width: int
) -> list[str]:
    ordered = list(reversed(frames))
    hidden = max(0, len(ordered) - _ROOT_FRAMES - _LEAF_FRAMES)
    lines = []
    for depth, frame in enumerate(ordered):
        if hidden and depth == _ROOT_FRAMES:
            lines.append(f"    {'':>10}  {'':>10}  … {plural(hidden, 'frame')} …")
        if not hidden or not _ROOT_FRAMES <= depth < _ROOT_FRAMES + hidden:
            lines.append(_frame_line(frame, figures, width))
    return lines


def _frame_line(frame: Frame, figures: dict[tuple[str, str | None], TopRow], width: int) -> str:
    known = None if is_driver(frame) else figures.get((frame.name, frame.file))
    total = format_bytes(known.total) if known else ""
    own = format_bytes(known.self) if known else ""
    text = f"{frame.name}  {frame.place}".rstrip()
    return f"    {total:>10}  {own:>10}  {shorten(text, width - 28)}".rstrip()


def _blocks(profile: Profile, row: TopRow, value: str) -> str:
    """How many blocks a stack holds, and whose they are."""
    objects = value.replace("space", "objects")
    mine = [sample for sample in profile.of_stack(row.frames).samples() if sample[value]]
    count = sum(sample[objects] for sample in mine)
    names = sorted({(sample["process"] or "?", sample["pid"]) for sample in mine})
    shown = [f"{name} ({pid})" if pid else name for name, pid in names[:3]]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"in {plural(count, 'block')}: {', '.join(shown)}{more}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _place(row: TopRow) -> str:
    return f"{row.name}  {row.file}" if row.file else row.name


def _words(value: str) -> str:
    return WORDS.get(value, value)


def _mixed(profile: Profile, value: str) -> str:
    """What the sum is made of."""
    sums = {host: size for host, size in profile.totals(value).items() if host in _TITLES and size}
    if len(sums) <= 1:
        name = _TITLES[next(iter(sums))] if sums else "all memory"
        return f"{name} {format_bytes(profile.total(value))}"
    parts = [f"{_TITLES[host]} {format_bytes(size)}" for host, size in sums.items()]
    return f"{format_bytes(profile.total(value))} = {' + '.join(parts)}"
