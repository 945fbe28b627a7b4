# SPDX-License-Identifier: Apache-2.0
"""Profiles as folded lines and as JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from igsdk._errors import ProfileUnreadable
from igsdk._events import Frame, frame_record
from igsdk.profile.metadata import Metadata
from igsdk.profile.names import ALLOCATED, LABELS, SAMPLE_TYPES, VALUES
from igsdk.profile.profile import Profile
from igsdk.profile.table import KEYS, build

JSON_KEY = "igsdk_profile"
JSON_VERSION = 1


def to_folded(profile: Profile) -> bytes:
    """One line per stack: ``process;root;…;leaf value`` of the default value, sorted.

    All frames are in it, and no line says of which kind they are: see :meth:`Profile.shown`.
    Registered and imported memory stands under a root of its own, ``[registered]`` or
    ``[imported]``, so that no process's bar contains it.
    """
    column = VALUES.index(profile.default_value)
    lines: dict[str, int] = {}
    table = profile._table
    processes, hosts = table.text("process"), table.text("host")
    values, stacks = table.values[:, column].tolist(), table.stack.tolist()
    for row in range(len(table)):
        apart = [] if hosts[row] in ALLOCATED else [f"[{hosts[row]}]"]
        frames = [table.frames[number].name for number in table.stacks.frames(stacks[row])]
        names = [*apart, processes[row] or "?", *reversed(frames)]
        line = ";".join(_plain(name) for name in names)
        lines[line] = lines.get(line, 0) + values[row]
    text = "".join(f"{line} {value}\n" for line, value in sorted(lines.items()) if value)
    return text.encode("utf-8", "replace")


def _plain(name: str) -> str:
    """A name without the characters that the format gives a meaning."""
    return " ".join(name.replace(";", ":").split()) or "?"


def to_json(profile: Profile) -> bytes:
    """The whole profile, with exact integers, as one JSON object."""
    table = profile._table.canonical()
    texts = {name: table.text(name) for name in LABELS}
    numbers = {name: table.labels[name].tolist() for name in KEYS if name not in LABELS}
    columns = {**texts, **numbers}
    record = {
        JSON_KEY: JSON_VERSION,
        "default_value": profile.default_value,
        "sample_types": [{"type": name, "unit": unit} for name, unit in SAMPLE_TYPES],
        "metadata": profile.metadata.to_json(),
        "frames": [frame_record(frame) for frame in table.frames],
        "stacks": [table.stacks.frames(number) for number in range(len(table.stacks))],
        "labels": columns,
        "stack": table.stack.tolist(),
        "values": table.values.tolist(),
    }
    return json.dumps(record, separators=(",", ":")).encode()


def from_json(data: bytes, name: str) -> Profile:
    """Read what :func:`to_json` wrote; ``name`` is for messages.

    Raises:
        ProfileUnreadable: cut short, damaged, or of another tool.
    """
    try:
        record = json.loads(data)
    except ValueError:
        raise ProfileUnreadable(
            f"{name} is cut short, or is not JSON.", "Record again, or copy the file again."
        ) from None
    if not isinstance(record, dict) or record.get(JSON_KEY) != JSON_VERSION:
        raise ProfileUnreadable(
            f"{name} is JSON of another tool, or of a later igsdk.",
            "Give a .json or .pb.gz file that this version of igsdk wrote.",
        )
    try:
        return _from_record(record)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise ProfileUnreadable(
            f"{name} is damaged: its parts do not fit together ({error}).", "Record again."
        ) from error


def _from_record(record: dict[str, Any]) -> Profile:
    frames = [Frame(**item) for item in record["frames"]]
    stacks = [tuple(frames[number] for number in stack) for stack in record["stacks"]]
    values = np.array(record["values"], dtype=np.int64).reshape(-1, len(VALUES))
    table = build(stacks, record["labels"], record["stack"], values)
    return Profile(table, Metadata.from_json(record["metadata"]), record["default_value"])
