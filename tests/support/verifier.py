# SPDX-License-Identifier: Apache-2.0
"""Has the kernel verify a BPF object with the switches of somebody who would load it.

Over the C library libbpf, not over our own loader: that one knows only what the local
runtime needs, and Inspektor Gadget prepares an object in another way.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.switches import Switches, variables

#: map types whose size the verifier does not look at: hashes, arrays, stacks
TABLES = frozenset({1, 2, 7, 9, 23})
PERF_EVENT_ARRAY = 4
PERF_EVENT = 7  # a program's type; libbpf knows the section only without a name behind it
#: entries of a map that has none in the object, as its runtime would set them
FEW = 16

_pointer = ctypes.c_void_p
_text = ctypes.c_char_p
_word = ctypes.c_uint32
#: function -> result, arguments
_CALLS: dict[str, tuple[Any, list[Any]]] = {
    "bpf_object__open_mem": (_pointer, [_text, ctypes.c_size_t, _pointer]),
    "bpf_object__load": (ctypes.c_int, [_pointer]),
    "bpf_object__close": (None, [_pointer]),
    "bpf_object__next_map": (_pointer, [_pointer, _pointer]),
    "bpf_object__next_program": (_pointer, [_pointer, _pointer]),
    "bpf_map__name": (_text, [_pointer]),
    "bpf_map__type": (ctypes.c_int, [_pointer]),
    "bpf_map__set_type": (ctypes.c_int, [_pointer, ctypes.c_int]),
    "bpf_map__max_entries": (_word, [_pointer]),
    "bpf_map__set_max_entries": (ctypes.c_int, [_pointer, _word]),
    "bpf_map__set_key_size": (ctypes.c_int, [_pointer, _word]),
    "bpf_map__set_value_size": (ctypes.c_int, [_pointer, _word]),
    "bpf_map__initial_value": (_pointer, [_pointer, ctypes.POINTER(ctypes.c_size_t)]),
    "bpf_program__name": (_text, [_pointer]),
    "bpf_program__section_name": (_text, [_pointer]),
    "bpf_program__set_type": (ctypes.c_int, [_pointer, ctypes.c_int]),
    "bpf_program__set_autoload": (ctypes.c_int, [_pointer, ctypes.c_bool]),
    "bpf_program__set_expected_attach_type": (ctypes.c_int, [_pointer, ctypes.c_int]),
}


class Refused(Exception):
    """The kernel, or libbpf, does not take the object; the text is all that they said."""


@dataclass(frozen=True)
class Loading:
    """How an object is prepared before it is loaded.

    Attributes:
        switches: variables of .rodata; texts are filled up with zeros.
        programs: names of those to load, None = all.
        attach_types: of programs, by name, as the kernel numbers them.
        perf_buffers: rings that become perf buffers, as on kernels without rings.
    """

    switches: Switches = field(default_factory=dict)
    programs: frozenset[str] | None = None
    attach_types: Mapping[str, int] = field(default_factory=dict)
    perf_buffers: frozenset[str] = frozenset()


def library() -> ctypes.CDLL:
    """libbpf; that of 1.1, which the extension is built with, or later."""
    found = ctypes.CDLL("libbpf.so.1", use_errno=True)
    for name, (result, arguments) in _CALLS.items():
        call = getattr(found, name)
        call.restype, call.argtypes = result, arguments
    return found


class Object:
    """An object file, to be loaded as often as wanted."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._bpf = library()
        self._entries = variables(data)

    @property
    def switches(self) -> set[str]:
        """Names of all variables that are fixed before loading."""
        return set(self._entries)

    def load(self, how: Loading) -> float:
        """Loads and drops it again.

        Returns:
            seconds that it took.

        Raises:
            Refused: with the verifier's log.
        """
        with listening() as said:
            opened = self._bpf.bpf_object__open_mem(self._data, len(self._data), None)
            if not opened:
                raise Refused(said())
            try:
                self._prepare(opened, how)
                start = time.monotonic()
                error = self._bpf.bpf_object__load(opened)
                took = time.monotonic() - start
                if error:
                    raise Refused(f"{os.strerror(-error)}\n{said()}")
                return took
            finally:
                self._bpf.bpf_object__close(opened)

    def _each(self, opened: int, kind: str) -> Iterator[tuple[int, str]]:
        following = getattr(self._bpf, f"bpf_object__next_{kind}")
        name_of = getattr(self._bpf, f"bpf_{kind}__name")
        one = following(opened, None)
        while one:
            yield one, name_of(one).decode()
            one = following(opened, one)

    def _prepare(self, opened: int, how: Loading) -> None:
        known = {name for _, name in self._each(opened, "program")}
        unknown = frozenset(how.programs or ()) - known
        assert not unknown, f"the object has no {unknown}"
        for one, name in self._each(opened, "map"):
            self._prepare_map(one, name, how)
        for one, name in self._each(opened, "program"):
            self._prepare_program(one, name, how)

    def _prepare_map(self, one: int, name: str, how: Loading) -> None:
        bpf = self._bpf
        if name.endswith(".rodata"):
            self._set(one, how.switches)
        if bpf.bpf_map__type(one) in TABLES and bpf.bpf_map__max_entries(one) != 1:
            bpf.bpf_map__set_max_entries(one, FEW)
        if name in how.perf_buffers:
            bpf.bpf_map__set_type(one, PERF_EVENT_ARRAY)
            bpf.bpf_map__set_key_size(one, 4)
            bpf.bpf_map__set_value_size(one, 4)
            bpf.bpf_map__set_max_entries(one, 0)

    def _prepare_program(self, one: int, name: str, how: Loading) -> None:
        bpf = self._bpf
        if bpf.bpf_program__section_name(one).startswith(b"perf_event/"):
            bpf.bpf_program__set_type(one, PERF_EVENT)
        if how.programs is not None:
            bpf.bpf_program__set_autoload(one, name in how.programs)
        if name in how.attach_types:
            bpf.bpf_program__set_expected_attach_type(one, how.attach_types[name])

    def _set(self, one: int, switches: Switches) -> None:
        length = ctypes.c_size_t()
        start = self._bpf.bpf_map__initial_value(one, ctypes.byref(length))
        for name, value in switches.items():
            at, size = self._entries[name]
            made = value.encode() if isinstance(value, str) else value.to_bytes(size, "little")
            assert at + size <= length.value, f"{name} lies outside .rodata"
            ctypes.memmove(start + at, made.ljust(size, b"\0"), size)


@contextmanager
def listening() -> Iterator[Callable[[], str]]:
    """What is written to standard error meanwhile, which is where libbpf writes to."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: os.pread(file.fileno(), 64 << 20, 0).decode(errors="replace")
        finally:
            os.dup2(kept, 2)
            os.close(kept)
