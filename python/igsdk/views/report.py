# SPDX-License-Identifier: Apache-2.0
"""The report of a profile, as text for people and as a record for scripts."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from igsdk._events import frame_record
from igsdk._units import format_bytes, format_duration, plural
from igsdk.profile.names import DEFAULT_VALUE, HOSTS, VALUES
from igsdk.views.failures import failure_lines
from igsdk.views.holders import (
    WORDS,
    asking_lines,
    asking_rows,
    function_lines,
    shown_value,
    stack_lines,
)
from igsdk.views.losses import bytes_exact, exactness, loss_sentences, note_sentences
from igsdk.views.text import cut_end, fitted_width, sentence, short_device, table

if TYPE_CHECKING:
    from igsdk._events import AttachedLibrary
    from igsdk.profile import Metadata, ProcessRow, Profile

_LIES = {"own": "on the device", "pinned": "on the host", "managed": "on either, it moves"}
#: so much of a process's name is always shown
_COMMAND_ROOM = 24
#: settings that stand before a command and fill the first line
_ENV = re.compile(r"^(?:\S*/)?env(?: [A-Za-z_]\w*=\S*)+ (?=[^\s-])")
_APART = ("registered", "imported")


def report_text(profile: Profile, top: int = 10, width: int | None = None) -> str:
    """The report, without colour, every line at most ``width`` columns (80 to 200).

    Args:
        top: how many functions, and how many stacks.
        width: of the terminal; 100 where nobody knows it.
    """
    columns = fitted_width(width)
    metadata = profile.metadata
    sections = [
        _headline(profile, columns),
        _process_lines(metadata, columns),
        _kind_lines(profile, columns),
        _apart_lines(profile, columns),
        asking_lines(profile, top, columns),
        function_lines(profile, top, columns) or _no_holder_lines(profile),
        stack_lines(profile, top, columns),
        *(stack_lines(profile, min(top, 3), columns, host) for host in _APART),
        failure_lines(profile, columns),
        _loss_lines(metadata, columns),
        _note_lines(profile, columns),
        _attached_lines(metadata, columns),
    ]
    blocks = ("\n".join(line.rstrip() for line in lines) for lines in sections if lines)
    return "\n\n".join(blocks) + "\n"


def _headline(profile: Profile, width: int) -> list[str]:
    metadata = profile.metadata
    if metadata.foreign:
        return _foreign_lines(profile, width)
    lines = sentence(f"Traced: {_traced(metadata)}.", width, "")
    if _nothing_traced(profile):
        why = " ".join(metadata.notes) or "no process called the CUDA driver."
        return lines + sentence(f"Nothing was traced: {why}", width, "")
    return lines + sentence(f"Exact: {exactness(metadata)}.", width, "")


def _foreign_lines(profile: Profile, width: int) -> list[str]:
    """Of another tool's profile: what is shown of it, and why."""
    wanted, value = profile.default_value, shown_value(profile)
    if value == wanted:
        why = "the default" if wanted == DEFAULT_VALUE else "the file's default or asked for"
    elif wanted in profile.metadata.lacks:
        why = f"since the file has no {wanted}"
    else:
        why = f"since {wanted} is zero throughout"
    known = f"Written by another tool: its exactness is not known. Shown: {value} "
    return sentence(f"{known}({WORDS[value]}), {why}.", width, "")


def _traced(metadata: Metadata) -> str:
    parts = [_ENV.sub("", metadata.command or "") or metadata.selection or "all processes"]
    if metadata.processes:
        parts.append(plural(len(metadata.processes), "process"))
    if metadata.target:
        parts.append(f"on {metadata.target}")
    if metadata.duration_ns:
        parts.append(f"for {format_duration(metadata.duration_ns)}")
    if metadata.time_ns:
        start = datetime.fromtimestamp(metadata.time_ns // 10**9, timezone.utc)
        parts.append(f"from {start:%Y-%m-%d %H:%M:%S} UTC")
    if metadata.driver:
        parts.append({"real": "real GPU", "simulated": "SIMULATED driver"}[metadata.driver])
    return ", ".join(parts)


def _nothing_traced(profile: Profile) -> bool:
    return not (len(profile) or profile.metadata.processes)


def _process_lines(metadata: Metadata, width: int) -> list[str]:
    """Device memory by process; what lies elsewhere stands in the table of kinds."""
    if not metadata.processes:
        return []
    states = {row.state for row in metadata.processes}
    held = {"live": "in use", "ended": "held at exit"}
    header = held[states.pop()] if len(states) == 1 else "in use or held"
    headers = ["pid", "<state", header, "peak", "allocated", "freed", "failed", "<command"]
    cells = [headers, *(_process_cells(row) for row in metadata.processes)]
    places = _places(metadata)
    cells = [[*row[:-1], *place, row[-1]] for row, place in zip(cells, places, strict=True)]
    for dispensable in ("freed", "allocated"):
        if _fits(cells, width):
            break
        place = cells[0].index(dispensable)
        cells = [[*row[:place], *row[place + 1 :]] for row in cells]
    return ["Processes (memory of devices)", *table(cells[0], cells[1:], width, cut_end)]


def _places(metadata: Metadata) -> list[list[str]]:
    """Columns for where processes run, with headers: nodes if there are several, and pods."""
    rows = metadata.processes
    found: list[list[str]] = [[] for _ in range(len(rows) + 1)]
    columns = []
    if len({row.node for row in rows}) > 1:
        columns.append(["<node", *(row.node or "-" for row in rows)])
    if any(row.pod for row in rows):
        pods = (f"{row.namespace}/{row.pod}" if row.pod else "-" for row in rows)
        columns.append(["<pod", *pods])
    for column in columns:
        for cells, cell in zip(found, column, strict=True):
            cells.append(cell)
    return found


def _fits(cells: list[list[str]], width: int) -> bool:
    """Whether the last column has room enough to tell its rows apart."""
    *others, last = (max(map(len, column)) for column in zip(*cells, strict=True))
    return sum(size + 2 for size in others) + 2 + min(last, _COMMAND_ROOM) <= width


def _process_cells(row: ProcessRow) -> list[str]:
    figures = [row.own("in_use"), row.peak, row.own("allocated"), row.own("freed")]
    return [
        str(row.pid),
        row.state,
        *map(format_bytes, figures),
        str(row.failed_calls()),
        row.process or row.command,
    ]


def _kind_lines(profile: Profile, width: int) -> list[str]:
    rows = _by_kind(profile, [host for host in (*HOSTS, "") if host not in _APART])
    if not rows:
        return []
    headers = ["<kind", "<device", "in use", "blocks", "at peak", "allocated", "failed"]
    cells = [_kind_cells(row, profile.metadata.lacks) for row in rows]
    if any(row["host"] == "managed" for row in rows):
        # Elsewhere the kind and the device say it.
        headers.append("<lies")
        cells = [[*cell, _LIES.get(row["host"], "")] for cell, row in zip(cells, rows, strict=True)]
    if profile.metadata.foreign and not any(row["kind"] or row["device"] for row in rows):
        return ["All memory", *table(headers[2:], [cell[2:] for cell in cells], width)]
    return ["By kind and device", *table(headers, cells, width)]


def _kind_cells(row: dict[str, Any], lacks: tuple[str, ...]) -> list[str]:
    figures = {name: f"{row[name]:,}" for name in ("inuse_objects", "failed_objects")}
    figures |= {
        name: format_bytes(row[name]) for name in ("inuse_space", "peak_space", "alloc_space")
    }
    names = ("inuse_space", "inuse_objects", "peak_space", "alloc_space", "failed_objects")
    return [
        row["kind"] or "?",
        short_device(row["device"]) or "?",
        *("" if name in lacks else figures[name] for name in names),
    ]


def _apart_lines(profile: Profile, width: int) -> list[str]:
    rows = _by_kind(profile, list(_APART))
    if not rows:
        return []
    headers = ["<kind", "<device", "in use", "blocks", "at peak", "total", "failed", "<what it is"]
    what = {
        "registered": "host memory that existed before",
        "imported": "another process's memory",
    }
    lacks = profile.metadata.lacks
    cells = [[*_kind_cells(row, lacks), what[row["host"]]] for row in rows]
    title = "Not allocated by these processes, and in no sum of this report"
    return [title, *table(headers, cells, width)]


def _by_kind(profile: Profile, hosts: list[str]) -> list[dict[str, Any]]:
    rows = [row for row in profile.group(["kind", "device"]).samples() if row["host"] in hosts]
    return sorted(
        rows, key=lambda r: (-r["inuse_space"], -r["alloc_space"], r["kind"], r["device"])
    )


def _no_holder_lines(profile: Profile) -> list[str]:
    if _nothing_traced(profile):
        return []
    return [f"Largest holders: none, this profile has no memory {WORDS[shown_value(profile)]}"]


def _loss_lines(metadata: Metadata, width: int) -> list[str]:
    sentences = loss_sentences(metadata)
    if not sentences and metadata.foreign:
        return []
    if not sentences:
        return ["Losses: none"]
    return ["Losses", *(line for text in sentences for line in sentence(text, width))]


def _note_lines(profile: Profile, width: int) -> list[str]:
    told = profile.metadata.notes if _nothing_traced(profile) else ()  # stands in the headline
    sentences = [text for text in note_sentences(profile.metadata) if text not in told]
    lines = [line for text in sentences for line in sentence(text, width)]
    return ["Notes", *lines] if lines else []


def _attached_lines(metadata: Metadata, width: int) -> list[str]:
    texts = [_attached_text(library) for library in metadata.attached]
    if metadata.gadget:
        texts.insert(0, f"The program that traced is that of {_gadget_text(metadata.gadget)}.")
    lines = [line for text in texts for line in sentence(text, width)]
    return ["Attached", *lines] if lines else []


def _gadget_text(gadget: str) -> str:
    """Name and digest as two words: a digest alone fills a line."""
    return gadget.replace("@", " @")


def _attached_text(library: AttachedLibrary) -> str:
    jumps = sum(site.on == "jump" for site in library.sites)
    count, known = len(library.sites), len(library.sites) + len(library.missing)
    text = f"{library.path}: {count} of {known} functions watched"
    if jumps < count:
        text += f", {jumps} on the cheap site behind the entry, {count - jumps} on the entry itself"
    if library.late_ns:
        text += f", {format_duration(library.late_ns)} after it was mapped"
    if library.missing:
        text += f"; it lacks {', '.join(library.missing)}"
    return text


def report_record(profile: Profile, top: int = 10) -> dict[str, Any]:
    """The same as a JSON object: exact integers, stable keys.

    ``totals`` are by value and host class; ``lines`` (those that asked),
    ``functions`` and ``stacks`` by ``value``.
    ``bytes_exact`` is null where another tool wrote the profile.
    """
    value = shown_value(profile)
    asked = profile.asked()
    metadata = profile.metadata
    return {
        "metadata": metadata.to_json(),
        "value": value,
        "bytes_exact": None if metadata.foreign else bytes_exact(metadata),
        "totals": {name: profile.totals(name) for name in VALUES},
        "kinds": [_without_stack(row) for row in profile.group(["kind", "device"]).samples()],
        "lines": [
            {"function": r.name, "file": r.file, "line": r.line, "self": r.self, "total": r.total}
            for r in asking_rows(profile, top, value)
        ],
        "functions": [
            {"function": r.name, "file": r.file, "self": r.self, "total": r.total}
            for r in asked.top(top, value)
        ],
        "stacks": [
            {"self": r.self, "frames": [frame_record(frame) for frame in r.frames]}
            for r in profile.top(top, value, "stack")
        ],
        "losses": loss_sentences(metadata),
        "notes": note_sentences(metadata),
    }


def _without_stack(row: dict[str, Any]) -> dict[str, Any]:
    names = ("kind", "device", "host", *VALUES)
    return {name: row[name] for name in names}
