# SPDX-License-Identifier: Apache-2.0
"""What gpu_checks.py asks of a CUDA driver, in a process of its own, which may crash.

Reads one JSON list a line, [probe, argument...], and answers each with a JSON object:
{"answer": ...}, or {"impossible": why} where this driver lacks what the probe needs.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuda.bindings import driver

from igsdk import _abi
from igsdk.runtime import nvml

MIB = 1 << 20
GRANULARITY = 2 * MIB
BLOCK = 4 * MIB
DEVICE = 0
SUFFIXES = ("_ptsz", "_v2", "_v3", "_v4")
VERSIONS = (2000, 3020, 4000, 4010, 6000, 6050, 7000, 11000, 11020, 11040, 12000, 12050, 13000)
# width, height, depth, 32-bit channels
SHAPES = ((64, 32, 0, 2), (1000, 100, 0, 1), (4096, 4096, 0, 4), (100, 100, 100, 1))
REFUSED_CALLS = (335, 336)  # uretprobe and uprobe, x86-64
EPERM = 1

PROBES: dict[str, Callable[..., Any]] = {}
kept: list[Any] = []  # what must live as long as this process


class Impossible(Exception):  # not a mistake: the driver says no
    pass


def probe(function: Callable[..., Any]) -> Callable[..., Any]:
    PROBES[function.__name__] = function
    return function


def check(answer: tuple[Any, ...]) -> Any:
    """What a call gave, without its result code; Impossible if that is not success."""
    result, *values = answer
    if int(result):
        raise Impossible(f"a call gave {result.name} ({int(result)})")
    return values[0] if values else None


def code(answer: tuple[Any, ...]) -> int:
    return int(answer[0])


def libcuda() -> Any:
    """The library that cuda-bindings has loaded too."""
    return ctypes.CDLL("libcuda.so.1")


def enter_primary() -> None:
    check(driver.cuInit(0))
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(DEVICE))))


def free_memory() -> int:
    result, free, _ = driver.cuMemGetInfo()
    check((result,))
    return int(free)


def pool_attribute(name: str) -> int:
    pool = check(driver.cuDeviceGetDefaultMemPool(DEVICE))
    attribute = getattr(driver.CUmemPool_attribute, f"CU_MEMPOOL_ATTR_{name}_MEM_CURRENT")
    return int(check(driver.cuMemPoolGetAttribute(pool, attribute)))


# One allocation of each kind, and its free.


def make_managed() -> Any:
    flags = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
    return check(driver.cuMemAllocManaged(BLOCK, flags))


def make_pitched() -> Any:
    return check(driver.cuMemAllocPitch(1000, 100, 4))


def make_registered() -> Any:
    kept.append(ctypes.create_string_buffer(BLOCK + 4096))
    address = -(-ctypes.addressof(kept[-1]) // 4096) * 4096
    check(driver.cuMemHostRegister(address, BLOCK, 0))
    return address


def make_handle() -> Any:
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = DEVICE
    return check(driver.cuMemCreate(GRANULARITY, properties, 0))


def make_array() -> Any:
    descriptor = driver.CUDA_ARRAY_DESCRIPTOR()
    descriptor.Width, descriptor.Height, descriptor.NumChannels = 256, 256, 4
    descriptor.Format = driver.CUarray_format.CU_AD_FORMAT_FLOAT
    return check(driver.cuArrayCreate(descriptor))


def make_pooled() -> Any:
    block = check(driver.cuMemAllocAsync(BLOCK, driver.CUstream(0)))
    check(driver.cuStreamSynchronize(driver.CUstream(0)))
    return block


Making = tuple[Callable[[], Any], Callable[[Any], Any]]
KINDS: dict[str, Making] = {
    "device": (lambda: check(driver.cuMemAlloc(BLOCK)), driver.cuMemFree),
    "pitched": (make_pitched, driver.cuMemFree),
    "managed": (make_managed, driver.cuMemFree),
    "pinned": (lambda: check(driver.cuMemHostAlloc(BLOCK, 0)), driver.cuMemFreeHost),
    "registered": (make_registered, driver.cuMemHostUnregister),
    "pool": (make_pooled, driver.cuMemFree),
    "vmm": (make_handle, driver.cuMemRelease),
    "array": (make_array, driver.cuArrayDestroy),
}


@probe
def facts() -> dict[str, Any]:
    """Versions, the file that is loaded, the device's name and its UUIDs."""
    check(driver.cuInit(0))
    with Path("/proc/self/maps").open() as maps:
        paths = [line.split(maxsplit=5)[5].strip() for line in maps if "/libcuda.so" in line]
    return {
        "cuda": int(check(driver.cuDriverGetVersion())),
        "driver": nvml.driver_version(),
        "library": paths[0] if paths else "",
        "name": check(driver.cuDeviceGetName(64, DEVICE)).split(b"\0")[0].decode(),
        "total": int(check(driver.cuDeviceTotalMem(DEVICE))),
        "devices": int(check(driver.cuDeviceGetCount())),
        "uuids": {name: _uuid(name) for name in ("cuDeviceGetUuid", "cuDeviceGetUuid_v2")},
        "nvml": [device.uuid for device in nvml.devices() or []],
    }


def _uuid(name: str) -> str | None:
    raw = (ctypes.c_ubyte * 16)()
    function = getattr(libcuda(), name, None)
    return bytes(raw).hex() if function and function(raw, DEVICE) == 0 else None


class _Place(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("start", ctypes.c_void_p),
    )


def _exported(address: int) -> str | None:
    """The exported function that begins exactly here."""
    place = _Place()
    found = ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(place))
    return place.name.decode() if found and place.name and place.start == address else None


def _address(name: str) -> int | None:
    function = getattr(libcuda(), name, None)
    return ctypes.cast(function, ctypes.c_void_p).value if function else None


@probe
def addresses() -> dict[str, Any]:
    """What cuGetProcAddress says for every function that we hook, by version and flag."""
    check(driver.cuInit(0))
    bare = set(_abi.sites())
    for suffix in SUFFIXES:
        bare = {name.removesuffix(suffix) for name in bare}
    answers = [
        (name, int(function))
        for name in sorted(bare)
        for version in (*VERSIONS, int(check(driver.cuDriverGetVersion())))
        for flags in (0, 1, 2)
        if (function := _asked(name, version, flags))
    ]
    hooked = {_address(name) for name in _abi.sites()}
    names = {address: _exported(address) for _, address in answers}
    return {
        "answers": len(answers),
        "distinct": len(names),
        "not_exported": sorted({name for name, address in answers if not names[address]}),
        "without_probe": sorted({str(names[a]) for _, a in answers if a not in hooked}),
    }


def _asked(name: str, version: int, flags: int) -> int:
    result, function, *_ = driver.cuGetProcAddress(name.encode(), version, flags)
    return int(function) if int(result) == 0 and function else 0


@probe
def measure(step: str) -> dict[str, Any]:
    """Takes one step, then tells NVML's figures, and the bytes that are free on the device."""
    sizes = {"256 MiB": 256 * MIB, "1 B": 1, "another 1 B": 1}
    if step == "context":
        enter_primary()
    elif step in sizes:
        check(driver.cuMemAlloc(sizes[step]))
    own = nvml.used_bytes(os.getpid())
    device = [device.used or 0 for device in nvml.devices() or []]
    return {
        "process": sum(used or 0 for used in own.values()) if own else None,
        "device": sum(device) if device else None,
        "free": free_memory() if step != "nothing" else None,
    }


@probe
def free_each() -> dict[str, int]:
    """Results of cuMemFree for everything that it should take, and of 0."""
    enter_primary()
    kinds = ("device", "pitched", "managed", "pool")
    results = {kind: code(driver.cuMemFree(KINDS[kind][0]())) for kind in kinds}
    results["0"] = code(driver.cuMemFree(0))
    return results | {"pool bytes left": pool_attribute("USED")}


@probe
def move_each() -> dict[str, int]:
    """Makes and frees one of each kind; results of the frees."""
    enter_primary()
    return {kind: code(free(make())) for kind, (make, free) in KINDS.items()}


@probe
def free_after(end: str, kind: str) -> int:
    """The result of a free after the end of the context in which the allocation was made."""
    enter_primary()
    make, free = KINDS[kind]
    if end == "reset":
        thing = make()
        check(driver.cuDevicePrimaryCtxReset(DEVICE))
        enter_primary()
    else:
        thing = _made_elsewhere(make)
    return code(free(thing))


def _made_elsewhere(make: Callable[[], Any]) -> Any:
    """In a context that was created for it and is gone when this returns."""
    context = ctypes.c_void_p()
    check((driver.CUresult(libcuda().cuCtxCreate_v2(ctypes.byref(context), 0, DEVICE)),))
    thing = make()
    check(driver.cuCtxDestroy(driver.CUcontext(context.value)))
    enter_primary()
    return thing


@probe
def pool_steps() -> dict[str, Any]:
    """Bytes used and reserved in the pool: with one block, after its free, after synchronising."""
    enter_primary()
    stream = driver.CUstream(0)
    block = check(driver.cuMemAllocAsync(64 * MIB, stream))
    steps = {"held": _pool_bytes()}
    check(driver.cuMemFreeAsync(block, stream))
    steps["freed"] = _pool_bytes()
    check(driver.cuStreamSynchronize(stream))
    return steps | {"synchronised": _pool_bytes()}


def _pool_bytes() -> list[int]:
    return [pool_attribute("USED"), pool_attribute("RESERVED")]


@probe
def handle_numbers() -> list[int]:
    """Numbers of three handles, each released before the next is made."""
    enter_primary()
    numbers = []
    for _ in range(3):
        handle = make_handle()
        numbers.append(int(handle))
        check(driver.cuMemRelease(handle))
    return numbers


@probe
def ipc_export() -> str:
    enter_primary()
    kept.append(check(driver.cuMemAlloc(BLOCK)))
    handle = check(driver.cuIpcGetMemHandle(kept[-1]))
    return bytes(ctypes.string_at(handle.getPtr(), 64)).hex()


@probe
def ipc_open(text: str) -> dict[str, Any]:
    """Opens a handle twice, and closes what that gave until the driver refuses."""
    enter_primary()
    handle = driver.CUipcMemHandle()
    ctypes.memmove(handle.getPtr(), bytes.fromhex(text), 64)
    lazily = driver.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.value
    opened = [int(check(driver.cuIpcOpenMemHandle(handle, lazily))) for _ in range(2)]
    return {"opened": opened, "closed": [code(driver.cuIpcCloseMemHandle(p)) for p in opened]}


@probe
def arrays() -> list[int]:
    """The driver's sizes of some arrays; each is made once more, with memory, to be booked."""
    enter_primary()
    sizes = []
    for shape in SHAPES:
        deferred = check(driver.cuArray3DCreate(_descriptor(shape, 0x80)))
        sizes.append(int(check(driver.cuArrayGetMemoryRequirements(deferred, DEVICE)).size))
        check(driver.cuArrayDestroy(deferred))
        check(driver.cuArrayDestroy(check(driver.cuArray3DCreate(_descriptor(shape, 0)))))
    return sizes


def _descriptor(shape: tuple[int, int, int, int], flags: int) -> Any:
    descriptor = driver.CUDA_ARRAY3D_DESCRIPTOR()
    descriptor.Width, descriptor.Height, descriptor.Depth, descriptor.NumChannels = shape
    descriptor.Format = driver.CUarray_format.CU_AD_FORMAT_FLOAT
    descriptor.Flags = flags
    return descriptor


@probe
def capture() -> dict[str, Any]:
    """An allocation on a capturing stream: bytes of the pool, of graphs before and after launch."""
    enter_primary()
    stream = check(driver.cuStreamCreate(1))
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    check(driver.cuStreamBeginCapture(stream, mode))
    check(driver.cuMemAllocAsync(64 * MIB, stream))
    graph = check(driver.cuStreamEndCapture(stream))
    seen = {"pool": pool_attribute("USED"), "graph before": _graph_bytes()}
    launchable = check(driver.cuGraphInstantiate(graph, 0))
    check(driver.cuGraphLaunch(launchable, stream))
    check(driver.cuStreamSynchronize(stream))
    return seen | {"graph after": _graph_bytes()}


def _graph_bytes() -> int:
    attribute = driver.CUgraphMem_attribute.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
    return int(check(driver.cuDeviceGetGraphMemAttribute(DEVICE, attribute)))


@probe
def confine() -> None:
    """From now on the system calls of probes are refused, as Docker's profile refuses them.

    That profile refuses what it doesn't list; the rest of its list is of no matter here.
    """
    load = struct.pack("=HBBI", 0x20, 0, 0, 0)
    tests = [
        struct.pack("=HBBI", 0x15, len(REFUSED_CALLS) - number, 0, call)
        for number, call in enumerate(REFUSED_CALLS)
    ]
    allow, refuse = (
        struct.pack("=HBBI", 6, 0, 0, value) for value in (0x7FFF0000, 0x50000 | EPERM)
    )
    program = b"".join([load, *tests, allow, refuse])
    buffer = ctypes.create_string_buffer(program)
    filter_ = struct.pack("HP", len(program) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = [
        ctypes.c_int,
        ctypes.c_ulong,
        ctypes.c_void_p,
        ctypes.c_ulong,
        ctypes.c_ulong,
    ]
    if libc.prctl(38, 1, None, 0, 0) or libc.prctl(22, 2, filter_, 0, 0):
        raise Impossible(f"no seccomp filter can be set: {os.strerror(ctypes.get_errno())}")


@probe
def runtime_calls() -> list[str]:
    """One of each allocating call of the vendor's runtime, in order."""
    from cuda.bindings import runtime

    stream = runtime.cudaStream_t(0)
    calls: dict[str, Callable[[], Any]] = {
        "cudaMalloc": lambda: runtime.cudaMalloc(BLOCK),
        "cudaMallocPitch": lambda: runtime.cudaMallocPitch(1000, 100),
        "cudaMalloc3D": lambda: runtime.cudaMalloc3D(runtime.make_cudaExtent(1000, 10, 10)),
        "cudaMallocManaged": lambda: runtime.cudaMallocManaged(BLOCK, 1),
        "cudaMallocHost": lambda: runtime.cudaMallocHost(BLOCK),
        "cudaHostAlloc": lambda: runtime.cudaHostAlloc(BLOCK, 0),
        "cudaMallocAsync": lambda: runtime.cudaMallocAsync(BLOCK, stream),
    }
    for name, call in calls.items():
        result = call()[0]
        if int(result):
            raise Impossible(f"{name} gave {result.name} ({int(result)})")
    return list(calls)


def answer(line: str) -> dict[str, Any]:
    name, *arguments = json.loads(line)
    try:
        return {"answer": PROBES[name](*arguments)}
    except Impossible as error:
        return {"impossible": str(error)}
    except RuntimeError as error:
        if "not found" not in str(error):
            raise
        return {"impossible": f"this driver lacks a function: {error}"}


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answer(line)), flush=True)


if __name__ == "__main__":
    main()
