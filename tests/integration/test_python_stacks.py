# SPDX-License-Identifier: Apache-2.0
"""Python frames equal what the program itself sees: function, file and line, every time.

One recording for each interpreter, of several programs at the same time: as it is, with
its library stripped, with -X perf, with -X dev. All of them have ended when their stacks
are compared, some of their processes right after their allocation.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, groupby, zip_longest
from pathlib import Path
from typing import Any

import pytest
from tests.support import shapes
from tests.support.pythons import NAMES, about, find_python
from tests.support.recording import own_driver, recording, with_environment
from tests.support.shapes import PROGRAMS, Recorded, Sample, Variant, python_frames
from tests.support.simdriver import Driver

from igsdk._events import Frame, Stack

MANY, FROM_PYTHON = 1_000_000, 20_000
# Up to 3.10 each Python frame has C frames: these are deeper than the copied bytes of stack.
DEEP = ("recursion", "nested_callbacks")
# In their own process or thread, or in a hook, something else than `<module>` is outermost.
ON_MAIN = ("function", "methods", "sorting", "generators", "comprehensions", "executed", "errors")


@dataclass(frozen=True)
class Case:
    """An interpreter and its recording."""

    version: tuple[int, ...]
    recorded: Recorded

    @property
    def name(self) -> str:
        return ".".join(map(str, self.version))

    def all_of(self, *names: str) -> Iterator[tuple[Sample, Stack]]:
        """Samples of the plain run by shape, with our stacks."""
        for name in names:
            found = self.recorded.of_shape("plain", name)
            assert found, name
            yield from found


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


def variants_of(version: tuple[int, ...], library: Path | None, folder: Path) -> list[Variant]:
    made = [Variant("plain"), Variant("dev", ("-X", "dev"))]
    if library:
        made.append(Variant("stripped", library=shapes.stripped(library, folder / "stripped")))
    if version >= (3, 12):
        made.append(Variant("perf", ("-X", "perf")))
    return made


@pytest.fixture(scope="module", params=NAMES)
def case(
    request: pytest.FixtureRequest, driver: Driver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Case]:
    name: str = request.param
    python = find_python(name)
    version, library = about(name, python)
    folder = tmp_path_factory.mktemp("shapes")
    variants = variants_of(version, library, folder)
    recorded = shapes.record(python, variants, driver, folder, chroot=name.startswith("sid"))
    yield Case(version, recorded)
    for told in recorded.told.values():  # -X perf leaves a map for each process
        for pid in {sample.pid for sample in told.samples}:
            Path(f"/tmp/perf-{pid}.map").unlink(missing_ok=True)


@pytest.mark.parametrize("variant", ["plain", "stripped", "perf", "dev"])
def test_every_frame_is_the_program_s_own(
    variant: str, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    if variant not in case.recorded.told:
        why = "-X perf came with 3.12" if variant == "perf" else "it has no names to strip"
        pytest.skip(f"{case.name}: {why}")
    told = case.recorded.told[variant]
    wrong, say_why = case.recorded.wrong(variant)
    with capsys.disabled():
        right = len(told.samples) - len(wrong) - say_why
        print(f"\n{case.name} {variant}: {right} of {len(told.samples)}", end=" ")
        if say_why:
            print(f"\n  {say_why} say that a subinterpreter's frames are not known", end=" ")
        for shape, why in told.skipped.items():
            print(f"\n  without {shape}: {why}", end=" ")
    assert wrong == []


def test_stacks_are_whole(case: Case) -> None:
    """No frame says that something is missing, but where C is deeper than what is copied."""
    for variant in ("plain", "stripped", "dev"):
        for sample in case.recorded.told.get(variant, case.recorded.told["plain"]).samples:
            stack = case.recorded.stacks[sample.number]
            if stack and sample.shape not in {*DEEP, "subinterpreters"}:
                marks = [frame.function for frame in stack.frames if frame.kind == "marker"]
                assert (str(sample), marks, stack.missing) == (str(sample), [], None)


def test_nothing_is_lost(case: Case) -> None:
    """But C that is too deep or has no unwind tables (-X perf), and unknown subinterpreters."""
    known = ("stacks_cut", "unwind_ended", "python_missing")
    lost = {name: n for name, n in case.recorded.losses.items() if n and name not in known}
    assert lost == {}


def shown(stack: Stack) -> list[Frame]:
    """The default view."""
    return [frame for frame in stack.frames if frame.kind in ("python", "native", "marker")]


def file_of(frame: Frame) -> str:
    return Path(frame.mapping or "").name.partition(".")[0]


def test_the_default_view_reads_from_module_to_driver(case: Case) -> None:
    """The interpreter's own frames are there, and not shown; those of extensions are."""
    for sample, stack in case.all_of(*ON_MAIN):
        frames = shown(stack)
        assert (frames[0].function, frames[0].kind) == ("cuMemAlloc_v2", "native"), sample
        assert (frames[-1].function, frames[-1].kind) == ("<module>", "python"), sample
        native = [file_of(frame) for frame in frames if frame.kind == "native"]
        assert [file for file, _ in groupby(native)] == ["libcuda", "libffi", "_ctypes"], sample
        hidden = [frame.function for frame in stack.frames if frame.kind == "interpreter"]
        assert any(name.startswith("_PyEval_EvalFrameDefault") for name in hidden), sample


def test_c_between_python_and_python_stays(case: Case) -> None:
    """A comparison called by qsort or bsearch, called through ctypes."""
    for sample, stack in case.all_of("callbacks"):
        kinds = groupby(shown(stack), lambda frame: frame.kind)
        runs = [(kind, list(frames)) for kind, frames in kinds]
        assert [kind for kind, _ in runs] == ["native", "python", "native", "python"], sample
        between = [file for file, _ in groupby(map(file_of, runs[2][1]))]
        through = ["_ctypes", "libffi", "_ctypes"]
        assert between in (through, ["_ctypes", "libffi", "libc", "libffi", "_ctypes"]), sample
        assert runs[1][1][-1].function != "callbacks"
        assert runs[3][1][0].function == "callbacks"


def words(driver: Driver, program: str, *arguments: str) -> tuple[str, ...]:
    python = (sys.executable, "-B", str(PROGRAMS / program))
    return (*with_environment(driver), *python, *arguments)


def test_a_process_that_is_gone_has_the_same_stack(driver: Driver) -> None:
    found = []
    for then in ("gone", "stays"):
        with recording(argv=words(driver, "once.py", then), events="all") as run:
            assert run.command is not None
            run.command.wait(20)
            run.stop()
            found += [event.stack for event in run.events(0) if event.bytes == 4096]
    gone, stays = found
    assert gone is not None
    assert [f.function for f in python_frames(gone)] == ["Worker.allocate", "<module>"]
    assert gone == stays


@pytest.mark.slow
def test_a_million_times_is_one_stack(
    driver: Driver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = shapes.compiled(tmp_path)
    program = words(driver, "many.py", str(library), str(MANY), str(FROM_PYTHON))
    with recording(argv=program) as run:
        assert run.command is not None
        ended = run.command.wait(100)
        assert ended is not None
        assert ended.status == 0
        run.stop()
        rows = list(run.profile().samples())
        losses = {name: count for name, count in run.losses().items() if count}
        with capsys.disabled():
            print(f"\n{run.profile().metadata.duration_ns / 1e9:.1f} s", end=" ")
    assert different(rows) == []
    calls = {
        (row["alloc_objects"], *(f.name for f in row["stack"] if f.kind == "python"))
        for row in rows
    }
    assert calls == {(MANY, "from_c", "<module>"), (FROM_PYTHON, "FromPython.work", "<module>")}
    assert losses == {}


def different(rows: list[dict[str, Any]]) -> list[tuple[Frame, Frame]]:
    """Where two stacks of the same Python function are not the same."""
    found = []
    for one, other in combinations([row["stack"] for row in rows], 2):
        names = [[f.name for f in stack if f.kind == "python"] for stack in (one, other)]
        if names[0] == names[1]:
            found += [pair for pair in zip_longest(one, other) if pair[0] != pair[1]]
    return found
