# SPDX-License-Identifier: Apache-2.0
"""Builds and runs ``tests/gadgethost``: a gadget's object under Inspektor Gadget's rules.

The program is Go over the loader that Inspektor Gadget uses; it is built once into
``.work/gadgethost/``, for any Linux of this architecture, and its modules come from Go's
own cache the next time. What it says is read here into rows, which are dicts by field:
enums as ``kind`` (their name) beside ``kind_raw``, nested structs nested, stacks with
``addresses``.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from igsdk.image import clang, document

from .simdriver import Driver, made_once

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
SOURCE = TESTS / "gadgethost"
CACHE = ROOT / ".work" / "gadgethost"
NEEDS_GO = (1, 26)
#: times as long to wait for everything; more on an emulated processor
slowness = 1

Row = dict[str, Any]
Parameter = bool | int | str


def _go_version() -> tuple[int, ...]:
    if not shutil.which("go"):
        return ()
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    said = subprocess.run(
        ["go", "env", "GOVERSION"], env=environment, capture_output=True, text=True, cwd=SOURCE
    ).stdout
    return tuple(int(part) for part in said.strip().removeprefix("go").split(".")[:2])


def why_not() -> str:
    """Why the program can't be built here; empty if it can."""
    found = _go_version()
    if found < NEEDS_GO:
        has = "Go " + ".".join(map(str, found)) if found else "no Go"
        return f"the gadget host needs Go {'.'.join(map(str, NEEDS_GO))}, and there is {has}"
    return ""


def fingerprint(*folders: Path) -> str:
    """A name that changes with any file of these folders."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.iterdir() if path.is_file()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _build_into(folder: Path) -> None:
    command = ["go", "build", "-mod=readonly", "-trimpath", "-o", str(folder / "gadgethost"), "."]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    done = subprocess.run(command, cwd=SOURCE, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the gadget host does not build:\n{done.stderr}")


@functools.cache
def build() -> Path:
    """The program, statically linked; skips the test that asks where it can't be built."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    return made_once(CACHE / fingerprint(SOURCE), _build_into) / "gadgethost"


# What is run ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Gadget:
    """An object for this machine, and what its metadata say about running it."""

    object: Path
    disabled: tuple[str, ...] = ()
    frequencies: tuple[tuple[str, str], ...] = ()
    defaults: tuple[tuple[str, str], ...] = ()
    """Parameters, by variable, that the metadata give a value."""


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


def _compile_into(folder: Path, source: Path, architecture: str) -> None:
    compiler = clang.find_clang()
    if not compiler:
        pytest.skip("clang is not installed")
    made = clang.compile_object(compiler, clang.find_strip(compiler), source, architecture)
    assert made.data, made.messages
    (folder / "program.o").write_bytes(made.data)


@functools.cache
def compiled(source: Path, architecture: str = "") -> Path:
    """A BPF source as an object, by default for this machine; once per state of its folder."""
    architecture = architecture or _architecture()
    name = f"{source.parent.name}-{source.name.split('.')[0]}-{architecture}"
    made = made_once(
        CACHE / f"{name}-{fingerprint(source.parent)}",
        functools.partial(_compile_into, source=source, architecture=architecture),
    )
    return made / "program.o"


def _described(metadata: Path) -> dict[str, Any]:
    read = document.load(metadata.read_bytes(), metadata.name).root
    programs, parameters = read.get("programs"), read.get("params")
    ebpf = parameters.get("ebpf") if parameters else None
    disabled, frequencies = [], []
    for name, said in programs.items() if programs else ():
        keys = {key: value.text() for key, value in document.flat(said)}
        if keys.get("attach_to") == "gadget_program_disabled":
            disabled.append(name)
        if "sampler.frequency" in keys:
            frequencies.append((name, keys["sampler.frequency"]))
    given = ((name, said.get("defaultValue")) for name, said in (ebpf.items() if ebpf else ()))
    defaults = tuple((name, value.text()) for name, value in given if value)
    return {
        "disabled": tuple(disabled),
        "frequencies": tuple(frequencies),
        "defaults": defaults,
    }


@functools.cache
def ours() -> Gadget:
    """The gadget of this project."""
    return Gadget(compiled(ROOT / "bpf/gadget.bpf.c"), **_described(ROOT / "gadget/gadget.yaml"))


# A run ----------------------------------------------------------------------------------


@dataclass
class Host:
    """A running host. Rows are added as they come; `drain` asks for those of the maps."""

    process: subprocess.Popen[str]
    loaded: dict[str, Any] = field(default_factory=dict)
    ready: dict[str, Any] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)
    _ended: bool = False

    def read(self) -> None:
        """Takes in what the process says, until it ends."""
        assert self.process.stdout
        for text in self.process.stdout:
            with self._news:
                self.lines.append(json.loads(text))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def await_line(self, wanted: Callable[[Row], bool], since: int, seconds: float) -> Row:
        """The first line from number `since` on that is wanted."""
        until = time.monotonic() + seconds * slowness
        with self._news:
            while True:
                for line in self.lines[since:]:
                    if wanted(line):
                        return line
                since = len(self.lines)
                assert not self._ended, self.words("the host has ended")
                left = until - time.monotonic()
                assert left > 0, "the host does not say what is awaited"
                self._news.wait(left)

    def words(self, what: str) -> str:
        """`what`, and all that the host said on standard error."""
        assert self.process.stderr
        return f"{what}: {self.process.stderr.read()}"

    def drain(self) -> list[Row]:
        """Takes all entries out of all maps; the lines of rows that came so."""
        assert self.process.stdin
        since = len(self.lines)
        self.process.stdin.write("drain\n")
        self.process.stdin.flush()
        packet = self.await_line(lambda line: "drained" in line, since, 60)["drained"]
        found = [line for line in self.lines[since:] if line.get("packet") == packet]
        assert not [line for line in found if "error" in line]
        return [line for line in found if "row" in line]

    def rows(self, source: str, since: int = 0) -> list[Row]:
        """Rows of a data source in the order of their coming."""
        return [
            line["row"]
            for line in self.lines[since:]
            if line.get("source") == source and "row" in line
        ]

    def latest(self, source: str) -> dict[int, Row]:
        """The last row of each key: totals are replaced, never added up."""
        return {row["row"]: row for row in self.rows(source)}

    def changes(self, source: str) -> dict[int, Row]:
        """The sums of all changes of each key."""
        sums: dict[int, Row] = defaultdict(lambda: defaultdict(int))
        for row in self.rows(source):
            for name in row:
                if name.startswith("mem_"):
                    sums[row["row"]][name] += row[name]
        return sums

    def lost(self, source: str) -> int:
        """Events that found no room."""
        lines = [line for line in self.lines if line.get("source") == source]
        return sum(line["lost"] for line in lines if "lost" in line)

    def settle(
        self,
        check: Callable[[], bool],
        seconds: float = 10,
        or_else: Callable[[], str] = lambda: "the rows do not become what is expected",
    ) -> None:
        """Drains until `check` says that it is well; `or_else` says what is not."""
        until = time.monotonic() + seconds * slowness
        while True:
            self.drain()
            if check():
                return
            assert time.monotonic() < until, or_else()
            time.sleep(0.1)

    def stop(self) -> None:
        """Has the host end by itself, after one last reading."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60 * slowness)
        assert status == 0, self.words(f"the host ended with {status}")


def command(
    gadget: Gadget, driver: Driver | None, *flags: str, **parameters: Parameter
) -> list[str]:
    """The host's command line; parameters are the gadget's own, by variable."""
    words = [str(build()), *flags]
    if driver:
        words.append(f"-library=libcuda={driver.libcuda}")
    words += [f"-disabled={name}" for name in gadget.disabled]
    words += [f"-frequency={name}={value}" for name, value in gadget.frequencies]
    given: dict[str, Parameter] = {**dict(gadget.defaults), **parameters}
    words += [f"-param={name}={_text(value)}" for name, value in given.items()]
    return [*words, str(gadget.object)]


def _text(value: Parameter) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def hosting(
    driver: Driver | None, *flags: str, of: Gadget | None = None, **parameters: Parameter
) -> Iterator[Host]:
    """A host whose programs are attached; it ends with the block, and has to end well.

    Without a gadget it is ours. It reads the maps when `Host.drain` asks for it, unless a
    flag ``-interval`` is given.
    """
    if not any(flag.startswith("-interval") for flag in flags):
        flags = ("-interval=0", *flags)
    yield from _hosting(command(of or ours(), driver, *flags, **parameters))


def _hosting(words: list[str]) -> Iterator[Host]:
    pipes: Mapping[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(words, text=True, **pipes) as process:
        host = Host(process)
        reader = threading.Thread(target=host.read, daemon=True)
        reader.start()
        try:
            host.loaded = host.await_line(lambda line: "loaded" in line, 0, 60)
            host.ready = host.await_line(lambda line: "ready" in line, 0, 60)
            yield host
            host.stop()
        finally:
            if process.poll() is None:
                process.kill()
            reader.join(30)


def prepare(
    gadget: Gadget, *flags: str, **parameters: Parameter
) -> subprocess.CompletedProcess[str]:
    """Loads the object, so that the kernel's verifier sees it, and ends."""
    words = command(gadget, None, "-prepare-only", *flags, **parameters)
    return subprocess.run(words, capture_output=True, text=True, timeout=120)
