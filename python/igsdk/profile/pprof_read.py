# SPDX-License-Identifier: Apache-2.0
"""Reading pprof: our own files whole, other tools' heap profiles as far as they go."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.message import DecodeError

from igsdk._errors import ProfileUnreadable
from igsdk._events import Frame, FrameKind
from igsdk._proto import pprof_pb2
from igsdk.profile.comment import restored
from igsdk.profile.metadata import Metadata
from igsdk.profile.names import (
    DEFAULT_VALUE,
    FILE_LABELS,
    NUMBERS,
    SAMPLE_TYPES,
    VALUES,
    implied_host,
)
from igsdk.profile.pprof_write import COMMENT_KEY, implied_kind
from igsdk.profile.profile import Profile
from igsdk.profile.table import KEYS, build

if TYPE_CHECKING:
    from collections.abc import Sequence

#: what a file may unpack to; the format itself ends at 2 GiB
LARGEST = 1 << 31
_AGAIN = "Record again, or copy the file again from where it came."


def decode(data: bytes, name: str) -> Profile:
    """Read a pprof file's bytes; ``name`` is for messages.

    Raises:
        ProfileUnreadable: cut short, damaged, not pprof, or without a value that we know.
    """
    message = pprof_pb2.Profile()
    try:
        message.ParseFromString(unpacked(data, name))
    except DecodeError:
        raise _foreign(name, "is not a pprof profile") from None
    if not message.sample_type or not message.string_table:
        raise _foreign(name, "is not a pprof profile")
    try:
        return _Reader(message, name).profile()
    except (IndexError, KeyError, ValueError, TypeError, AttributeError) as error:
        cause = f"{name} is damaged: its parts do not fit together ({error})."
        raise ProfileUnreadable(cause, _AGAIN) from error


def unpacked(data: bytes, name: str) -> bytes:
    """The content of a gzip file, or the bytes themselves where it is none."""
    if not data.startswith(b"\x1f\x8b"):
        return data
    unpacker = zlib.decompressobj(wbits=31)
    try:
        content = unpacker.decompress(data, LARGEST)
    except zlib.error as error:
        raise ProfileUnreadable(f"{name} is damaged ({error}).", _AGAIN) from None
    if unpacker.unconsumed_tail:
        cause = f"{name} unpacks to more than {LARGEST >> 30} GiB."
        raise ProfileUnreadable(cause, "Check where the file comes from.")
    if not unpacker.eof:
        raise ProfileUnreadable(f"{name} is cut short.", _AGAIN)
    return content


def _foreign(name: str, what: str) -> ProfileUnreadable:
    known = ", ".join(VALUES)
    return ProfileUnreadable(
        f"{name} {what}: it is of another tool, or no profile at all.",
        f"Give a file that igsdk wrote, or a pprof file with one of {known}.",
    )


class _Reader:
    def __init__(self, message: pprof_pb2.Profile, name: str) -> None:
        self._message = message
        self._name = name
        self._strings: Sequence[str] = list(message.string_table)
        self._about = self._comment()
        self._columns = self._known_columns()
        self._frames = self._locations()

    def profile(self) -> Profile:
        samples = self._message.sample
        stacks: dict[tuple[int, ...], int] = {}
        rows = [stacks.setdefault(tuple(s.location_id), len(stacks)) for s in samples]
        frames = [tuple(f for i in stack for f in self._frames[i]) for stack in stacks]
        labels, label_set = self._labels()
        sets = np.array(label_set, dtype=np.int64)
        table = build(frames, labels, rows, self._values(), sets)
        default = self._text(self._message.default_sample_type)
        return Profile(table, self._metadata(), default if default in VALUES else DEFAULT_VALUE)

    def _text(self, number: int) -> str:
        if number < 0:
            raise IndexError("negative string number")
        return self._strings[number]

    def _comment(self) -> dict[str, Any]:
        """Our own JSON comment, empty where another tool wrote the file."""
        for number in self._message.comment:
            text = self._text(number)
            if f'"{COMMENT_KEY}"' in text and text.startswith("{"):
                about: dict[str, Any] = json.loads(text)
                return about
        return {}

    def _known_columns(self) -> list[int]:
        """For each of our values its place in the file, -1 where the file lacks it."""
        types = [(self._text(t.type), self._text(t.unit)) for t in self._message.sample_type]
        places = [types.index(wanted) if wanted in types else -1 for wanted in SAMPLE_TYPES]
        if all(place < 0 for place in places):
            has = ", ".join(name for name, _ in types)
            raise _foreign(self._name, f"has no memory values (but {has})")
        return places

    def _values(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        count = len(self._message.sample_type)
        flat = [value for sample in self._message.sample for value in sample.value]
        matrix = np.array(flat, dtype=np.int64).reshape(len(self._message.sample), count)
        zeros = np.zeros((len(matrix), 1), dtype=np.int64)
        return np.concatenate([matrix, zeros], axis=1)[:, self._columns]

    def _locations(self) -> dict[int, tuple[Frame, ...]]:
        mappings = {mapping.id: mapping for mapping in self._message.mapping}
        functions = {function.id: function for function in self._message.function}
        return {
            location.id: self._frames_of(location, mappings, functions)
            for location in self._message.location
        }

    def _frames_of(
        self,
        location: pprof_pb2.Location,
        mappings: dict[int, pprof_pb2.Mapping],
        functions: dict[int, pprof_pb2.Function],
    ) -> tuple[Frame, ...]:
        """A location's frames: several where functions were inlined, innermost first."""
        mapping = build_id = ""
        if location.mapping_id:
            file = mappings[location.mapping_id]
            mapping, build_id = self._text(file.filename), self._text(file.build_id)

        def frame(function: str, file: str, line: int) -> Frame:
            code = self._about.get("mapping_kinds", {}).get(str(location.mapping_id), "native")
            implied = implied_kind(function, mapping, location.address, code)
            kind: FrameKind = self._about.get("frame_kinds", {}).get(str(location.id), implied)
            return Frame(
                function=function,
                file=file or None,
                line=line,
                address=location.address,
                mapping=mapping or None,
                build_id=build_id or None,
                kind=kind,
            )

        lines = [(functions[line.function_id], line.line) for line in location.line]
        found = [frame(self._text(f.name), self._text(f.filename), line) for f, line in lines]
        return tuple(found) or (frame("", "", 0),)

    def _labels(self) -> tuple[dict[str, list[Any]], list[int]]:
        """Labels per label set, and for every sample which set it has."""
        sets: dict[tuple[tuple[int, int, int], ...], int] = {}
        which = [
            sets.setdefault(tuple((i.key, i.str, i.num) for i in sample.label), len(sets))
            for sample in self._message.sample
        ]
        rows = [self._label_set(items) for items in sets]
        return {name: [row[name] for row in rows] for name in KEYS}, which

    def _label_set(self, items: tuple[tuple[int, int, int], ...]) -> dict[str, Any]:
        texts = {self._text(key): self._text(text) for key, text, _ in items}
        numbers = {self._text(key): number for key, _, number in items}
        labels: dict[str, Any] = {name: texts.get(name, "") for name in FILE_LABELS}
        labels |= {name: numbers.get(name, 0) for name in NUMBERS}
        implied = implied_host(labels["kind"], labels["device"])
        # A foreign label of that name is a machine, no class of memory.
        return {**labels, "host": texts.get("host", implied) if self._about else implied}

    def _metadata(self) -> Metadata:
        if self._about:
            return Metadata.from_json(restored(self._about, self._frames))
        types = [self._text(t.type) for t in self._message.sample_type]
        unknown = [name for name in types if name not in VALUES]
        left_out = f"Left out of the other tool's profile: {', '.join(unknown)}."
        return Metadata(
            time_ns=self._message.time_nanos,
            duration_ns=self._message.duration_nanos,
            notes=(left_out,) if unknown else (),
            foreign=True,
            lacks=tuple(n for n, c in zip(VALUES, self._columns, strict=True) if c < 0),
        )
