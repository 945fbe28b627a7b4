# SPDX-License-Identifier: Apache-2.0
"""Native unwinding: frames equal the calls that the programs of tests/unwind make."""

from __future__ import annotations

import ctypes
import os
import platform
import random
import re
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.snapshots import Frame, Snapshot, build, functions, snapshot

from igsdk._native import MapWatch, Spaces

x86_only = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the program has x86-64 instructions"
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="system-wide perf events need root")

#: shape -> the program's own functions from the leaf on
CHAINS = {
    "plain": ["snapshot", "inner", "middle", "plain", "main"],
    "realigned": ["snapshot", "inner", "realigned", "main"],
    "callback": ["snapshot", "inner", "compare", "callback", "main"],
    "signal": ["snapshot", "inner", "handler", "interrupted", "handled", "main"],
    "threaded": ["snapshot", "inner", "middle", "thread"],
    "deep": ["snapshot", "inner", *["deeper"] * 21, "main"],
    "switched": ["snapshot", "inner", "in_coroutine"],
}
if platform.machine() == "x86_64":
    CHAINS |= {
        "trapped": ["snapshot", "inner", "after_trap", "trap_at_once", "trapped", "main"],
        "vdso": ["snapshot", "inner", "maybe_in_vdso", "in_vdso", "main"],
        "trampoline": ["snapshot", "inner", "through_code", "main"],
        "compiled": ["snapshot", "inner", "through_code", "main"],
    }
OWN = {name for chain in CHAINS.values() for name in chain}

BUILDS = {
    "pie": ["-pie", "-fPIE"],
    "fixed": ["-no-pie", "-fno-pie"],
    "static": ["-static"],
    "static-pie": ["-static-pie", "-fPIE"],
    "no-frame-pointer": ["-fomit-frame-pointer"],
    "no-tables": [
        "-fno-omit-frame-pointer",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
    ],
    "debug-frame": ["-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
    "no-search-table": ["-static", "-Wl,--no-eh-frame-hdr"],
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("unwind")
    sources = ["shapes.c", "snapshot.c"]
    return {name: build(folder / name, sources, *how) for name, how in BUILDS.items()}


@pytest.fixture(scope="module")
def exceptions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unwind") / "exceptions"
    return build(out, ["exceptions.cpp", "snapshot.c"])


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("unwind") / "plugin", ["plugin.c", "snapshot.c"])


@pytest.fixture
def libraries(tmp_path: Path) -> list[Path]:
    how = ["-DPLUGIN", "-fPIC", "-shared"]
    return [build(tmp_path / f"libwanted{n}.so", ["plugin.c"], *how) for n in (1, 2)]


@pytest.fixture
def watch() -> Iterator[MapWatch]:
    watch = MapWatch(["libwanted"])
    yield watch
    watch.close()


def own(names: list[str]) -> list[str]:
    return [name for name in names if name in OWN]


@pytest.mark.parametrize("how", BUILDS)
@pytest.mark.parametrize("shape", CHAINS)
def test_frames_are_the_calls(programs: dict[str, Path], how: str, shape: str) -> None:
    with snapshot(programs[how], shape) as taken:
        frames, end = taken.unwind()
    names = functions(frames)
    assert own(names) == CHAINS[shape], (names, frames)
    if (how, shape) == ("no-tables", "switched"):  # what is jumped to is not guessed
        assert end == "no unwind table tells how to go on"
    else:
        assert end == ""
    if how != "no-tables" and shape not in ("trampoline", "compiled"):
        assert not any(guessed for *_, guessed in frames)


@pytest.mark.parametrize("shape", ["plain", "threaded", "signal"])
def test_a_stripped_program(programs: dict[str, Path], tmp_path: Path, shape: str) -> None:
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, programs["static"]], check=True)
    with snapshot(stripped, shape) as taken:
        frames, end = taken.unwind()
    assert (end, own(functions(frames, programs["static"]))) == ("", CHAINS[shape])


def test_slots_hold_the_return_addresses(programs: dict[str, Path]) -> None:
    with snapshot(programs["pie"], "signal") as taken:
        frames, _ = taken.unwind()
    assert frames[0][3] == 0xFFFF
    for pc, _, _, slot, _ in frames[1:]:
        assert struct.unpack_from("<Q", taken.stack, 8 * slot) == (pc,)
    # Of a caller the offset is its call's; what a signal interrupted called nothing.
    returns = functions(frames).index("handler") + 1
    assert frames[returns][0] & 0xFFF == frames[returns][2] & 0xFFF
    assert (frames[1][0] - 1) & 0xFFF == frames[1][2] & 0xFFF


@pytest.mark.parametrize(
    ("shape", "chain"),
    [
        ("caught", ["snapshot", "caught", "main"]),
        ("passed", ["snapshot", "~Guard", "thrower", "passed", "main"]),
        ("uncaught", ["snapshot", "at_the_end", "thrower", "uncaught", "main"]),
    ],
)
def test_exceptions(exceptions: Path, shape: str, chain: list[str]) -> None:
    with snapshot(exceptions, shape) as taken:
        frames, end = taken.unwind()
    mine = [f for f in frames if f[1] == str(exceptions)]
    assert (end, functions(mine)[:-1]) == ("", chain)
    assert functions(mine)[-1] == "_start"


def test_a_stack_of_its_own_for_signals(programs: dict[str, Path]) -> None:
    """What was interrupted stands on another stack, of which nothing was copied."""
    with snapshot(programs["pie"], "altstack") as taken:
        frames, end = taken.unwind()
    assert end == "the copy of its stack ends"
    assert own(functions(frames)) == ["snapshot", "inner", "handler"]


def test_a_stack_deeper_than_its_copy(programs: dict[str, Path]) -> None:
    with snapshot(programs["pie"], "too_deep") as taken:
        frames, end = taken.unwind()
        assert end == "the copy of its stack ends"
        assert set(own(functions(frames))[2:]) == {"deeper"}
        # The same words, said to be all that there is: then the stack is broken.
        _, end = Spaces().unwind(taken.pid, taken.registers, taken.stack, all=True)
        assert end == "no unwind table tells how to go on"


def test_every_cut_gives_the_innermost_frames(programs: dict[str, Path]) -> None:
    spaces = Spaces()
    with snapshot(programs["pie"], "callback") as taken:
        whole, _ = taken.unwind(spaces)
        for size in range(0, 8 * whole[-1][3] + 8, 8):
            frames, end = spaces.unwind(taken.pid, taken.registers, taken.stack[:size])
            assert frames == whole[: len(frames)]
            assert end == "the copy of its stack ends"


def test_a_pending_return_probe(programs: dict[str, Path]) -> None:
    """The address of the probes' trampoline stands where the return address did."""
    with snapshot(programs["pie"], "plain") as taken:
        whole, _ = taken.unwind()
        pc, _, _, slot, _ = whole[2]
        stack = bytearray(taken.stack)
        struct.pack_into("<Q", stack, 8 * slot, 0x7FFFFFFFE000)
        where = taken.register(7 if platform.machine() == "x86_64" else 31) + 8 * slot
        spaces = Spaces()
        frames, end = spaces.unwind(taken.pid, taken.registers, bytes(stack), [(where, pc)])
        assert (frames, end) == (whole, "")
        frames, end = spaces.unwind(taken.pid, taken.registers, bytes(stack))
        assert (frames, end) == (whole[:2], "a return address is no code")


@x86_only
def test_every_instruction_of_a_stub(tmp_path: Path) -> None:
    """Stubs push before they jump: their tables compute where the frame is."""
    how = ["-Wl,-z,lazy", "-fcf-protection=none"]
    program = build(tmp_path / "lazy", ["shapes.c", "snapshot.c"], *how)
    headers = subprocess.run(["readelf", "-SW", program], capture_output=True, text=True).stdout
    [plt] = re.findall(r" \.plt +PROGBITS +\w+ +(\w+)", headers)
    spaces = Spaces()
    with snapshot(program, "plain") as taken:
        whole, _ = taken.unwind(spaces)
        start = whole[0][0] - whole[0][2] + int(plt, 16)
        for offset, pushed in ((16, 0), (22, 0), (27, 1), (0, 1), (6, 2)):
            sp = taken.register(7) - 8 * pushed
            registers = taken.with_registers(pc=start + offset, sp=sp)
            stack = bytes(8 * pushed) + taken.stack
            frames, end = spaces.unwind(taken.pid, registers, stack)
            assert end == ""
            assert [f[:3] for f in frames[1:]] == [f[:3] for f in whole[1:]]


def test_a_deleted_program(programs: dict[str, Path], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copy(programs["pie"], copy)
    with snapshot(copy, "plain") as taken:
        copy.unlink()
        # Somebody else's file at the same place is not what the process runs.
        shutil.copy("/bin/true", copy)
        frames, end = taken.unwind()
    assert end == ""
    assert own(functions(frames, programs["pie"])) == CHAINS["plain"]


@needs_root
def test_another_root(programs: dict[str, Path], tmp_path: Path) -> None:
    """The process's path leads somewhere else, or nowhere, for us."""
    shutil.copy(programs["static"], tmp_path / "inside")
    command = f"mount -t tmpfs none {tmp_path} && cp {programs['static']} {tmp_path}/inside && "
    command += f"exec unshare --root={tmp_path} /inside plain"
    shutil.copy("/bin/true", tmp_path / "inside")  # of the same path, elsewhere
    with snapshot(Path("/usr/bin/unshare"), "--mount", "sh", "-c", command) as taken:
        frames, end = taken.unwind()
    # Without /proc it cannot tell how much stack it has: a copy of nothing.
    assert end in ("", "the copy of its stack ends")
    chain = functions(frames, programs["static"])
    assert chain[: min(len(chain), 5)] == CHAINS["plain"][: len(chain)]
    assert chain[:2] == ["snapshot", "inner"]


def await_open(spaces: Spaces, files: int) -> None:
    """The watch runs in a thread of its own: on a busy machine it may be a moment late."""
    until = time.monotonic() + 10
    while spaces.files < files and time.monotonic() < until:
        time.sleep(0.01)
    assert spaces.files >= files


@needs_root
def test_a_process_that_is_gone(plugin: Path, libraries: list[Path], watch: MapWatch) -> None:
    """Its files were opened when it mapped a library that the watch is for."""
    spaces = Spaces(watch)
    program = Path(shutil.copy(plugin, libraries[0].parent / "program"))
    with snapshot(program, *libraries) as taken:
        copies = [shutil.copy(path, f"{path}.kept") for path in (program, libraries[0])]
        await_open(spaces, 1 + len(libraries))
        for path in (program, *libraries):
            Path(path).unlink()
        os.kill(taken.pid, signal.SIGKILL)
        taken.process.wait()
        frames, end = taken.unwind(spaces)
    assert end == ""
    chain = [functions([f], Path(copies[f[1].endswith(".so")]))[0] for f in frames[:5]]
    assert chain == ["snapshot", "library_leaf", "library_saves", "library_entry", "main"]


@needs_root
def test_a_library_that_another_replaces(
    plugin: Path, libraries: list[Path], watch: MapWatch
) -> None:
    spaces = Spaces(watch)
    with snapshot(plugin, *libraries) as taken:
        frames, end = taken.unwind(spaces)
        assert (end, frames[1][1]) == ("", str(libraries[0]))
        before = spaces.generation(taken.pid)
        taken.go_on()
        assert taken.process.stdout is not None
        assert taken.process.stdout.readline() == b"loaded the other\n"
        after, _ = taken.unwind(spaces)
        assert after[1][1] == str(libraries[1])
        assert [f[0] for f in after] == [f[0] for f in frames]
        assert spaces.generation(taken.pid) > before


@needs_root
def test_an_exec(watch: MapWatch) -> None:
    spaces = Spaces(watch)
    script = "echo; read line; exec sleep 1000"
    with subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        spaces.admit(process.pid)
        before = spaces.generation(process.pid)
        shell = Path(f"/proc/{process.pid}/exe").resolve()
        assert str(shell) in {region[3] for region in spaces.regions(process.pid)}
        process.stdin.write(b"\n")
        process.stdin.flush()
        deadline = time.monotonic() + 20
        while spaces.generation(process.pid) == before and time.monotonic() < deadline:
            spaces.regions(process.pid)
        assert str(shell) not in {region[3] for region in spaces.regions(process.pid)}
        process.kill()


# Files and stacks that lie.


def code_of(spaces: Spaces, pid: int) -> list[tuple[int, int]]:
    return [(start, end) for start, end, *_ in spaces.regions(pid)]


def check(frames: list[Frame], code: list[tuple[int, int]]) -> None:
    """No address is given out that is no code."""
    for i, (pc, _, offset, slot, _) in enumerate(frames):
        assert any(start <= pc - (i > 0) < end or start <= pc < end for start, end in code)
        assert offset >= 0
        assert 0 <= slot <= 0xFFFF


def mutated(rng: random.Random, words: list[int], code: list[tuple[int, int]], sp: int) -> bytes:
    choices = [
        lambda: rng.getrandbits(64),
        lambda: rng.choice(words),
        lambda: sp + 8 * rng.randrange(-4, len(words) + 4),
        lambda: rng.randrange(*rng.choice(code)),
        lambda: rng.choice([0, 2**64 - 1, 2**64 - 8, 2**63]),
    ]
    changed = list(words)
    for _ in range(rng.choice([1, 1, 2, 5, len(words)])):
        changed[rng.randrange(len(words))] = rng.choice(choices)()
    return struct.pack(f"<{len(changed)}Q", *changed)


@pytest.mark.parametrize("shape", ["callback", "signal", "realigned"])
def test_garbage_for_stacks_and_registers(programs: dict[str, Path], shape: str) -> None:
    rng = random.Random(shape)
    spaces = Spaces()
    with snapshot(programs["pie"], shape) as taken:
        code = code_of(spaces, taken.pid)
        sp = taken.register(7)
        words = list(struct.unpack(f"<{len(taken.stack) // 8}Q", taken.stack))[:300]
        registers = list(struct.unpack("<33Q", taken.registers))
        for _ in range(1000):
            stack = mutated(rng, words, code, sp)[: 8 * rng.randrange(300)]
            which = rng.choice([taken.registers, mutated(rng, registers, code, sp)])
            frames, _ = spaces.unwind(taken.pid, which, stack)
            check(frames, code)


def sections(path: Path) -> dict[str, tuple[int, int]]:
    """name -> offset, size"""
    text = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True).stdout
    found = re.findall(r"\] (\.\S+) +\w+ +\w+ +(\w+) (\w+)", text)
    return {name: (int(offset, 16), int(size, 16)) for name, offset, size in found}


@pytest.fixture
def victim(plugin: Path, libraries: list[Path]) -> Iterator[tuple[Snapshot, Path]]:
    """A process that waits below a library's functions, and the library."""
    with snapshot(plugin, *libraries) as taken:
        yield taken, libraries[0]


@pytest.mark.parametrize("part", [".eh_frame", ".eh_frame_hdr", "headers"])
def test_damaged_files(victim: tuple[Snapshot, Path], part: str) -> None:
    taken, library = victim
    whole = library.read_bytes()
    expected, _ = taken.unwind()
    offset, size = (0, 1024) if part == "headers" else sections(library)[part]
    rng = random.Random(part)
    seen = set()
    for _ in range(150):
        changed = bytearray(whole)
        for _ in range(rng.choice([1, 2, 8, 40])):
            changed[offset + rng.randrange(size)] = rng.choice([0, 255, rng.randrange(256)])
        library.write_bytes(changed)
        spaces = Spaces()
        frames, end = taken.unwind(spaces)
        check(frames, code_of(spaces, taken.pid))
        assert frames[0] == expected[0]
        seen.add(end)
    library.write_bytes(whole)
    assert len(seen) > 1  # the damage did reach us
    assert taken.unwind() == (expected, "")


def test_a_file_cut_short_while_it_is_used(victim: tuple[Snapshot, Path]) -> None:
    taken, library = victim
    spaces = Spaces()
    expected, _ = taken.unwind(spaces)
    for size in range(library.stat().st_size, -1, -997):
        os.truncate(library, size)
        frames, _ = taken.unwind()
        check(frames, code_of(spaces, taken.pid))
    # Whoever has looked a rule up before needs the file no more.
    assert taken.unwind(spaces) == (expected, "")


@x86_only
def test_tables_that_were_made_to_take_time(tmp_path: Path) -> None:
    """One stack may take 0.1 s, whatever each of its frames costs."""
    source, library = tmp_path / "slow.s", tmp_path / "slow.so"
    source.write_text(
        ".globl slow\nslow: .cfi_startproc\n.cfi_def_cfa rsp, 8\n.cfi_offset rip, -8\n"
        ".rept 100000\n.cfi_remember_state\n.cfi_restore_state\n.endr\n"
        ".rept 4100\nnop\n.endr\nret\n.cfi_endproc\n"
    )
    subprocess.run(["cc", "-shared", "-nostdlib", "-o", library, source], check=True)
    slow = ctypes.cast(ctypes.CDLL(str(library)).slow, ctypes.c_void_p).value
    assert slow is not None
    registers = struct.pack("<17Q", *[0] * 7, 1 << 20, *[0] * 8, slow)
    stack = struct.pack("<4000Q", *range(slow + 1, slow + 4001))
    spaces = Spaces()
    begin = time.thread_time()
    frames, end = spaces.unwind(os.getpid(), registers, stack)
    assert time.thread_time() - begin < 1
    assert 1 < len(frames) < 4000
    assert end == "it has more frames than are followed"


def test_a_process_that_never_was() -> None:
    frames, end = Spaces().unwind(2**22 + 5, bytes(33 * 8), b"")
    assert (frames, end) == ([], "a return address is no code")


def test_many_files_are_opened_once(programs: dict[str, Path]) -> None:
    spaces = Spaces()
    counts = []
    for _ in range(3):
        with snapshot(programs["pie"], "plain") as taken:
            taken.unwind(spaces)
        counts.append(spaces.files)
    assert counts == [counts[0]] * 3
