# SPDX-License-Identifier: Apache-2.0
"""Records tests/pythons/shapes.py on an interpreter, and compares stacks with its own words."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from igsdk._events import Event, Frame, Stack

from . import sid
from .recording import recording
from .simdriver import Driver

PROGRAMS = Path(__file__).parents[1] / "pythons"
_NUMBERS = 1_000_000  # as many numbers has each variant


@dataclass(frozen=True)
class Truth:
    """One Python frame as the program saw it.

    ``of``: the class of the first argument, before 3.11; "?" where it may stay unknown.
    """

    name: str
    qualified: str | None
    of: str | None
    file: str
    line: int
    first_line: int

    def is_called(self, function: str) -> bool:
        """Whether this is a right name for it."""
        if self.qualified is not None:
            return function == self.qualified
        if self.of == "?":
            return function.rpartition(".")[2] == self.name
        return function == (f"{self.of}.{self.name}" if self.of else self.name)

    def differences(self, frame: Frame) -> Iterator[str]:
        """What our frame says otherwise."""
        if not self.is_called(frame.function):
            wanted = self.qualified or f"{self.of}/{self.name}"
            yield f"function {frame.function[:80]!r}, is {wanted[:80]!r}"
        if frame.file != self.file:
            yield f"file {frame.file!r:.80}, is {self.file!r:.80}"
        if frame.line != (self.line or 0):
            yield f"line {frame.line}, is {self.line}"


@dataclass(frozen=True)
class Sample:
    """One allocation of the program; its size is `number`."""

    number: int
    shape: str
    pid: int
    frames: tuple[Truth, ...]

    def difference(self, stack: Stack | None) -> str:
        """What is wrong with our stack for it, "" if nothing is."""
        if stack is None:
            return f"{self}: no such allocation, or no stack"
        ours = python_frames(stack)
        marks = [frame.function for frame in stack.frames if frame.kind == "marker"]
        wrong = [
            f"frame {depth}: {what}"
            for depth, (truth, frame) in enumerate(zip(self.frames, ours, strict=False))
            for what in truth.differences(frame)
        ]
        if len(ours) != len(self.frames):
            wrong.insert(0, f"{len(ours)} frames, are {len(self.frames)}")
        if not wrong:
            return ""
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        return f"{self}: {'; '.join(wrong[:3])}{more} {marks or ''}"

    def __str__(self) -> str:
        return f"{self.shape} #{self.number} (pid {self.pid})"


def says_why(sample: Sample, stack: Stack | None) -> bool:
    """Whether this is what we can't do, and the stack says so itself.

    Up to 3.12 a thread that did not make a subinterpreter and runs it is not listed there.
    """
    if stack is None or sample.shape != "subinterpreters":
        return False
    return any(
        frame.kind == "marker" and "subinterpreter" in frame.function for frame in stack.frames
    )


def python_frames(stack: Stack) -> list[Frame]:
    """Those of Python, leaf first."""
    return [frame for frame in stack.frames if frame.kind == "python"]


@dataclass(frozen=True)
class Told:
    """What one run of the program wrote."""

    samples: tuple[Sample, ...]
    skipped: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> Told:
        """From its file."""
        samples, skipped = [], {}
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if "skipped" in record:
                skipped[record["shape"]] = record["skipped"]
            else:
                frames = tuple(Truth(*frame) for frame in record.pop("frames"))
                samples.append(Sample(**record, frames=frames))
        assert len({sample.number for sample in samples}) == len(samples) > 0
        return cls(tuple(samples), skipped)


@dataclass(frozen=True)
class Variant:
    """One way to start an interpreter."""

    name: str
    flags: tuple[str, ...] = ()
    library: Path | None = None  # a folder that is searched first

    def command(
        self, python: str, driver: str | Path, script: str | Path, said: str | Path, first: int
    ) -> list[str]:
        """Its words, for a shell."""
        folders = [str(self.library)] if self.library else []
        path = ":".join([*folders, str(driver)])
        return [
            *("env", f"LD_LIBRARY_PATH={path}", "PYTHONDONTWRITEBYTECODE=1"),
            *shlex.split(python),
            *self.flags,
            *(str(script), str(said), str(first)),
        ]


@dataclass
class Recorded:
    """What one recording of several variants gave: stacks by number."""

    told: dict[str, Told] = field(default_factory=dict)
    stacks: dict[int, Stack | None] = field(default_factory=dict)
    losses: dict[str, int] = field(default_factory=dict)
    messages: str = ""

    def wrong(self, variant: str) -> tuple[list[str], int]:
        """One sentence for each sample that we have otherwise; how many say so themselves."""
        found, said = [], 0
        for sample in self.told[variant].samples:
            stack = self.stacks.get(sample.number)
            difference = sample.difference(stack)
            if difference and says_why(sample, stack):
                said += 1
            elif difference:
                found.append(difference)
        return found, said

    def of_shape(self, variant: str, shape: str) -> list[tuple[Sample, Stack]]:
        """The samples of one shape and our stacks; those without one are left out."""
        pairs = ((s, self.stacks.get(s.number)) for s in self.told[variant].samples)
        return [(sample, stack) for sample, stack in pairs if stack and sample.shape == shape]


@dataclass(frozen=True)
class Place:
    """Where programs run: paths as they see them, and a wrapper for their command."""

    driver: Path
    work: Path
    wrapper: tuple[str, ...] = ()


@contextmanager
def place_of(chroot: bool, driver: Driver, work: Path) -> Iterator[Place]:
    """This machine, or the root of Debian sid; `work` then is a folder in it."""
    with sid.mounted(work.parent, driver, work) if chroot else nullcontext() as root:
        if root is None:
            yield Place(driver.folder, work)
        else:
            yield Place(Path("/", sid.DRIVER), Path("/", sid.WORK), ("chroot", str(root)))


def record(
    python: str,
    variants: Sequence[Variant],
    driver: Driver,
    folder: Path,
    *,
    chroot: bool = False,
    shapes: Iterable[str] = (),
) -> Recorded:
    """Runs all variants at the same time in one recording, to its end."""
    work = folder / "work"
    shutil.copytree(PROGRAMS, work / "programs", ignore=shutil.ignore_patterns("__pycache__"))
    with place_of(chroot, driver, work) as place:
        lines = []
        for number, variant in enumerate(variants):
            command = variant.command(
                shlex.join([*place.wrapper, python]),
                place.driver,
                place.work / "programs" / "shapes.py",
                place.work / variant.name,
                number * _NUMBERS + 5000,
            )
            status = work / f"{variant.name}.status"
            lines.append(f"({shlex.join([*command, *shapes])}; echo $? >{status}) &")
        script = work / "all.sh"
        script.write_text("\n".join([*lines, "wait"]))
        recorded = _record(("sh", "-c", f". {script} >{work}/messages 2>&1"))
    recorded.messages = (work / "messages").read_text(errors="replace")
    for variant in variants:
        ended = (work / f"{variant.name}.status").read_text().strip()
        assert ended == "0", f"{variant.name}: {recorded.messages[-3000:]}"
        recorded.told[variant.name] = Told.read(work / variant.name)
    return recorded


def _record(words: tuple[str, ...]) -> Recorded:
    stacks: dict[int, Stack | None] = {}
    with recording(argv=words, events="all") as run:
        assert run.command is not None
        until = time.monotonic() + 120
        while run.command.poll() is None:
            assert time.monotonic() < until, "the programs do not end"
            stacks.update(samples_of(run.events(0.1)))
        run.stop()
        stacks.update(samples_of(run.events(0)))
        return Recorded(stacks=stacks, losses=run.losses())


def samples_of(events: Iterable[Event]) -> dict[int, Stack | None]:
    """Stacks of the program's allocations by number."""
    return {
        event.bytes: event.stack
        for event in events
        if event.type == "alloc" and event.api == "cuMemAlloc_v2"
    }


def compiled(folder: Path) -> Path:
    """The library that some programs call."""
    library = folder / "allocate.so"
    flags = ("-shared", "-fPIC", "-O2", "-g", "-Wall", "-Werror")
    subprocess.run(["cc", *flags, "-o", library, PROGRAMS / "allocate.c"], check=True)
    return library


def stripped(library: Path, folder: Path) -> Path:
    """A folder with a copy of a shared library that has lost all names that can be lost."""
    folder.mkdir()
    copy = folder / library.name
    shutil.copy(library, copy)
    subprocess.run(["strip", "--strip-all", copy], check=True)
    return folder
