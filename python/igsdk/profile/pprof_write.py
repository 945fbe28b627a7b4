# SPDX-License-Identifier: Apache-2.0
"""Profiles as pprof. The same content gives the same bytes."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk._proto import pprof_pb2
from igsdk.ledger.groups import group
from igsdk.profile import wire
from igsdk.profile.comment import shortened
from igsdk.profile.driver import calling_frames, is_driver
from igsdk.profile.names import (
    DEFAULT_VALUE,
    FILE_LABELS,
    NUMBERS,
    SAMPLE_TYPES,
    VALUES,
    implied_host,
)

if TYPE_CHECKING:
    from igsdk._events import Frame, FrameKind
    from igsdk.profile.metadata import Metadata
    from igsdk.profile.profile import Profile
    from igsdk.profile.table import Table

#: key under which our JSON comment says that it is ours, and its version
COMMENT_KEY = "igsdk_profile"
COMMENT_VERSION = 1


def encode(profile: Profile) -> bytes:
    """The profile as gzipped pprof."""
    # zlib's own gzip header has neither name nor time, whatever the version of Python.
    packer = zlib.compressobj(level=6, wbits=31)
    table = profile._table.canonical()
    writer = _Writer(table, len(SAMPLE_TYPES), profile.default_value)
    writer.add_samples(table)
    writer.add_comment(profile.metadata, table)
    content = writer.content(profile.metadata.time_ns, profile.metadata.duration_ns)
    return packer.compress(content) + packer.flush()


def encode_series(table: Table, columns: int, time_ns: int, duration_ns: int) -> bytes:
    """Rows as pprof for a server that has their labels elsewhere; not compressed.

    Args:
        columns: how many of the sample types, from the first on.
        time_ns: wall clock, the start of an interval that is ``duration_ns`` long.
    """
    writer = _Writer(table, columns)
    writer.add_bare_samples(table, columns)
    return writer.content(time_ns, duration_ns)


def implied_kind(
    name: str, mapping: str | None, address: int, code: FrameKind = "native"
) -> FrameKind:
    """What a frame is, told by what a pprof location has; exceptions stand in the comment.

    ``code``: what code of that mapping is, as the comment says where it is not native.
    """
    if mapping or address:
        return code
    return "marker" if name.startswith("[") and name.endswith("]") else "python"


def _in_order_of_mappings(table: Table) -> list[Frame]:
    """Frames in the order that their mappings shall have.

    pprof says of a profile that it is of its first mapping: so programs come first, then
    libraries, what asked for most before what asked for less, and the driver last.
    """
    leaves = calling_frames(table)
    asked = np.zeros(len(table.frames), dtype=np.float64)
    sizes = table.values[:, VALUES.index("alloc_space")].astype(np.float64)
    np.add.at(asked, leaves[table.stack], np.abs(sizes))
    sums: dict[str, float] = {}
    for frame, size in zip(table.frames, asked.tolist(), strict=True):
        sums[frame.mapping or ""] = sums.get(frame.mapping or "", 0.0) + size

    def place(frame: Frame) -> tuple[bool, bool, float]:
        path = frame.mapping or ""
        library = not path or ".so" in path.rsplit("/", 1)[-1]
        return is_driver(frame), library, -sums[path]

    return sorted(table.frames, key=place)


def _locations(table: Table) -> list[bytes]:
    """Each stack's locations as a sample has them."""
    stacks = (table.stacks.frames(stack) for stack in range(len(table.stacks)))
    return [wire.locations([number + 1 for number in frames]) for frames in stacks]


class _Writer:
    """Builds one message; ids are positions plus one, since 0 means none."""

    def __init__(self, table: Table, columns: int, default_value: str = DEFAULT_VALUE) -> None:
        self.message = pprof_pb2.Profile()
        self._strings = {"": 0}
        self._mappings: dict[tuple[str, str], Any] = {}
        self._functions: dict[tuple[str, str], int] = {}
        self._sample_fields = b""
        self._types(columns, default_value)
        for frame in _in_order_of_mappings(table):
            if frame.mapping or frame.build_id:
                self._mapping(frame)
        for frame in table.frames:
            self._location(frame)

    def content(self, time_ns: int, duration_ns: int) -> bytes:
        """The message's bytes: fields of one message may stand in any order."""
        self.message.time_nanos = time_ns
        self.message.duration_nanos = duration_ns
        self.message.string_table.extend(self._strings)
        return self.message.SerializeToString(deterministic=True) + self._sample_fields

    def _text(self, text: str) -> int:
        """A string's number. What is not Unicode is replaced: readers refuse the whole file."""
        clean = text.encode("utf-8", "replace").decode() if not text.isascii() else text
        return self._strings.setdefault(clean, len(self._strings))

    def _types(self, columns: int, default_value: str) -> None:
        for name, unit in SAMPLE_TYPES[:columns]:
            self.message.sample_type.add(type=self._text(name), unit=self._text(unit))
        self.message.default_sample_type = self._text(default_value)
        self.message.period_type.type = self._text("space")
        self.message.period_type.unit = self._text("bytes")
        self.message.period = 1

    def _location(self, frame: Frame) -> None:
        location = self.message.location.add(id=len(self.message.location) + 1)
        location.address = frame.address
        if frame.mapping or frame.build_id:
            location.mapping_id = self._mapping(frame)
        if frame.function or frame.file or frame.line:
            location.line.add(function_id=self._function(frame), line=frame.line)

    def _mapping(self, frame: Frame) -> int:
        """The frame's file. Its flags say what all of its frames have."""
        key = (frame.mapping or "", frame.build_id or "")
        mapping = self._mappings.get(key)
        if mapping is None:
            mapping = self._mappings[key] = self.message.mapping.add(
                id=len(self._mappings) + 1,
                filename=self._text(key[0]),
                build_id=self._text(key[1]),
                has_functions=True,
                has_filenames=True,
                has_line_numbers=True,
            )
        mapping.memory_limit = max(mapping.memory_limit, frame.address + 1)
        mapping.has_functions &= bool(frame.function)
        mapping.has_filenames &= bool(frame.file)
        mapping.has_line_numbers &= bool(frame.line)
        return int(mapping.id)

    def _function(self, frame: Frame) -> int:
        key = (frame.function, frame.file or "")
        number = self._functions.get(key)
        if number is None:
            number = self._functions[key] = len(self._functions) + 1
            # With a system name pprof tidies the name up as if it were C++, and makes
            # nothing of `<module>`; so only what is still mangled has one.
            mangled = frame.function if frame.function.startswith("_Z") else ""
            self.message.function.add(
                id=number,
                name=self._text(frame.function),
                system_name=self._text(mangled),
                filename=self._text(key[1]),
            )
        return number

    def add_samples(self, table: Table) -> None:
        """All samples; their strings are numbered on the way."""
        groups = group(table.keys[1:], len(table))
        sets = table.taken(groups.first)
        labels = [self._labels(sets, number) for number in range(len(sets))]
        self._sample_fields = wire.samples(
            _locations(table), table.stack, table.values, labels, groups.inverse
        )

    def add_bare_samples(self, table: Table, columns: int) -> None:
        """All samples, without labels and with the first values only."""
        values = np.ascontiguousarray(table.values[:, :columns])
        unlabelled = np.zeros(len(table), dtype=np.int64)
        self._sample_fields = wire.samples(
            _locations(table), table.stack, values, [b""], unlabelled
        )

    def _labels(self, table: Table, row: int) -> bytes:
        texts = {n: table.strings[table.labels[n][row]] for n in (*FILE_LABELS, "host")}
        host = texts.pop("host")
        fields = [(name, text) for name, text in texts.items() if text]
        if host != implied_host(texts["kind"], texts["device"]):
            fields.append(("host", host))
        numbers = [(name, int(table.labels[name][row])) for name in NUMBERS]
        encoded = [wire.text_label(self._text(name), self._text(text)) for name, text in fields]
        encoded += [wire.number_label(self._text(name), n) for name, n in numbers if n]
        return b"".join(encoded)

    def add_comment(self, metadata: Metadata, table: Table) -> None:
        """What the profile says of itself, as JSON."""
        locations = {frame: number for number, frame in enumerate(table.frames, 1)}
        about = {COMMENT_KEY: COMMENT_VERSION, **shortened(metadata, locations)}
        about |= self._kinds(table)
        text = json.dumps(about, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        self.message.comment.append(self._text(text))

    def _kinds(self, table: Table) -> dict[str, dict[str, FrameKind]]:
        """Kinds that a reader could not tell: of whole mappings, then of single locations."""
        mappings = [location.mapping_id for location in self.message.location]
        kinds: dict[int, Counter[FrameKind]] = {}
        for frame, mapping in zip(table.frames, mappings, strict=True):
            kinds.setdefault(mapping, Counter())[frame.kind] += 1
        kinds.pop(0, None)
        code: dict[int, FrameKind] = {m: count.most_common(1)[0][0] for m, count in kinds.items()}
        odd: dict[str, FrameKind] = {}
        for number, (frame, mapping) in enumerate(zip(table.frames, mappings, strict=True), 1):
            of_mapping = code.get(mapping, "native")
            name, path = frame.function, frame.mapping
            if frame.kind != implied_kind(name, path, frame.address, of_mapping):
                odd[str(number)] = frame.kind
        told: dict[str, FrameKind] = {str(m): k for m, k in code.items() if k != "native"}
        parts = {"mapping_kinds": told, "frame_kinds": odd}
        return {name: part for name, part in parts.items() if part}
