# SPDX-License-Identifier: Apache-2.0
"""Where each CPython keeps what: the numbers of ``struct igsdk_python``.

Offsets in bytes, measured from the headers of each version on x86-64 and cross-compiled
for arm64 (3.8.18, 3.9.18, 3.10.13, 3.11.7, 3.12.1, 3.13.18, 3.14.10, 3.15.2). Structures
do not change within a minor version. From 3.13 on an interpreter says most of them
itself, in the table that begins ``_PyRuntime``; what it says is believed before ours.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from ... import _abi

NONE = 0xFFFF  # IGSDK_NO_OFFSET
OLDEST, NEWEST = 8, 15  # minor versions of Python 3 that were tested
SELF_DESCRIBING = 13  # the first that is
COOKIE = b"xdebugpy"
#: Bytes at the start of ``_PyRuntime`` that the self-description may take.
DESCRIPTION_BYTES = 1024

_OBJECTS, _CFRAMES, _FRAMES = 1, 2, 3  # enum igsdk_python_flavour
# fmt: off
_TABLE: dict[str, tuple[int, ...]] = {
    # Python 3.                 8     9    10    11    12    13    14    15
    "flavour":               (1,    1,    1,    2,    2,    3,    3,    3),
    "lasti_scale":           (1,    1,    2,    1,    1,    1,    1,    1),
    "interpreters_head":     (32,   32,   32,   40,   40,   632,  808,  936),
    "tss_key":               (1396, 588,  588,  596,  1548, 2164, 2340, NONE),
    "interp_next":           (0,    0,    0,    0,    0,    7264, 7272, 7264),
    "interp_threads":        (8,    8,    8,    16,   72,   7344, 7344, 7336),
    "thread_next":           (8,    8,    8,    8,    8,    8,    8,    8),
    "thread_id":             (176,  176,  176,  152,  136,  152,  152,  176),
    "thread_native_id":      (NONE, NONE, NONE, 160,  144,  160,  160,  184),
    "thread_frame":          (24,   24,   24,   56,   56,   72,   72,   72),
    "cframe_frame":          (NONE, NONE, NONE, 8,    0,    NONE, NONE, NONE),
    "frame_size":            (112,  112,  112,  80,   80,   80,   80,   80),
    "frame_previous":        (24,   24,   24,   48,   8,    8,    8,    8),
    "frame_code":            (32,   32,   32,   32,   0,    0,    0,    0),
    "frame_instruction":     (104,  104,  96,   56,   56,   56,   56,   56),
    "frame_owner":           (NONE, NONE, NONE, 69,   70,   70,   74,   74),
    "frame_is_entry":        (NONE, NONE, NONE, 68,   NONE, NONE, NONE, NONE),
    "frame_locals":          (360,  360,  352,  NONE, NONE, NONE, NONE, NONE),
    "owner_shim":            (NONE, NONE, NONE, NONE, 3,    3,    3,    3),
    "code_size":             (128,  128,  128,  176,  184,  192,  200,  200),
    "code_argcount":         (16,   16,   16,   56,   52,   52,   52,   52),
    "code_first_line":       (40,   40,   40,   72,   68,   68,   68,   68),
    "code_varnames":         (72,   72,   72,   NONE, NONE, NONE, NONE, NONE),
    "code_file":             (104,  104,  104,  112,  112,  112,  112,  112),
    "code_name":             (112,  112,  112,  128,  128,  128,  128,  128),
    "code_table":            (120,  120,  120,  136,  136,  136,  136,  136),
    "code_start":            (NONE, NONE, NONE, 184,  192,  200,  208,  208),
    "code_first_traceable":  (NONE, NONE, NONE, 168,  176,  184,  192,  192),
    "object_type":           (8,    8,    8,    8,    8,    8,    8,    8),
    "tuple_items":           (24,   24,   24,   24,   24,   24,   32,   32),
    "bytes_size":            (16,   16,   16,   16,   16,   16,   16,   16),
    "bytes_data":            (32,   32,   32,   32,   32,   32,   32,   32),
    "type_name":             (24,   24,   24,   24,   24,   24,   24,   24),
    "type_flags":            (168,  168,  168,  168,  168,  168,  168,  168),
    "string_length":         (16,   16,   16,   16,   16,   16,   16,   16),
    "string_state":          (32,   32,   32,   32,   32,   32,   32,   32),
    "string_ascii_data":     (48,   48,   48,   48,   40,   40,   40,   40),
    "string_data":           (72,   72,   72,   72,   56,   56,   56,   56),
    "string_kind_shift":     (2,    2,    2,    2,    2,    2,    2,    2),
    "string_ascii_bit":      (6,    6,    6,    6,    6,    6,    6,    6),
    "code_tag":              (0,    0,    0,    0,    0,    0,    3,    3),
    "code_version":          (NONE, NONE, NONE, NONE, 92,   92,   92,   92),
}

# Where the self-description says it: position of a 64-bit number in the runtime.
_DESCRIBED: dict[str, tuple[int, ...]] = {
    # Python 3.              13   14   15
    "interpreters_head":   (40,  40,  40),
    "interp_next":         (64,  64,  64),
    "interp_threads":      (72,  72,  72),
    "thread_next":         (168, 192, 192),
    "thread_frame":        (184, 208, 208),
    "thread_id":           (192, 216, 240),
    "thread_native_id":    (200, 224, 248),
    "frame_previous":      (232, 256, 320),
    "frame_code":          (240, 264, 328),
    "frame_instruction":   (248, 272, 336),
    "frame_owner":         (264, 288, 352),
    "code_file":           (280, 320, 384),
    "code_name":           (296, 336, 400),
    "code_table":          (304, 344, 408),
    "code_first_line":     (312, 352, 416),
    "code_argcount":       (320, 360, 424),
    "code_start":          (344, 384, 448),
    "object_type":         (360, 408, 472),
    "type_name":           (376, 424, 488),
    "type_flags":          (392, 440, 504),
    "tuple_items":         (408, 456, 552),
    "bytes_size":          (520, 600, 696),
    "bytes_data":          (528, 608, 704),
    "string_state":        (544, 624, 720),
    "string_length":       (552, 632, 728),
    "string_ascii_data":   (560, 640, 736),
    "string_data":         (NONE, NONE, 744),
}
# fmt: on
# Object headers, which extension modules are compiled against: another number here is
# none of them, but something else that a later version keeps at that position.
_NEVER_MOVED = ("object_type", "bytes_size", "bytes_data", "string_length", "string_state")
_VERSION_AT, _FREE_THREADED_AT = 8, 16
# As much of a frame and of a code object as the kernel part has room for.
_MOST_FRAME, _MOST_CODE = 128, 256
# The mutex before them is larger there than on x86-64.
_ARM64_SHIFT = {"tss_key": 16}
# glibc, x86-64: from the thread pointer to the first slot, in struct pthread.
_TSS_SLOTS = {("x86_64", "glibc"): 784}


@dataclass(frozen=True)
class Layout:
    """Numbers by member of ``struct igsdk_python``, all but those of one process.

    `version` is as the ABI has it: 0x030d = 3.13. `note` is a sentence for the reader
    of results where the numbers are not those of a tested version.
    """

    version: int
    numbers: dict[str, int]
    note: str = ""

    def pack(self, runtime: int, libc: str, machine: str) -> bytes:
        """The structure for a process whose ``_PyRuntime`` is at an address.

        Args:
            libc: "glibc", "musl", or "" where nobody knows.
            machine: as ``platform.machine()`` says it.
        """
        import numpy as np

        row = np.zeros(1, _abi.dtype("python"))
        row["runtime"], row["version"] = runtime, self.version
        row["tss_slots"] = _TSS_SLOTS.get((machine, libc), NONE)
        for name, number in self.numbers.items():
            row[name] = number
        return row.tobytes()


class Unsupported(Exception):
    """Frames of this Python can't be read; the text says why, without a full stop."""


def version_name(version: int) -> str:
    """ "3.13" for 0x030d."""
    return f"{version >> 8}.{version & 0xFF}"


def layout(version: int, machine: str, description: bytes = b"") -> Layout:
    """The numbers of a Python version.

    Args:
        version: 0x030d = 3.13.
        machine: "x86_64" or "aarch64".
        description: the first bytes of ``_PyRuntime`` as they stand in the interpreter's
            file; needed from 3.13 on.

    Raises:
        Unsupported: and why.
    """
    minor = version & 0xFF
    if version >> 8 != 3 or minor < OLDEST:
        raise Unsupported(f"Python {version_name(version)}: older than 3.{OLDEST}")
    known = _from_table(min(minor, NEWEST), machine)
    if minor >= SELF_DESCRIBING:
        return _described(Layout(version, known), description)
    if known["thread_id"] == NONE and known["thread_native_id"] == NONE:
        raise Unsupported(f"Python {version_name(version)}: threads can't be told apart on arm64")
    return Layout(version, known)


def _from_table(minor: int, machine: str) -> dict[str, int]:
    numbers = {name: row[minor - OLDEST] for name, row in _TABLE.items()}
    if machine == "aarch64":
        if minor < 12:
            numbers["tss_key"] += _ARM64_SHIFT["tss_key"]
        # The distance to the thread pointer is the C library's secret: ask for the id.
        numbers["thread_id"] = NONE
    return numbers


def _described(known: Layout, description: bytes) -> Layout:
    name, minor = version_name(known.version), known.version & 0xFF
    if not description.startswith(COOKIE):
        raise Unsupported(f"Python {name}: it does not describe itself")
    if _word(description, _VERSION_AT) >> 16 != known.version:
        raise Unsupported(f"Python {name}: it describes another version")
    if _word(description, _FREE_THREADED_AT) == 1:
        raise Unsupported(f"Python {name}t: free-threaded builds are not supported")
    said = _read_described(min(minor, NEWEST), description)
    if known.numbers["thread_id"] == NONE:
        said["thread_id"] = NONE
    numbers = known.numbers | said
    numbers["code_first_traceable"] = said["code_start"] - 16
    # What is read in one piece ends behind its last member.
    numbers["frame_size"] = _end_of(numbers, "frame")
    numbers["code_size"] = _end_of(numbers, "code")
    _check(name, numbers, known.numbers)
    if minor > NEWEST:
        numbers["tss_key"] = NONE
        note = f"Python {name} is newer than what igsdk was tested with: check its stacks."
        return replace(known, numbers=numbers, note=note)
    differ = sorted(key for key in said if numbers[key] != known.numbers[key])
    note = (
        f"Python {name} here describes other structures than usual ({', '.join(differ)}): "
        "check its stacks."
    )
    return replace(known, numbers=numbers, note=note if differ else "")


def _read_described(minor: int, description: bytes) -> dict[str, int]:
    column = minor - SELF_DESCRIBING
    return {
        name: _word(description, row[column])
        for name, row in _DESCRIBED.items()
        if row[column] != NONE
    }


def _word(description: bytes, at: int) -> int:
    if at + 8 > len(description):
        return NONE
    return int(struct.unpack_from("<Q", description, at)[0])


_WORDS = {"previous", "code", "instruction", "file", "name", "table"}


def _end_of(numbers: dict[str, int], what: str) -> int:
    """Behind the last member of a frame or a code object that is read, as 8-byte words."""
    behind = ("code_start", "code_size", "frame_size", "code_tag", "frame_locals")
    ends = [
        offset + (8 if name.partition("_")[2] in _WORDS else 4)
        for name, offset in numbers.items()
        if name.startswith(f"{what}_") and name not in behind and offset != NONE
    ]
    return -(-max(ends, default=0) // 8) * 8


def _check(name: str, numbers: dict[str, int], known: dict[str, int]) -> None:
    """A description that can't be right is of no use, however its version calls itself."""
    fits = (
        all(0 <= number <= NONE for number in numbers.values())
        and all(numbers[key] == known[key] for key in _NEVER_MOVED)
        and all((numbers[key] == NONE) <= (known[key] == NONE) for key in known)
        and numbers["frame_size"] <= _MOST_FRAME
        and numbers["code_size"] <= _MOST_CODE
        and all(numbers[key] % 4 == 0 for key in _DESCRIBED if key != "frame_owner")
    )
    if not fits:
        raise Unsupported(f"Python {name}: it describes its structures in an unknown way")
