# SPDX-License-Identifier: Apache-2.0
"""The stub, its clients, tracers on them, and how figures are taken and printed."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import IO, TypeVar

from igsdk._native import Tracer
from igsdk.runtime.libraries import read_library
from igsdk.runtime.program import load_tracer
from igsdk.runtime.session import Options, Selection

HERE = Path(__file__).resolve().parent
_COMPILE = ("cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer")


def say(text: str = "") -> None:
    print(text, flush=True)


def heading(title: str) -> None:
    say(f"\n== {title}")


def describe_machine() -> str:
    """One line: what these figures were taken on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return (
        f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, {time.strftime('%F')}, "
        f"load {os.getloadavg()[0]:.1f} before we began"
    )


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder with the stub and its client, compiled."""
    folder = Path(mkdtemp(prefix="igsdk-bench-"))
    try:
        stub, client = folder / "stub.so", folder / "client"
        compile_source(stub, "stub.c", "-fPIC", "-shared", "-fvisibility=hidden")
        compile_source(client, "client.c", "-ldl")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def compile_source(target: Path, source: str, *flags: str) -> None:
    """Compiles one of the sources beside this file."""
    subprocess.run([*_COMPILE, "-o", target, HERE / source, *flags], check=True)


_Client = TypeVar("_Client", bound="Client")


class Client:
    """A process on a copy of the stub of its own, so that probes on it are nobody else's."""

    def __init__(self, folder: Path, name: str) -> None:
        # not called libcuda: other recorders on this machine must leave it alone
        self.library = folder / name / "stub.so"
        self.library.parent.mkdir()
        shutil.copy(folder / "stub.so", self.library)
        self._process = subprocess.Popen(
            self.command(folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    def command(self, folder: Path) -> list[Path | str]:
        """What to start."""
        return [folder / "client", self.library]

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, line: str) -> float:
        """Gives one order (see client.c) and waits for its figure."""
        return float(self.answer(line))

    def answer(self, line: str) -> str:
        """Gives one order and waits for the line that answers it."""
        stdin: IO[str] | None = self._process.stdin
        assert stdin is not None
        stdin.write(f"{line}\n")
        stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line: str = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the client ended with {self._process.wait()}")
        return line

    def __enter__(self: _Client) -> _Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()


def attach(tracer: Tracer, library: Path) -> int:
    """Puts all probes on a library; returns on how many functions."""
    fd = os.open(library, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sites = read_library(fd, str(library)).sites
        tracer.attach(f"/proc/self/fd/{fd}", [(site.call, site.offset) for site in sites])
    finally:
        os.close(fd)
    return len(sites)


@contextmanager
def tracing(options: Options) -> Iterator[Tracer]:
    """A loaded program, closed at the end with all its probes."""
    tracer = load_tracer(options, Selection())
    try:
        yield tracer
    finally:
        tracer.close()


FLOOR = Options(events="none", stacks=False, settings={"floor": 1})
TOTALS = Options(events="none", stacks=False)


@dataclass
class Variant:
    """One way of being traced: a client of its own under a program of its own, or under none."""

    name: str
    client: Client
    tracer: Tracer | None
    figures: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.figures)

    def ratio_to(self, other: Variant) -> float:
        """The median of the ratios of figures taken right after one another."""
        pairs = zip(self.figures, other.figures, strict=True)
        return statistics.median(mine / theirs for mine, theirs in pairs)


@contextmanager
def variants(folder: Path, wanted: dict[str, Options | None]) -> Iterator[dict[str, Variant]]:
    """Clients under their programs, by name; all are there at the same time."""
    with ExitStack() as stack:
        made = {}
        for name, options in wanted.items():
            client = stack.enter_context(Client(folder, name.replace(" ", "-")))
            tracer = stack.enter_context(tracing(options)) if options else None
            if tracer:
                attach(tracer, client.library)
            made[name] = Variant(name, client, tracer)
        yield made


def interleave(group: Sequence[Variant], rounds: int, measure: Callable[[Variant], float]) -> None:
    """A B A B ...: what the machine does meanwhile, it does to all. The first round is dropped."""
    for number in range(rounds + 1):
        for variant in group:
            figure = measure(variant)
            if number:
                variant.figures.append(figure)


def show(group: Sequence[Variant], floor: Variant, unit: float, name: str) -> None:
    """A line for each variant: median, and the median of its ratios to the floor."""
    for variant in group:
        times = f"{variant.ratio_to(floor):6.2f} x floor" if variant is not floor else ""
        say(f"  {variant.name:34} {variant.median / unit:9.2f} {name}  {times}")


def complain_without_root() -> None:
    if os.geteuid():
        sys.exit("igsdk: benchmarks load BPF programs.\nigsdk: Run them as root.")


def resident_mib() -> float:
    """What this process has in memory, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / (1 << 20)


@contextmanager
def going_first() -> Iterator[None]:
    """This thread, and whom it starts meanwhile, go before all others on this machine."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
