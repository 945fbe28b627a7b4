# SPDX-License-Identifier: Apache-2.0
"""The metadata as a short JSON object for pprof's comment, and back.

pprof prints comments above its tables, so nothing stands here twice: probe sites are
``symbol@offset`` in one string, failures and processes are columns, and frames of failures
are numbers of the file's own locations.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any

from igsdk._events import Frame, frame_of, frame_record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from igsdk.profile.metadata import Metadata

Record = dict[str, Any]
_FIGURES = ("in_use", "allocated", "freed", "failed_bytes", "failed_calls")
_ROW_DEFAULTS: Record = {
    "command": "", "ns_pid": 0, "state": "live", "peak": 0, "unknown_frees": 0,
    "before_us": False, "late_ns": 0, "nvml_bytes": None, "node": "", "namespace": "",
    "pod": "", "container": "",
}  # fmt: skip


def shortened(metadata: Metadata, locations: Mapping[Frame, int]) -> Record:
    """The metadata as an object for the comment; ``locations`` are the file's, by frame."""
    record = metadata.to_json()
    if "attached" in record:
        record["attached"] = [_short_library(library) for library in record["attached"]]
    if "processes" in record:
        record["processes"] = _columns([_short_row(row) for row in record["processes"]])
    if "failures" in record:
        record |= _short_failures(record["failures"], locations)
    return record


def restored(record: Record, frames: Mapping[int, Sequence[Frame]]) -> Record:
    """The object as :meth:`Metadata.from_json` wants it; ``frames`` are by location.

    Raises:
        TypeError, ValueError, KeyError, IndexError, AttributeError: it is not one of ours.
    """
    whole = dict(record)
    if "attached" in whole:
        whole["attached"] = [
            {**library, "sites": _sites(library.get("sites", []))} for library in whole["attached"]
        ]
    if "processes" in whole:
        whole["processes"] = [_whole_row(row) for row in _rows(whole["processes"])]
    if "failures" in whole:
        stacks = [_whole_stack(stack, frames) for stack in whole.pop("failure_stacks", ())]
        whole["failures"] = [_with_stack(row, stacks) for row in _rows(whole["failures"])]
    return whole


def _short_library(library: Record) -> Record:
    """What was attached in one file, without what says nothing."""
    short = {**library, "sites": _joined(library["sites"])}
    return {name: value for name, value in short.items() if value or name == "path"}


def _joined(sites: Sequence[Record]) -> list[list[str]]:
    """Runs of sites: where their probes sit, then each ``symbol@offset`` (hexadecimal)."""
    return [
        [on, " ".join(f"{site['symbol']}@{site['offset']:x}" for site in run)]
        for on, run in groupby(sites, key=lambda site: str(site["on"]))
    ]


def _sites(runs: Sequence[Sequence[str]]) -> list[Record]:
    sites = []
    for on, names in runs:
        for name in names.split(" "):
            symbol, _, offset = name.rpartition("@")
            sites.append({"symbol": symbol, "offset": int(offset, 16), "on": on})
    return sites


def _columns(rows: list[Record]) -> Record:
    """Rows as columns: what all have in common stands once."""
    names = sorted({name for row in rows for name in row})
    record: Record = {"rows": len(rows)}
    for name in names:
        values = [row.get(name) for row in rows]
        if all(name in row for row in rows) and all(value == values[0] for value in values):
            record.setdefault("same", {})[name] = values[0]
        else:
            has = [[number, row[name]] for number, row in enumerate(rows) if name in row]
            part, column = ("each", values) if len(has) == len(rows) else ("some", has)
            record.setdefault(part, {})[name] = column
    return record


def _rows(record: Record) -> list[Record]:
    rows = [dict(record.get("same", {})) for _ in range(record["rows"])]
    for name, values in record.get("each", {}).items():
        for row, value in zip(rows, values, strict=True):
            row[name] = value
    for name, pairs in record.get("some", {}).items():
        for number, value in pairs:
            rows[number][name] = value
    return rows


def _short_row(row: Record) -> Record:
    """A line of the process table without what says nothing."""
    short = {n: v for n, v in row.items() if n not in _ROW_DEFAULTS or v != _ROW_DEFAULTS[n]}
    short["classes"] = {
        host: [figures[name] for name in _FIGURES] if set(figures) == {*_FIGURES} else figures
        for host, figures in row["classes"].items()
    }
    return short


def _whole_row(row: Record) -> Record:
    classes = {
        host: dict(zip(_FIGURES, figures, strict=True)) if isinstance(figures, list) else figures
        for host, figures in row["classes"].items()
    }
    return {**row, "classes": classes}


def _short_failures(failures: Sequence[Record], locations: Mapping[Frame, int]) -> Record:
    """Failures as columns, and each different stack of them once."""
    stacks: dict[str, int] = {}
    rows = []
    for failure in failures:
        row = dict(failure)
        if "stack" in row:
            short = json.dumps([_short_frame(frame, locations) for frame in row["stack"]])
            row["stack"] = stacks.setdefault(short, len(stacks))
        rows.append(row)
    return {"failures": _columns(rows), "failure_stacks": [json.loads(text) for text in stacks]}


def _short_frame(record: Record, locations: Mapping[Frame, int]) -> Any:
    """The location's number, or the frame itself where the file has none like it."""
    frame = frame_of(record)
    known = locations.get(frame) if frame_record(frame) == record else None
    return record if known is None else known


def _whole_stack(stack: Sequence[Any], frames: Mapping[int, Sequence[Frame]]) -> list[Record]:
    return [item if isinstance(item, dict) else frame_record(frames[item][0]) for item in stack]


def _with_stack(row: Record, stacks: Sequence[list[Record]]) -> Record:
    return {**row, "stack": stacks[row["stack"]]} if "stack" in row else row
