# SPDX-License-Identifier: Apache-2.0
"""What igsdk believes of a real driver, each with the function that looks; for gpu_checks.py."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from gpu_world import (
    EXIT_PROGRAM,
    ROOT,
    ChildEnded,
    NotPossible,
    Seen,
    World,
    by_kind,
    check,
    lost,
    record_command,
    recording,
    wait_until,
)

MIB = 1 << 20
BLOCK = 4 * MIB
CLIENTS = ROOT / "tests" / "clients"
KINDS = ("device", "pitched", "managed", "pinned", "registered", "pool", "vmm", "array")
OUTLIVE_CONTEXT = {"pool", "vmm"}
OUTLIVE_PRIMARY = {"vmm"}
ROUNDS = 4
PAIRS = {"4 KiB": (2000, 4 << 10), "4 MiB": (200, BLOCK)}
CUDA_VERSIONS = range(11000, 14000)
# vendor's runtime -> driver; facts from the names that the runtime asks for
RUNTIME_CALLS = {
    "cudaMalloc": "cuMemAlloc_v2",
    "cudaMallocPitch": "cuMemAllocPitch_v2",
    "cudaMalloc3D": "cuMemAllocPitch_v2",
    "cudaMallocManaged": "cuMemAllocManaged",
    "cudaMallocHost": "cuMemHostAlloc",
    "cudaHostAlloc": "cuMemHostAlloc",
    "cudaMallocAsync": "cuMemAllocAsync",
}
TORCH = """
import json, os, torch
kept = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda"), torch.empty(1, device="cuda")]
del kept[0]
torch.cuda.empty_cache()
kept.append(torch.empty(1 << 20, dtype=torch.uint8).pin_memory())
kept[0] @ kept[0]
said = {"device": torch.cuda.memory_reserved(), "version": torch.__version__}
print(json.dumps(said), flush=True)
os._exit(0)  # what it holds now, not what its own exit leaves
"""


def mib(size: int | None) -> str:
    if size is None:
        return "unknown"
    return f"{size / MIB:,.1f} MiB" if abs(size) >= MIB / 10 else f"{size:,} B"


def listed(pairs: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in pairs.items()) or "nothing"


@check("version", "CUDA 11, 12 or 13")
def version(world: World) -> Seen:
    facts = world.facts or {}
    cuda = facts["cuda"]
    seen = f"driver {facts['driver']}, CUDA {cuda // 1000}.{cuda % 1000 // 10}, {facts['library']}"
    return seen, cuda in CUDA_VERSIONS


@check(
    "entries",
    "every hooked function begins with the compare and jump, so each probe sits on a jump",
)
def entries(world: World) -> Seen:
    from igsdk import _abi
    from igsdk._native import elf_functions
    from igsdk.runtime.libraries import read_library

    fd = os.open(world.library, os.O_RDONLY | os.O_CLOEXEC)
    try:
        library = read_library(fd, world.library)
        sizes = Counter(size for *_, size in elf_functions(fd, list(_abi.sites())))
    finally:
        os.close(fd)
    how = Counter(site.how for site in library.sites)
    others = [f"{site.symbol} ({site.note})" for site in library.sites if site.how != "jump"]
    common = ", ".join(f"{size} B x {count}" for size, count in sizes.most_common(3))
    seen = f"{len(library.sites)} functions: {how['jump']} on the jump, {how['entry']} on the entry"
    seen += f"; missing: {', '.join(library.missing) or 'none'}; sizes {common}"
    seen += f"; on the entry: {', '.join(others[:5])}" if others else ""
    seen += f"; file {Path(world.library).stat().st_size / MIB:.1f} MiB"
    return seen, not others


@check(
    "addresses", "cuGetProcAddress gives exported functions, and for what we hook only hooked ones"
)
def addresses(world: World) -> Seen:
    found = world.ask("addresses")
    seen = f"{found['answers']} answers, {found['distinct']} addresses; not exported: "
    seen += ", ".join(found["not_exported"]) or "none"
    seen += f"; without a probe: {', '.join(found['without_probe']) or 'none'}"
    return seen, not found["not_exported"] and not found["without_probe"]


@check("bindings", "cuda-bindings: each kind is booked to the byte, nothing is lost")
def bindings(world: World) -> Seen:
    return _compare_client(world, "bindings_client.py")


@check("core", "cuda-core: each kind is booked to the byte, nothing is lost")
def core(world: World) -> Seen:
    return _compare_client(world, "core_client.py")


@check("numba", "numba-cuda: each kind is booked to the byte, nothing is lost")
def numba(world: World) -> Seen:
    return _compare_client(world, "numba_client.py")


def _compare_client(world: World, name: str) -> Seen:
    """What a client says that it allocated, beside what was booked; and one refusal."""
    with record_command(world, sys.executable, str(CLIENTS / name)) as (run, printed):
        said, losses = json.loads(printed), lost(run)
        booked, refusals = by_kind(run, "alloc_space"), by_kind(run, "failed_space")
    refused = sum(refusals.values())  # numba tries a second time
    agrees = booked == said["allocated"] and refused in (said["refused"], 2 * said["refused"])
    seen = f"booked {listed({kind: mib(size) for kind, size in booked.items()})}"
    if booked != said["allocated"]:
        seen += f"; the client says {listed({k: mib(v) for k, v in said['allocated'].items()})}"
    return f"{seen}; refused {mib(refused)}; losses: {losses or 'none'}", agrees and not losses


@check("torch", "PyTorch: device memory booked is what its allocator has reserved, nothing is lost")
def torch(world: World) -> Seen:
    world.not_simulated("can't carry the vendor's runtime, which PyTorch brings")
    python = world.torch_python or sys.executable
    if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode:
        raise NotPossible(f"{python} has no torch; name one that has: --torch-python PATH")
    with record_command(world, python, "-c", TORCH) as (run, printed):
        said, held, losses = json.loads(printed), by_kind(run, "inuse_space"), lost(run)
    more = held.get("device", 0) - said["device"]
    seen = f"torch {said['version']}: reserved {mib(said['device'])}, at exit we hold "
    seen += f"{listed({kind: mib(size) for kind, size in held.items()})}; device memory beside "
    seen += f"the allocator {mib(more)}; losses: {losses or 'none'}"
    return seen, more >= 0 and not losses


@check("runtime", "each call of the vendor's runtime makes one driver call, and that one")
def runtime(world: World) -> Seen:
    world.not_simulated("answers no check of the vendor's runtime")
    with world.child() as child, recording(world, pid=child.pid, events="all") as run:
        called = child.ask("runtime_calls")
        made = [event.api for event in run.events(timeout=1) if event.type == "alloc"]
    wanted = [RUNTIME_CALLS[name] for name in called]
    return f"{' '.join(called)} made {' '.join(made)}", made == wanted


@check(
    "cost", "with totals and stacks a pair of 4 MiB takes at most 1.2 x as long as without probes"
)
def cost(world: World) -> Seen:
    figures = _pair_times(world)
    ratios, parts = {}, []
    for number, size in enumerate(PAIRS):
        bare, traced = (statistics.median(figures[kind::2, number]) for kind in (0, 1))
        ratios[size] = traced / bare
        parts.append(f"{size}: {bare:,.0f} ns bare, {traced:,.0f} ns traced, {ratios[size]:.2f} x")
    if world.simulated:
        raise NotPossible(f"a simulated call costs next to nothing ({'; '.join(parts)})")
    return "; ".join(parts), ratios["4 MiB"] <= 1.2


def _pair_times(world: World) -> Any:
    """ns a pair, rounds x sizes; in every second round the player is traced."""
    import numpy as np

    steps = "; ".join(f"pairs {count} {size}" for count, size in PAIRS.values())
    script = "cuInit 0; cuDevicePrimaryCtxRetain &c 0; cuCtxSetCurrent c; pairs 200 4096"
    for number in range(2 * ROUNDS):
        script += f"; touch {world.folder}/ready{number}; await {world.folder}/go{number}; {steps}"
    script += f"; touch {world.folder}/ready{2 * ROUNDS}"
    with subprocess.Popen(
        [world.play, "-e", script], env=world.environment, stdout=subprocess.PIPE, text=True
    ) as player:
        try:
            wait_until((world.folder / "ready0").exists)
            for number in range(2 * ROUNDS):
                _play_round(world, player.pid, number)
            told, _ = player.communicate(timeout=10)
        finally:
            player.kill()
    times = [float(line.split()[2]) for line in told.splitlines() if line.startswith("pairs")]
    return np.array(times[1:]).reshape(2 * ROUNDS, len(PAIRS))


def _play_round(world: World, pid: int, number: int) -> None:
    def play() -> None:
        (world.folder / f"go{number}").touch()
        wait_until((world.folder / f"ready{number + 1}").exists)

    if number % 2 == 0:
        play()
        return
    with recording(world, pid=pid, events="none"):
        play()


@check("nvml", "NVML counts our bytes and the context's, device memory in steps of 2 MiB")
def nvml(world: World) -> Seen:
    with world.child() as child, recording(world, pid=child.pid) as run:
        steps = {
            step: child.ask("measure", step)
            for step in ("nothing", "context", "256 MiB", "1 B", "another 1 B")
        }
        ours = sum(by_kind(run, "inuse_space", child.pid).values())
    which = "process" if steps["another 1 B"]["process"] is not None else "device"
    seen = ["NVML " + (which if which == "process" else "knows no such process; its device figure")]
    for step, before in (("context", "nothing"), ("256 MiB", "context"), ("1 B", "256 MiB")):
        seen.append(f"{step} {mib(_grown(steps, which, before, step))}")
    one, two = _taken(steps, "256 MiB", "1 B"), _taken(steps, "1 B", "another 1 B")
    seen += [f"1 B takes {mib(one)} of the free bytes, another 1 B {mib(two)}", f"ours {mib(ours)}"]
    if world.simulated:
        raise NotPossible(f"the simulated driver has no contexts and no steps ({'; '.join(seen)})")
    agrees = _grown(steps, which, "context", "256 MiB") == 256 * MIB
    return "; ".join(seen), agrees and (one, two, ours) == (2 * MIB, 0, 256 * MIB + 2)


def _grown(steps: dict[str, Any], which: str, before: str, after: str) -> int:
    return int((steps[after][which] or 0) - (steps[before][which] or 0))


def _taken(steps: dict[str, Any], before: str, after: str) -> int:
    return int(steps[before]["free"] - steps[after]["free"])


@check("nesting", "no hooked function is entered from within another one")
def nesting(world: World) -> Seen:
    with world.child() as child, recording(world, pid=child.pid) as run:
        child.ask("move_each")
        count = run.losses()["nested"]
    return f"{count} nested calls while one of each kind was made and freed", count == 0


@check(
    "context-end",
    "of a created context's allocations pool and vmm outlive it, the rest goes with it",
)
def context_end(world: World) -> Seen:
    return _outlived(world, "destroy", OUTLIVE_CONTEXT)


@check("primary-reset", "of the primary context's allocations only vmm outlives its reset")
def primary_reset(world: World) -> Seen:
    return _outlived(world, "reset", OUTLIVE_PRIMARY)


def _outlived(world: World, end: str, wanted: set[str]) -> Seen:
    """What can still be freed is still there; each kind in a process of its own."""
    results = {kind: _free_after(world, end, kind) for kind in KINDS}
    outlived = {kind for kind, result in results.items() if result == 0}
    return f"results of the free afterwards: {listed(results)}", outlived == wanted


def _free_after(world: World, end: str, kind: str) -> int | str:
    try:
        return int(world.ask("free_after", end, kind))
    except (ChildEnded, NotPossible) as error:
        return f"({error})"


@check("free", "cuMemFree takes plain, pitched, managed and pool memory, and 0 as nothing")
def free(world: World) -> Seen:
    results = world.ask("free_each")
    return f"results: {listed(results)}", not any(results.values())


@check("pool-reserve", "a freed block stays reserved in its pool until a synchronise gives it back")
def pool_reserve(world: World) -> Seen:
    steps = world.ask("pool_steps")
    seen = "; ".join(f"{name}: used {mib(u)}, reserved {mib(r)}" for name, (u, r) in steps.items())
    if world.simulated:
        raise NotPossible(f"the simulated driver keeps what it has reserved ({seen})")
    used = [used for used, _ in steps.values()]
    reserved = [reserved for _, reserved in steps.values()]
    return seen, used == [64 * MIB, 0, 0] and reserved[1] > 0 and reserved[2] == 0


@check("handles", "numbers of vmm handles are used again")
def handles(world: World) -> Seen:
    numbers = world.ask("handle_numbers")
    return f"three in turn: {', '.join(map(hex, numbers))}", len(set(numbers)) < len(numbers)


@check("ipc", "an IPC handle opened twice gives one address, and takes two closes")
def ipc(world: World) -> Seen:
    with world.child() as exporter, world.child() as importer:
        found = importer.ask("ipc_open", exporter.ask("ipc_export"))
    seen = f"opened {', '.join(map(hex, found['opened']))}; results of two closes {found['closed']}"
    return seen, len(set(found["opened"])) == 1 and found["closed"] == [0, 0]


@check("arrays", "arrays take what their descriptor asks for, or more by padding, never less")
def arrays(world: World) -> Seen:
    with world.child() as child, recording(world, pid=child.pid, events="all") as run:
        real = child.ask("arrays")
        events = [e.bytes for e in run.events(timeout=1) if (e.kind, e.type) == ("array", "alloc")]
    pairs = list(zip(events, real, strict=True))
    seen = ", ".join(f"{mib(ours)} of {mib(theirs)}" for ours, theirs in pairs)
    return f"ours of the driver's: {seen}", all(ours <= theirs for ours, theirs in pairs)


@check("uuid", "both calls for a device's UUID give what NVML prints, without its prefix")
def device_uuid(world: World) -> Seen:
    facts = world.facts or {}
    if not facts["nvml"]:
        raise NotPossible("NVML gives no answer")
    told = {name: str(uuid.UUID(raw)) for name, raw in facts["uuids"].items() if raw}
    known = [name.partition("-")[2] for name in facts["nvml"]]
    seen = f"NVML {', '.join(facts['nvml'])}; {listed(told)}"
    return seen, bool(told) and all(text in known for text in told.values())


@check("mig", "a MIG instance is told from its GPU: NVML and cuDeviceGetUuid_v2 name the instance")
def mig(world: World) -> Seen:
    facts = world.facts or {}
    instances = [name for name in facts["nvml"] if name.startswith("MIG-")]
    if not instances:
        raise NotPossible("no MIG instance on this machine")
    told = str(uuid.UUID(facts["uuids"]["cuDeviceGetUuid_v2"]))
    return f"NVML {', '.join(instances)}; the driver {told}", f"MIG-{told}" in instances


@check(
    "capture",
    "an allocation on a capturing stream is a node of a graph; igsdk books it as pool memory",
)
def capture(world: World) -> Seen:
    with world.child() as child, recording(world, pid=child.pid) as run:
        found = child.ask("capture")
        booked = by_kind(run, "alloc_space", child.pid)
    seen = f"{listed({name: mib(size) for name, size in found.items()})}; booked "
    seen += listed({kind: mib(size) for kind, size in booked.items()})
    physical = found["graph before"] == 0 and found["graph after"] >= 64 * MIB
    return seen, found["pool"] == 0 and physical and booked == {"pool": 64 * MIB}


@check(
    "exit", "frees behind the driver's own exit give 4 and are not booked, frees before it give 0"
)
def frees_at_exit(world: World) -> Seen:
    environment = dict(world.environment, **({"SIMCUDA_TEARDOWN": "1"} if world.simulated else {}))
    with recording(world, command=EXIT_PROGRAM) as run:
        program = subprocess.Popen(
            [world.exit_program], env=environment, stdout=subprocess.PIPE, text=True
        )
        printed, _ = program.communicate(timeout=30)
        run.stop()
        held = sum(by_kind(run, "inuse_space", program.pid).values())
    if program.returncode:
        raise ChildEnded(f"exit code {program.returncode} after {printed.split()}")
    results = dict(line.split() for line in printed.splitlines())
    seen = f"results: {listed(results)}; booked as held at exit {mib(held)} of {mib(2 * BLOCK)}"
    return seen, results == {"late": "0", "early": "4"} and held == BLOCK


@check(
    "seccomp",
    "under a filter that refuses the calls of return probes a program works and is booked",
)
def seccomp(world: World) -> Seen:
    if os.uname().machine != "x86_64":
        raise NotPossible("only x86-64 has these system calls")
    with world.child() as child, recording(world, pid=child.pid) as run:
        child.ask("confine")
        results = child.ask("move_each")
        booked, left_alone = by_kind(run, "alloc_space", child.pid), run.losses()["seccomp"]
    seen = f"results {sorted(set(results.values()))}, booked {_kinds(booked)}"
    works = not any(results.values()) and (bool(left_alone) or len(booked) == len(KINDS) - 1)
    return f"{seen}, calls left alone {left_alone}, Linux {os.uname().release}", works


def _kinds(booked: dict[str, int]) -> str:
    return f"{len(booked)} kinds ({', '.join(sorted(booked))})"
