# SPDX-License-Identifier: Apache-2.0
"""The simulated driver does what it is trusted for: shapes, semantics and books.

Nothing is traced here. Each test plays a script; "= N" in it is an assertion of the
player's, and the books are compared with what the script did.
"""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import time
from pathlib import Path

import pytest
from tests.support import simdriver
from tests.support.simdriver import Books, Driver, Totals

from igsdk import _abi

MIB = 1 << 20


@pytest.fixture(scope="module")
def driver() -> Driver:
    return simdriver.build()


def play(driver: Driver, books: Path, script: str, **options: object) -> list[Books]:
    """Plays a script whose every expectation must hold; the books of all its processes."""
    done = driver.run(script, books, timeout=30, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return simdriver.all_books(books)


def only(books: list[Books]) -> Books:
    assert len(books) == 1
    return books[0]


def exported(driver: Driver) -> dict[str, tuple[str, int]]:
    """Type letter and address of every dynamic symbol."""
    command = ["nm", "-D", "--defined-only", str(driver.libcuda)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [line.split() for line in listed.splitlines()]
    return {name: (kind, int(address, 16)) for address, kind, name in lines}


def code_at(driver: Driver, address: int, size: int) -> bytes:
    """Bytes of the text: its segment lies in the file where it lies in memory."""
    return driver.libcuda.read_bytes()[address : address + size]


# Entries ------------------------------------------------------------------------------


def test_every_hooked_symbol_is_an_exported_function(driver: Driver) -> None:
    symbols = exported(driver)
    assert {symbols.get(name, ("?", 0))[0] for name in _abi.sites()} == {"T"}


def test_entries_have_the_real_shape(driver: Driver) -> None:
    addresses = sorted(at for name, (_, at) in exported(driver).items() if name.startswith("cu"))
    for address in addresses:
        code = code_at(driver, address, 18)
        assert code[:2] == b"\x81\x3d", "a RIP-relative compare of ten bytes"
        assert code[10] == 0x74, "a short conditional jump"
        assert code[12:14] == b"\xff\x25", "a jump through a table"
    gaps = {after - before for before, after in itertools.pairwise(addresses)}
    assert gaps == {0x20}


def test_entries_of_the_other_shape_work(tmp_path: Path) -> None:
    plain = simdriver.build(plain_entries=True)
    address = exported(plain)["cuMemAlloc_v2"][1]
    assert code_at(plain, address, 4) == b"\x55\x48\x89\xe5"
    books = only(play(plain, tmp_path, "use 0 = 0\nalloc p 1M = 0\nteardown\nalloc p 1 = 4"))
    assert books.row("device").alloc_bytes == MIB


def test_symbols_can_be_left_out(tmp_path: Path) -> None:
    poor = simdriver.build(omit=("cuMemAllocAsync_ptsz", "cuMemCreate"))
    assert not {"cuMemAllocAsync_ptsz", "cuMemCreate"} & exported(poor).keys()
    play(poor, tmp_path, "use 0 = 0\nasyncz p 1 = missing\nasync p 1 = 0")


def test_a_version_suffix_makes_links() -> None:
    versioned = simdriver.build(version="550.1")
    assert versioned.libcuda.name == "libcuda.so.550.1"
    assert (versioned.folder / "libcuda.so.1").is_symlink()


LOOKUPS = [
    ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
    ("cuMemAlloc", 2000, 0, "cuMemAlloc"),
    ("cuMemAllocAsync", 11020, 0, "cuMemAllocAsync"),
    ("cuMemAllocAsync", 11020, 2, "cuMemAllocAsync_ptsz"),
    ("cuMemFree", 13000, 2, "cuMemFree_v2"),
    ("cuCtxCreate", 11040, 0, "cuCtxCreate_v3"),
    ("cuCtxCreate", 13000, 0, "cuCtxCreate_v4"),
    ("cuIpcOpenMemHandle", 4010, 0, "cuIpcOpenMemHandle"),
    ("cuIpcOpenMemHandle", 11000, 0, "cuIpcOpenMemHandle_v2"),
]


@pytest.mark.parametrize(("name", "version", "flags", "symbol"), LOOKUPS)
def test_lookup_gives_exported_addresses(
    driver: Driver, name: str, version: int, flags: int, symbol: str
) -> None:
    library = ctypes.CDLL(str(driver.libcuda))
    found, status = ctypes.c_void_p(), ctypes.c_int(-1)
    result = library.cuGetProcAddress_v2(
        name.encode(),
        ctypes.byref(found),
        version,
        ctypes.c_uint64(flags),
        ctypes.byref(status),
    )
    assert (result, status.value) == (0, 0)
    assert found.value == ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value


def test_lookup_says_what_it_lacks(driver: Driver) -> None:
    library = ctypes.CDLL(str(driver.libcuda))
    found, status = ctypes.c_void_p(), ctypes.c_int(-1)
    for name, version, expected in [(b"cuNoSuch", 13000, 1), (b"cuMemAlloc", 1000, 2)]:
        arguments = (name, ctypes.byref(found), version, ctypes.c_uint64(0), ctypes.byref(status))
        assert library.cuGetProcAddress_v2(*arguments) == 500
        assert (found.value, status.value) == (None, expected)


def test_private_tables_are_never_found(driver: Driver) -> None:
    library = ctypes.CDLL(str(driver.libcuda))
    for identity in (bytes(16), bytes(range(16))):
        table = ctypes.c_void_p(1)
        assert library.cuGetExportTable(ctypes.byref(table), identity) == 500
        assert table.value is None


# Plain memory -------------------------------------------------------------------------


def test_plain_memory_is_booked_by_kind_and_device(driver: Driver, tmp_path: Path) -> None:
    script = """
        use 1 = 0; alloc p 3M = 0; pitch q w 1000 10 = 0; managed m 1M = 0
        allochost a 4K = 0; hostalloc h 8K = 0; blob b 4096; register @b 4096 = 0
        free p = 0; freehost a = 0; unregister @b = 0
    """
    books = only(play(driver, tmp_path, script))
    assert books.row("device", device=1) == Totals(
        3 * MIB + 10240, 2, 3 * MIB, 1, in_use=10240, peak=3 * MIB + 10240
    )
    assert books.row("managed", "managed", 1).in_use == MIB
    assert books.row("pinned", "pinned", 1).in_use == 8192
    assert books.row("registered", "registered", 1) == Totals(4096, 1, 4096, 1, peak=4096)
    assert (books.in_use, books.peak) == (10240, 3 * MIB + 10240)


def test_a_full_device_refuses_and_host_memory_does_not(driver: Driver, tmp_path: Path) -> None:
    script = """
        use 1 = 0; alloc a 5G = 0; alloc b 5G = 2; async c 5G = 2; hostalloc d 50G = 0
        free a = 0; alloc b 5G = 0; use 0 = 0; alloc e 8G = 0; pitch f w 1000 10 = 2
    """
    books = only(play(driver, tmp_path, script, devices="8G,8G"))
    assert books.row("device", device=1).fail_bytes == 5 << 30
    assert books.row("pool", device=1).fail_calls == 1
    assert books.row("device", device=0).fail_bytes == 10_000, "width x height"


def test_frees_of_nothing(driver: Driver, tmp_path: Path) -> None:
    script = """
        use 0 = 0; free 0 = 0; free 12345 = 1; freehost 12345 = 1; freeasync 12345 = 1
        alloc p 1M = 0; free p+512 = 1; freehost p = 1; free p = 0; free p = 1
        blob b 64; register @b 64 = 0; register @b 64 = 712; unregister @b = 0
        unregister @b = 713; unmap 4096 4096 = 1; arraydestroy 4096 = 400
    """
    books = only(play(driver, tmp_path, script))
    assert books.row("device").free_calls == 1
    assert books.row("registered", "registered").fail_calls == 1


def test_first_versions_have_32_bit_pointers(driver: Driver, tmp_path: Path) -> None:
    done = driver.run(
        "use 0 = 0\nalloc1 p 1M = 0\nshow p\npitch1 q w 1000 10 = 0\nfree1 p = 0", tmp_path
    )
    assert done.returncode == 0, done.stderr
    pointer = next(int(line.split()[1]) for line in done.stdout.splitlines() if line[:2] == "p ")
    assert 0 < pointer < 1 << 32
    assert only(simdriver.all_books(tmp_path)).in_use == 10240


def test_an_address_freed_in_one_thread_is_the_next_of_another(
    driver: Driver, tmp_path: Path
) -> None:
    script = """
        use 0 = 0; alloc p 1M = 0; show p; barrier
        thread 1 free p = 0
        barrier
        thread 2 { use 0 = 0; alloc q 1000000 = 0; show q }
    """
    done = driver.run(script, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = {words[0]: words[1] for words in map(str.split, done.stdout.splitlines())}
    assert shown["p"] == shown["q"]


def test_nested_calls_are_booked_once(driver: Driver, tmp_path: Path) -> None:
    script = "use 0 = 0; pitch p w 1000 10 = 0; allochost h 1M = 0; pitch q w 1G 9 = 2"
    books = only(play(driver, tmp_path, script, nested=True))
    assert books.row("device") == Totals(
        10240, 1, fail_bytes=9 << 30, fail_calls=1, in_use=10240, peak=10240
    )
    assert books.row("pinned", "pinned").alloc_calls == 1
    assert books.calls == 3 + 3 + 3, "use; the calls; the calls inside them"


# Contexts -----------------------------------------------------------------------------


def test_a_context_gives_back_what_was_allocated_in_it(driver: Driver, tmp_path: Path) -> None:
    script = """
        init; ctx a 0 = 0; alloc p 1M = 0; ctx b 1 = 0; alloc q 2M = 0; hostalloc h 3M = 0
        destroy b = 0; alloc r 4M = 0; free q = 1; destroy b = 201; destroy a = 0; alloc s 1 = 201
    """
    books = only(play(driver, tmp_path, script))
    assert books.row("device", device=1).implicit_bytes == 2 * MIB
    assert books.row("pinned", "pinned", 1).implicit_calls == 1
    assert books.row("device").implicit_bytes == 5 * MIB
    assert books.row("device", device=-1).fail_calls == 1
    assert books.in_use == 0


def test_context_handles_are_used_again(driver: Driver, tmp_path: Path) -> None:
    done = driver.run("init; ctx a 0; destroy a; ctx b 1; show a; show b", tmp_path)
    shown = [line.split()[1] for line in done.stdout.splitlines() if line[:2] in ("a ", "b ")]
    assert len(shown) == 2
    assert shown[0] == shown[1]


def test_the_last_release_or_a_reset_empties_a_primary_context(
    driver: Driver, tmp_path: Path
) -> None:
    script = """
        use 0 = 0; retain c 0 = 0; alloc p 1M = 0; async q 1M = 0; release 0 = 0; free p = 0
        alloc p 2M = 0; release 0 = 0; release 0 = 201; alloc r 1 = 709
        retain c 0 = 0; alloc r 4M = 0; reset 0 = 0; free r = 1; alloc r 8M = 0
    """
    books = only(play(driver, tmp_path, script))
    assert books.row("device").implicit_bytes == 6 * MIB
    assert books.row("pool").implicit_bytes == MIB
    assert books.in_use == 8 * MIB


def test_many_allocations_go_at_once_with_their_context(driver: Driver, tmp_path: Path) -> None:
    script = "init\nctx c 0 = 0\nfill a 200000 512 = 0\ntime end {\ndestroy c = 0\n}\n"
    done = driver.run(script + "use 0 = 0\nfill b 1000 512 = 0", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    took = next(int(line.split()[1]) for line in done.stdout.splitlines() if line[:4] == "end ")
    assert took < 50e6, "by row, not by block"
    row = only(simdriver.all_books(tmp_path)).row("device")
    assert (row.implicit_calls, row.live_calls) == (200_000, 1000)


# Pools, vmm, arrays -------------------------------------------------------------------


def test_pool_memory_goes_by_the_place_of_its_pool(driver: Driver, tmp_path: Path) -> None:
    script = """
        use 1 = 0; use 0 = 0; async a 1M = 0; asyncz b 2M = 0
        poolprops one device 1; pool p @one = 0; frompool c 4M p = 0; frompoolz d 8M p = 0
        poolprops host host 0; pool h @host = 0; frompool e 16M h = 0
        pooldestroy p = 0; frompool f 1M p = 1; freeasync c = 0; free d = 0; freeasyncz b = 0
        defaultpool dp 0 = 0; pooldestroy dp = 1
    """
    books = only(play(driver, tmp_path, script))
    assert books.row("pool").in_use == MIB
    assert books.row("pool", device=1).free_bytes == 12 * MIB
    assert books.row("pool", "pinned", -1).in_use == 16 * MIB
    assert books.row("pool").fail_calls == 1


def test_vmm_memory_lives_by_references_and_maps(driver: Driver, tmp_path: Path) -> None:
    script = """
        init = 0; prop d device 1; prop h host 0; create a 4M @d = 0; create b 2M @h = 0
        create c 3M @d = 1; reserve r 16M = 0; map r 4M a = 0; map r+4M 4M a = 0
        map r+8M 2M b = 0; map r 2M b = 1; releasehandle a = 0; releasehandle a = 1
        retainhandle e r+5M = 0; unmap r 6M = 1; unmap r 8M = 0
    """
    books = only(play(driver, tmp_path, script + "create x 2M @d = 0; releasehandle x = 0"))
    assert books.row("vmm", device=1).in_use == 4 * MIB, "one reference is left"
    assert books.row("vmm", device=1).free_bytes == 2 * MIB
    assert books.row("vmm", device=1).fail_bytes == 3 * MIB
    assert books.row("vmm", "pinned", -1).in_use == 2 * MIB
    books = play(driver, tmp_path, script + "releasehandle e = 0; destroy 0 = 201")[-1]
    assert books.row("vmm", device=1).in_use == 0


def test_imported_vmm_memory_is_booked_at_its_first_map(driver: Driver, tmp_path: Path) -> None:
    script = """
        init = 0; prop d device 0; create a 4M @d = 0; export f a = 0
        fork { use 1 = 0; import b f = 0; reserve r 8M = 0; map r 2M b = 1; map r 4M b = 0
               map r+4M 4M b = 0; releasehandle b = 0; unmap r+4M 4M = 0
               import c f = 0; releasehandle c = 0; import d 99 = 1 }
        wait = 0
    """
    child = play(driver, tmp_path, script)[1]
    assert child.row("imported", "imported", 1) == Totals(
        4 * MIB, 1, fail_calls=1, in_use=4 * MIB, peak=4 * MIB
    )
    assert child.in_use == 0, "another process's memory"


def test_array_bytes(driver: Driver, tmp_path: Path) -> None:
    script = """
        use 0 = 0; desc flat 100 0 0x20 2; array a @flat = 0
        desc3 deep 8 4 2 0x01 1 0; array3 b @deep = 0; mip c @deep 99 = 0; mip d @deep 2 = 0
        desc3 layers 8 4 2 0x01 1 1; mip e @layers 99 = 0
        desc3 sparse 8 4 0 0x01 1 0x40; array3 f @sparse = 0; arraydestroy f = 0
        mipdestroy b = 400; arraydestroy b = 0; desc3 none 8 4 2 0x77 1 0; array3 g @none = 1
        desc1 old 10 10 0x02 1; array1 h @old = 0; desc31 old3 2 2 2 0x03 4 0; array31 i @old3 = 0
    """
    row = only(play(driver, tmp_path, script)).row("array")
    held = [800, 64 + 8 + 2 + 1, 64 + 8, 64 + 16 + 4 + 2, 200, 128]
    assert row.in_use == sum(held)
    assert (row.live_calls, row.free_bytes, row.fail_calls) == (len(held), 64, 1)


# Other processes ----------------------------------------------------------------------


def test_ipc_handles_open_in_other_processes_once(driver: Driver, tmp_path: Path) -> None:
    script = """
        use 0 = 0; alloc p 3M = 0; blob h 64; ipcget @h p = 0; ipcopen q h = 201
        fork { use 1 = 0; ipcopen a h = 0; ipcopen b h cuIpcOpenMemHandle = 0
               free a = 1; ipcclose a = 0; ipcclose b = 0; ipcclose b = 1; ipcopen a h = 0 }
        wait = 0
    """
    parent, child = play(driver, tmp_path, script)
    assert parent.row("imported", "imported").fail_bytes == 3 * MIB
    row = child.row("imported", "imported", 1)
    assert (row.alloc_calls, row.free_calls, row.in_use) == (2, 1, 3 * MIB)


def test_pool_pointers_travel(driver: Driver, tmp_path: Path) -> None:
    script = """
        use 0 = 0; poolprops o device 0; pool p @o = 0; frompool a 2M p = 0; blob x 64
        poolexport @x a = 0; cuMemPoolExportToShareableHandle &f p 1 0 = 0
        fork { use 0 = 0; cuMemPoolImportFromShareableHandle &q f 1 0 = 0
               frompool n 1M q = 801; poolimport b q @x = 0; poolimport c q @x = 0
               freeasync b = 0 }
        wait = 0
    """
    child = play(driver, tmp_path, script)[1]
    row = child.row("imported", "imported")
    assert (row.alloc_bytes, row.free_bytes) == (4 * MIB, 2 * MIB)


def test_fork_exec_and_kill_leave_their_books(driver: Driver, tmp_path: Path) -> None:
    script = """
        use 0 = 0; alloc p 1M = 0
        fork { alloc q 1 = 3; use 0 = 0; free p = 1; alloc q 2M = 0; kill9 }
        wait = 137; exec self -e "use 1 = 0; hostalloc h 4M = 0"
    """
    parent, child, after = play(driver, tmp_path, script)
    assert parent.in_use == MIB
    assert child.in_use == 2 * MIB
    assert (after.pid, after.start_ticks, after.counter) == (parent.pid, parent.start_ticks, 1)
    assert after.row("pinned", "pinned", 1).in_use == 4 * MIB
    assert child.pid != parent.pid
    assert not any(books.alive for books in (parent, child, after))


def test_a_short_process_has_books(driver: Driver, tmp_path: Path) -> None:
    play(driver, tmp_path, "use 0 = 0; alloc p 7 = 0; exit")
    assert only(simdriver.all_books(tmp_path)).in_use == 7


# Failures to order --------------------------------------------------------------------


def test_failures_are_injected_by_call(driver: Driver, tmp_path: Path) -> None:
    script = """
        use 0 = 0; alloc p 1M = 0; free p = 0; alloc p 1M = 0; free p = 700; free p = 0
        managed m 5 = 2; inject none; managed m 5 = 0; inject cuMemAlloc_v2:1:999; alloc p 9 = 999
    """
    books = only(play(driver, tmp_path, script, fail="cuMemFree_v2:2:700,cuMemAllocManaged:*:2"))
    assert books.row("device") == Totals(
        2 * MIB, 2, 2 * MIB, 2, fail_bytes=9, fail_calls=1, peak=MIB
    )
    assert books.row("managed", "managed").fail_bytes == 5


def test_failures_come_from_a_file_that_changes(driver: Driver, tmp_path: Path) -> None:
    control = tmp_path / "control"
    control.write_text("cuMemAlloc_v2:*:2\n")
    script = f'use 0 = 0; alloc p 1 = 2; exec sh -c "rm {control}"'
    books = only(play(driver, tmp_path, script, control=control))
    assert books.row("device").fail_calls == 1
    assert not control.exists()


def test_a_wrong_rule_is_refused_aloud(driver: Driver, tmp_path: Path) -> None:
    done = driver.run("use 0", tmp_path, fail="cuMemAloc:1:2")
    assert done.returncode < 0
    assert "not a failure rule: cuMemAloc:1:2" in done.stderr


def test_after_teardown_everything_says_so(driver: Driver, tmp_path: Path) -> None:
    script = "use 0 = 0; alloc p 1M = 0; teardown; free p = 4; alloc q 5 = 4; init = 4"
    row = only(play(driver, tmp_path, script)).row("device")
    assert (row.in_use, row.free_calls, row.fail_bytes, row.fail_calls) == (MIB, 0, 5, 1)


def test_latency_comes_after_the_work(driver: Driver, tmp_path: Path) -> None:
    script = """
        use 0 = 0; alloc p 1M = 0
        thread 1 { use 0 = 0; sleep 100; alloc q 1M = 0 }
        free p = 0
    """
    done = driver.run(script, tmp_path, latency="cuMemFree_v2:300000")
    assert done.returncode == 0, done.stderr
    order = [line.split()[1] for line in done.stdout.splitlines()]
    assert order.index("free") > len(order) - 2, "the address was in use again before"


# The player and the other library -----------------------------------------------------


def test_the_player_tells_of_unexpected_results(driver: Driver, tmp_path: Path) -> None:
    done = driver.run("use 0 = 0\nalloc p 1M = 2", tmp_path)
    assert done.returncode == 3
    assert "line 2: alloc gave 0, expected 2" in done.stderr
    assert driver.run("frobnicate 1", tmp_path).returncode == 2


def nvml_of(driver: Driver) -> ctypes.CDLL:
    library = ctypes.CDLL(str(driver.folder / "libnvidia-ml.so.1"))
    assert library.nvmlInit_v2() == 0
    return library


class NvmlProcess(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instances", ctypes.c_uint * 2),
    )


def processes_of(library: ctypes.CDLL, index: int) -> dict[int, int]:
    device, count, infos = ctypes.c_void_p(), ctypes.c_uint(8), (NvmlProcess * 8)()
    assert library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0
    call = library.nvmlDeviceGetComputeRunningProcesses_v3
    assert call(device, ctypes.byref(count), infos) == 0
    return {infos[i].pid: infos[i].used for i in range(count.value)}


def test_nvml_sees_living_processes(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMCUDA_BOOKS", str(tmp_path))
    environment = driver.environment(tmp_path, base={"CUDA_VISIBLE_DEVICES": "1"})
    ready, go = tmp_path / "ready", tmp_path / "go"
    script = f"use 0 = 0; alloc p 5M = 0; touch {ready}; await {go}"
    with subprocess.Popen([driver.play, "-e", script], env=environment) as child:
        while not ready.exists() and child.poll() is None:
            time.sleep(0.01)
        library = nvml_of(driver)
        assert processes_of(library, 1) == {child.pid: 5 * MIB}
        assert processes_of(library, 0) == {}
        assert only(simdriver.all_books(tmp_path)).physical == (1,)
        assert only(simdriver.all_books(tmp_path)).alive
        go.touch()
    assert child.returncode == 0
    assert processes_of(library, 1) == {}
