# SPDX-License-Identifier: Apache-2.0
"""What a runtime tells about single things: frames, stacks, processes, events, libraries.

Plain frozen dataclasses without numpy, shared by every layer. Accounts are not
here: they travel as column batches (see :mod:`igsdk.ledger`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from igsdk._function_names import readable
from igsdk._units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

FrameKind = Literal["native", "python", "interpreter", "marker"]
EventType = Literal["alloc", "free", "failure", "implicit-free"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stack.

    ``address`` is the address inside ``mapping`` (the file), so that the same code
    has the same frame in every process; 0 where there is none. ``line`` is 0 where
    it is unknown. A ``marker`` is a reason in square brackets, not code.
    """

    function: str
    file: str | None = None
    line: int = 0
    address: int = 0
    mapping: str | None = None
    build_id: str | None = None
    kind: FrameKind = "native"

    @property
    def name(self) -> str:
        """The function, or the bare address where no symbol is known."""
        return self.function or hex(self.address)

    @property
    def shown_name(self) -> str:
        """The name for people: C++ and Rust without parameters and long template arguments."""
        return readable(self.name) if self.kind in ("native", "interpreter") else self.name

    @property
    def place(self) -> str:
        """``file:line``, the mapped file, or nothing, as much as is known."""
        if self.file:
            return f"{self.file}:{self.line}" if self.line else self.file
        return self.mapping or ""


def marker(reason: str) -> Frame:
    """The frame that stands where no code is known: ``[reason]``."""
    return Frame(f"[{reason}]", kind="marker")


@dataclass(frozen=True, slots=True)
class Stack:
    """Frames, leaf first, under an id that is a hash of their content.

    ``how`` says how the stack was taken, ``missing`` what it lacks (or None).
    """

    id: int
    frames: tuple[Frame, ...]
    how: str = "unwind tables"
    missing: str | None = None

    @classmethod
    def of(
        cls, frames: Iterable[Frame], how: str = "unwind tables", missing: str | None = None
    ) -> Stack:
        """Make a stack and work out its id from its frames."""
        kept = tuple(frames)
        return cls(stack_id(kept), kept, how, missing)


def stack_id(frames: Iterable[Frame]) -> int:
    """The 64-bit id of a stack's content: never 0, the same in every process and on every node."""
    digest = hashlib.blake2b(b"".join(map(_frame_digest, frames)), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


@lru_cache(maxsize=1 << 16)
def _frame_digest(frame: Frame) -> bytes:
    """16 bytes for the content of a frame: most stacks are made of frames seen before."""
    fields = (
        frame.function,
        frame.file or "",
        str(frame.line),
        str(frame.address),
        frame.mapping or "",
        frame.build_id or "",
        frame.kind,
    )
    content = "\0".join(fields).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One process instance: exec makes a new one, a reused pid too.

    Attributes:
        instance: hash of tgid, start time of the leader and exec id.
        pid, ns_pid: in the initial PID namespace; as the container sees it.
        start_ns: boot clock. ``ended_ns`` likewise, None while it lives.
        cmdline: arguments joined by blanks, None where it could not be read.
        peak: highest bytes in use, memory of devices only.
        unknown_frees: successful frees of addresses that we never saw allocated.
        before_us: it used CUDA before the probes were there.
        late_ns: how long its library was mapped before the probes were on it.
        nvml_bytes: what NVML says of this process, None where nobody can say.
        pod_uid: the UID of the pod that it runs in, as far as its control group's name says.
    """

    instance: int
    pid: int
    ns_pid: int = 0
    start_ns: int = 0
    exec_id: int = 0
    comm: str = ""
    cmdline: str | None = None
    uid: int = 0
    gid: int = 0
    mntns_id: int = 0
    cgroup_id: int = 0
    container: str | None = None
    node: str | None = None
    peak: int = 0
    unknown_frees: int = 0
    ended_ns: int | None = None
    before_us: bool = False
    late_ns: int = 0
    namespace: str | None = None
    pod: str | None = None
    nvml_bytes: int | None = None
    pod_uid: str | None = None

    @property
    def name(self) -> str:
        """A short name: the program, and the script or module where it is an interpreter."""
        return short_name(self.cmdline, self.comm)


def short_name(cmdline: str | None, comm: str) -> str:
    """``python train.py`` from ``/usr/bin/python3 -u /srv/train.py --lr 1``; else the program."""
    words = (cmdline or "").replace("\0", " ").split()
    if not words:
        return comm or "?"
    program = words[0].rsplit("/", 1)[-1]
    if not program.startswith(("python", "pypy")):
        return program or comm
    return " ".join([program, *_script(words[1:])])


def _script(words: list[str]) -> list[str]:
    """What a Python interpreter was asked to run: ``-m module``, ``-c`` or the script's name."""
    for number, word in enumerate(words):
        if word == "-m" and number + 1 < len(words):
            return ["-m", words[number + 1]]
        if word == "-c":
            return ["-c"]
        if not word.startswith("-") and words[number - 1 : number] not in (["-W"], ["-X"]):
            return [word.rsplit("/", 1)[-1]]
    return []


@dataclass(frozen=True, slots=True)
class Event:
    """One call that moved memory or failed to.

    Attributes:
        time_ns: boot clock, at the call's return; ordered within one ``boot`` only.
        device: the process's ordinal, -1 unknown.
        bytes: what the call moved; for a failure what it asked for.
        result: the CUresult, ``result_name`` its name.
        in_use: bytes of the process at that moment, memory of devices only.
        stack: who called; for a free, who allocated. None where none was taken.
    """

    type: EventType
    time_ns: int
    process: ProcessInfo
    tid: int
    api: str
    kind: str
    device: int
    address: int
    bytes: int
    result: int
    result_name: str
    latency_ns: int
    in_use: int
    stack: Stack | None = None
    boot: int = 0

    @property
    def caller(self) -> Frame | None:
        """The frame that asked, None without a stack.

        It is the innermost Python frame; without one the innermost that is neither the
        driver's nor the interpreter's.
        """
        frames = self.stack.frames if self.stack else ()
        python = (frame for frame in frames if frame.kind == "python")
        own = (
            frame
            for frame in frames
            if frame.kind != "interpreter" and "/libcuda.so" not in (frame.mapping or "")
        )
        return next(python, None) or next(own, None)

    def __str__(self) -> str:
        """One line: what happened, where, and what the process then had in use."""
        words = [self.type, format_bytes(self.bytes), self.kind, self.api]
        if self.type == "failure":
            words.append(self.result_name)
        elif self.address:
            words.append(hex(self.address))
        words += [
            f"pid {self.process.pid}",
            self.process.name,
            f"in use {format_bytes(self.in_use)}",
            f"took {format_duration(self.latency_ns)}",
        ]
        caller = self.caller
        if caller:
            freed = self.type in ("free", "implicit-free")
            place = f" ({caller.place})" if caller.kind == "python" and caller.place else ""
            words.append(f"{'allocated at' if freed else 'at'} {caller.shown_name}{place}")
        return "  ".join(words)


def event_record(event: Event) -> dict[str, Any]:
    """The event as a JSON object; the keys are stable, bytes and times are exact integers."""
    return {
        "type": event.type,
        "boot": event.boot,
        "time_ns": event.time_ns,
        "process": event.process.name,
        "pid": event.process.pid,
        "ns_pid": event.process.ns_pid,
        "start_ns": event.process.start_ns,
        "node": event.process.node,
        "namespace": event.process.namespace,
        "pod": event.process.pod,
        "container": event.process.container,
        "tid": event.tid,
        "api": event.api,
        "kind": event.kind,
        "device": event.device,
        "address": event.address,
        "bytes": event.bytes,
        "result": event.result,
        "result_name": event.result_name,
        "latency_ns": event.latency_ns,
        "in_use": event.in_use,
        "stack_id": event.stack.id if event.stack else 0,
        "stack": [frame_record(frame) for frame in event.stack.frames] if event.stack else [],
    }


def frame_record(frame: Frame) -> dict[str, Any]:
    """A frame as a JSON object."""
    return {
        "function": frame.function,
        "file": frame.file,
        "line": frame.line,
        "address": frame.address,
        "mapping": frame.mapping,
        "build_id": frame.build_id,
        "kind": frame.kind,
    }


def frame_of(record: dict[str, Any]) -> Frame:
    """The frame of a JSON object; what a later version added is passed over."""
    names = {item.name for item in fields(Frame)}
    return Frame(**{"function": "", **{k: v for k, v in record.items() if k in names}})


@dataclass(frozen=True, slots=True)
class Site:
    """Where one symbol's probe sits: on the jump behind the entry's compare, or on the entry."""

    symbol: str
    offset: int
    on: Literal["jump", "entry"] = "entry"


@dataclass(frozen=True, slots=True)
class AttachedLibrary:
    """One libcuda file (one real inode) and the probes on it.

    ``missing`` are the symbols that this driver lacks; ``late_ns`` says how long the
    file was already mapped when the probes came (0: before its first call).
    """

    path: str
    sites: tuple[Site, ...] = field(default=())
    missing: tuple[str, ...] = field(default=())
    build_id: str | None = None
    inode: str | None = None
    late_ns: int = 0
    how: str = "uprobe-multi"
    simulated: bool = False
