# SPDX-License-Identifier: Apache-2.0
"""For gpu_checks.py: the driver that is asked, processes on it, their recordings, findings."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from igsdk._run import Run

ROOT = Path(__file__).resolve().parent.parent
CHILD = ROOT / "build" / "gpu_child.py"
PATIENCE = 30  # seconds for one answer of a driver, or one client
EXIT_PROGRAM = "igsdk-exit"

State = Literal["ok", "differs", "not possible here", "failed"]
Seen = tuple[str, bool]
"""What was observed, and whether it is as believed."""


class NotPossible(Exception):
    """This machine or driver can't show it; says why."""


@dataclass(frozen=True)
class Finding:
    """What a check gives. ``reason`` is there where there is nothing to compare."""

    belief: str
    observed: str
    state: State
    reason: str = ""


@dataclass(frozen=True)
class Check:
    """One belief, and the function that looks."""

    name: str
    belief: str
    look: Callable[[World], Seen]

    def find(self, world: World) -> Finding:
        """Never raises: one check that fails must not lose the others."""
        try:
            observed, agrees = self.look(world)
        except NotPossible as error:
            return Finding(self.belief, "", "not possible here", str(error))
        except ChildEnded as error:
            return Finding(self.belief, str(error), "differs")
        except Exception as error:
            return Finding(self.belief, "", "failed", f"{type(error).__name__}: {error}")
        return Finding(self.belief, observed, "ok" if agrees else "differs")


CHECKS: list[Check] = []


def check(name: str, belief: str) -> Callable[[Callable[[World], Seen]], Callable[[World], Seen]]:
    """Adds a function to the checks, in the order of the source."""

    def add(look: Callable[[World], Seen]) -> Callable[[World], Seen]:
        CHECKS.append(Check(name, belief, look))
        return look

    return add


@dataclass
class World:
    """One driver: how its programs are started, and what it said of itself."""

    simulated: bool
    environment: dict[str, str]
    folder: Path
    play: Path
    exit_program: Path
    torch_python: str | None = None
    facts: dict[str, Any] | None = None

    @property
    def library(self) -> str:
        return str(self.facts["library"]) if self.facts else ""

    def child(self) -> Child:
        return Child(self.environment)

    def ask(self, *question: str) -> Any:
        """One question to a process of its own."""
        with self.child() as child:
            return child.ask(*question)

    def not_simulated(self, why: str) -> None:
        if self.simulated:
            raise NotPossible(f"the simulated driver {why}")


class ChildEnded(Exception):
    """The process that was asked did not answer: how it ended is an observation."""


class Child:
    """A process that asks the driver on our behalf; see gpu_child.py."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, CHILD],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, *question: str) -> Any:
        """The answer to one question.

        Raises:
            NotPossible: this driver can't be asked that.
            ChildEnded: it crashed, or took too long and was killed.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ChildEnded(self._last_words(question)) from None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise ChildEnded(self._last_words(question))
        said = json.loads(line)
        if "impossible" in said:
            raise NotPossible(said["impossible"])
        return said["answer"]

    def _last_words(self, question: tuple[str, ...]) -> str:
        asked = " ".join(question)
        try:
            _, errors = self._process.communicate(timeout=1)
        except subprocess.TimeoutExpired:
            return f"no answer to {asked} in {PATIENCE} s"
        status = self._process.returncode
        how = f"ended by {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
        words = errors.decode(errors="replace").strip().splitlines()
        return f"{how} at {asked}" + (f": {words[-1]}" if words else "")

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            try:
                self._process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.communicate()


@contextmanager
def recording(world: World, **options: Any) -> Iterator[Run]:
    """A run with its probes on the driver before anybody calls it; closed at the end."""
    import igsdk

    with igsdk.connect("local:") as gpu:
        run = gpu.profile_cuda_memory(**options)
        with run:
            if not options.get("argv"):
                run._session.libraries.admit_path(world.library)
            yield run
        run.close()


@contextmanager
def record_command(world: World, *words: str) -> Iterator[tuple[Run, str]]:
    """Records a command as ``igsdk record --`` does: the run when it has ended, what it printed."""
    said, complaints = world.folder / "said", world.folder / "complaints"
    for file in (said, complaints):
        file.write_bytes(b"")
        file.chmod(0o666)  # under sudo it runs as the caller
    variables = (f"{name}={world.environment[name]}" for name in _passed(world))
    script = 'out=$0 err=$1; shift; exec "$@" >"$out" 2>"$err"'
    argv = ["env", *variables, "sh", "-c", script, str(said), str(complaints), *words]
    with recording(world, argv=argv) as run:
        _wait_for(run, words[-1])
        run.stop()
        yield run, said.read_text()


def _wait_for(run: Run, name: str) -> None:
    assert run.command is not None
    ended = run.command.wait(PATIENCE)
    if ended is None:
        run.command.kill()
        raise ChildEnded(f"{name} had not ended after {PATIENCE} s")
    if ended.status:
        raise ChildEnded(f"{Path(name).name} ended with {ended.status}")


def _passed(world: World) -> list[str]:
    """Variables that the command needs whoever's environment it gets."""
    return [name for name in world.environment if name.startswith(("LD_LIBRARY", "SIMCUDA"))]


def by_kind(run: Run, value: str, pid: int | None = None) -> dict[str, int]:
    """A value of the run's profile added up by kind; kinds without any are left out."""
    sums: dict[str, int] = {}
    for row in run.profile().samples():
        if pid in (None, row["pid"]):
            sums[row["kind"]] = sums.get(row["kind"], 0) + row[value]
    return {kind: total for kind, total in sums.items() if total}


def lost(run: Run) -> str:
    """What was lost, in words; empty on a good day."""
    return ", ".join(f"{name} {count}" for name, count in run.losses().items() if count)


def make_world(simulated: bool, folder: Path, torch_python: str | None) -> World:
    """Compiles what the checks run, and asks the driver what it is.

    Raises:
        NotPossible: the driver does not start.
    """
    sys.path.insert(0, str(ROOT))
    from tests.support.simdriver import build

    built = build()
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"))
    if simulated:
        books = folder / "books"
        books.mkdir(mode=0o777)
        books.chmod(0o777)
        environment = built.environment(books, base=environment)
    exit_program = folder / EXIT_PROGRAM
    source = ROOT / "build" / "gpu_exit.c"
    subprocess.run(["cc", "-O1", "-o", exit_program, source, "-ldl"], check=True)
    world = World(simulated, environment, folder, built.play, exit_program, torch_python)
    world.facts = world.ask("facts")
    return world


def wait_until(true: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Raises ChildEnded if it does not come true."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            raise ChildEnded(f"nothing happened for {seconds} s")
        time.sleep(0.005)
