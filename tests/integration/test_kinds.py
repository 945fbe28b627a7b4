# SPDX-License-Identifier: Apache-2.0
"""Every hooked function once on purpose: what it books, where, and what of it is only counted.

Each script would give other figures if its function had no probe. Besides the rows that
stand here, every program is compared with the driver's own books, its peak included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.balance import TOTALS, Figures, Place, Sums
from tests.support.recording import own_driver, play, recording
from tests.support.simdriver import Driver

from igsdk import _abi
from igsdk._run import Run

K, M, G = 1 << 10, 1 << 20, 1 << 30

DEVICE0: Place = ("device", "own", 0)
DEVICE1: Place = ("device", "own", 1)
MANAGED: Place = ("managed", "managed", 0)
PINNED: Place = ("pinned", "pinned", 0)
REGISTERED: Place = ("registered", "registered", 0)
POOL0: Place = ("pool", "own", 0)
POOL1: Place = ("pool", "own", 1)
POOL_HOST: Place = ("pool", "pinned", -1)
VMM0: Place = ("vmm", "own", 0)
VMM1: Place = ("vmm", "own", 1)
VMM_HOST: Place = ("vmm", "pinned", -1)
ARRAY: Place = ("array", "own", 0)
IMPORTED: Place = ("imported", "imported", 0)


def sums(*pairs: int) -> Sums:
    """Allocated, freed, given back and failed, each as bytes and calls; the rest is 0."""
    return dict(zip(TOTALS, (*pairs, *[0] * (len(TOTALS) - len(pairs))), strict=True))


@dataclass(frozen=True)
class Case:
    """What a script books, by process and place, and what it adds to the losses."""

    script: str
    figures: tuple[Figures, ...]
    losses: dict[str, int] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


def held(place: Place, *sizes: int) -> Figures:
    """Allocated by calls of these sizes and held to the end."""
    return {place: sums(sum(sizes), len(sizes), 0, 0, sum(sizes), len(sizes))}


def freed(place: Place, *sizes: int) -> Figures:
    """Allocated and freed by calls."""
    return {place: sums(sum(sizes), len(sizes), sum(sizes), len(sizes))}


def ended_early(create: str, end: str) -> Case:
    """1 MiB in a context that ends, then 3 MiB: the peak says whether the end was seen."""
    script = f"init = 0; {create}; alloc p 1M = 0; {end}; use 1 = 0; alloc q 3M = 0"
    return Case(script, ({**held(DEVICE0, M), **held(DEVICE1, 3 * M)},))


def switched(*operations: str) -> Case:
    """Two contexts; the operations make that of device 0 current, then comes 1 MiB."""
    script = "init = 0; ctx a 0 = 0; ctx b 1 = 0; " + "; ".join(operations) + "; alloc p 1M = 0"
    return Case(script, (held(DEVICE0, M),))


def made(create: str, device: int = 1) -> Case:
    """A context made by this call is current; the one of the other device was before."""
    place = DEVICE1 if device else DEVICE0
    return Case(f"use 0 = 0; {create} = 0; alloc p 1M = 0", (held(place, M),))


def from_pool(get: str, place: Place) -> Case:
    """A pool that was got by this call, used from a context of device 0."""
    script = f"location there device 1; poolprops props device 1; use 0 = 0; {get} = 0"
    return Case(f"{script}; frompool p 1M pool = 0", (held(place, M),))


def asked(symbol: str) -> Case:
    """A process that asks for the identity of its second device only."""
    script = f"use 0 = 0; blob u 16; {symbol} @u 1 = 0; alloc p 1M = 0; use 1 = 0; alloc q 1M = 0"
    return Case(script, ({**held(DEVICE0, M), **held(DEVICE1, M)},))


def failing(*symbols: str, result: int) -> str:
    """Makes the next call of each of these functions fail, or the one whose number is said."""
    calls = (symbol if ":" in symbol else f"{symbol}:1" for symbol in symbols)
    return "inject " + ",".join(f"{call}:{result}" for call in calls)


FREES = (
    "cuMemFree_v2",
    "cuMemFree",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemHostUnregister",
    "cuArrayDestroy",
    "cuMipmappedArrayDestroy",
)
ENDS = ("cuCtxDestroy_v2", "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2")
ALLOCATIONS = (
    "cuMemAlloc_v2",
    "cuMemAllocPitch_v2",
    "cuMemAllocManaged",
    "cuMemHostAlloc",
    "cuMemHostRegister_v2",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemCreate",
    "cuArrayCreate_v2",
)

# a VMM allocation in one process, opened by another one
_EXPORTED = "init = 0; prop d device 0; create a 4M @d = 0; export f a = 0\n"
_ADDRESS = "init = 0; reserve r 16M = 0; prop d device 1; "

#: symbol -> what proves that it is hooked
CASES: dict[str, Case] = {
    "cuMemAlloc_v2": Case(
        "use 0 = 0; alloc p 3M = 0; use 1 = 0; alloc q 5M = 0; alloc r 9G = 2",
        ({**held(DEVICE0, 3 * M), DEVICE1: sums(5 * M, 1, 0, 0, 5 * M, 1, 9 * G, 1)},),
    ),
    "cuMemAlloc": Case("use 0 = 0; alloc1 p 3M = 0; free1 p = 0", (freed(DEVICE0, 3 * M),)),
    # a pitch of 1,024 bytes; what failed is booked as it was asked for
    "cuMemAllocPitch_v2": Case(
        "use 0 = 0; pitch p w 1000 10 = 0; pitch q w 1G 9 = 2",
        ({DEVICE0: sums(10 * K, 1, 0, 0, 10 * K, 1, 9 * G, 1)},),
    ),
    "cuMemAllocPitch": Case("use 0 = 0; pitch1 p w 1000 10 = 0", (held(DEVICE0, 10 * K),)),
    "cuMemAllocManaged": Case(
        "use 0 = 0; managed p 1M = 0; managed q 2M = 0; free q = 0",
        ({MANAGED: sums(3 * M, 2, 2 * M, 1, M, 1)},),
    ),
    "cuMemAllocHost_v2": Case("use 0 = 0; allochost p 1M = 0", (held(PINNED, M),)),
    "cuMemAllocHost": Case("use 0 = 0; allochost1 p 1M = 0", (held(PINNED, M),)),
    "cuMemHostAlloc": Case("use 0 = 0; hostalloc p 7M = 0", (held(PINNED, 7 * M),)),
    "cuMemHostRegister_v2": Case(
        "use 0 = 0; blob b 64K; register @b 64K = 0; register @b 64K = 712",
        ({REGISTERED: sums(64 * K, 1, 0, 0, 64 * K, 1, 64 * K, 1)},),
    ),
    "cuMemHostRegister": Case(
        "use 0 = 0; blob b 64K; register1 @b 64K = 0", (held(REGISTERED, 64 * K),)
    ),
    "cuMemHostUnregister": Case(
        "use 0 = 0; blob b 64K; register @b 64K = 0; unregister @b = 0; unregister @b = 713",
        (freed(REGISTERED, 64 * K),),
    ),
    "cuMemFree_v2": Case("use 0 = 0; alloc p 1M = 0; free p = 0", (freed(DEVICE0, M),)),
    # the upper half of a 32-bit call's register means nothing
    "cuMemFree": Case(
        "use 0 = 0; alloc1 p 1M = 0; cuMemFree p+0x700000000 = 0", (freed(DEVICE0, M),)
    ),
    "cuMemFreeHost": Case(
        "use 0 = 0; hostalloc p 1M = 0; freehost p = 0; allochost q 2M = 0; freehost q = 0",
        (freed(PINNED, M, 2 * M),),
    ),
    "cuMemAllocAsync": Case("use 0 = 0; async p 1M = 0; free p = 0", (freed(POOL0, M),)),
    "cuMemAllocAsync_ptsz": Case("use 0 = 0; asyncz p 1M = 0", (held(POOL0, M),)),
    "cuMemAllocFromPoolAsync": Case(
        "use 0 = 0; poolprops h host 0; pool p @h = 0; frompool q 1M p = 0",
        (held(POOL_HOST, M),),
    ),
    "cuMemAllocFromPoolAsync_ptsz": Case(
        "use 0 = 0; defaultpool p 1 = 0; frompoolz q 1M p = 0; frompoolz r 9G p = 2",
        ({POOL1: sums(M, 1, 0, 0, M, 1, 9 * G, 1)},),
    ),
    "cuMemFreeAsync": Case("use 0 = 0; async p 1M = 0; freeasync p = 0", (freed(POOL0, M),)),
    "cuMemFreeAsync_ptsz": Case("use 0 = 0; async p 1M = 0; freeasyncz p = 0", (freed(POOL0, M),)),
    "cuMemPoolCreate": from_pool("pool pool @props", POOL1),
    # what its destroyed handle is asked for belongs to nobody but the current device
    "cuMemPoolDestroy": Case(
        """use 0 = 0; poolprops o device 1; pool p @o = 0; frompool a 2M p = 0
           inject cuMemPoolDestroy:1:1; pooldestroy p = 1; frompool b 4M p = 0
           pooldestroy p = 0; frompool c 1M p = 1; free a = 0""",
        (
            {
                POOL1: sums(6 * M, 2, 2 * M, 1, 4 * M, 1),
                POOL0: sums(0, 0, 0, 0, 0, 0, M, 1),
            },
        ),
    ),
    "cuDeviceGetDefaultMemPool": from_pool("defaultpool pool 1", POOL1),
    "cuDeviceGetMemPool": from_pool("currentpool pool 1", POOL1),
    "cuMemGetDefaultMemPool": from_pool("cuMemGetDefaultMemPool &pool @there 1", POOL1),
    "cuMemGetMemPool": from_pool("cuMemGetMemPool &pool @there 1", POOL1),
    "cuMemPoolExportPointer": Case(
        """use 0 = 0; poolprops o device 0; pool p @o = 0; frompool a 2M p = 0; blob x 64
           poolexport @x a = 0; cuMemPoolExportToShareableHandle &f p 1 0 = 0
           fork { use 0 = 0; cuMemPoolImportFromShareableHandle &q f 1 0 = 0
                  poolimport b q @x = 0 }
           wait = 0""",
        (held(POOL0, 2 * M), held(IMPORTED, 2 * M)),
    ),
    "cuMemPoolImportPointer": Case(
        """use 0 = 0; poolprops o device 0; pool p @o = 0; frompool a 2M p = 0; blob x 64
           poolexport @x a = 0; cuMemPoolExportToShareableHandle &f p 1 0 = 0
           fork { use 0 = 0; cuMemPoolImportFromShareableHandle &q f 1 0 = 0
                  poolimport b q @x = 0; freeasync b = 0; poolimport c f @x = 1 }
           wait = 0""",
        (held(POOL0, 2 * M), {IMPORTED: sums(2 * M, 1, 2 * M, 1, 0, 0, 2 * M, 1)}),
    ),
    "cuMemCreate": Case(
        "init = 0; prop d device 1; prop h host 0; create a 4M @d = 0; create b 2M @h = 0; "
        "create c 3M @d = 1",
        ({VMM1: sums(4 * M, 1, 0, 0, 4 * M, 1, 3 * M, 1), **held(VMM_HOST, 2 * M)},),
    ),
    "cuMemRelease": Case(
        _ADDRESS + "create a 4M @d = 0; releasehandle a = 0; create b 2M @d = 0; "
        "map r 2M b = 0; unmap r 2M = 0; releasehandle b = 0; releasehandle b = 1",
        (freed(VMM1, 4 * M, 2 * M),),
    ),
    "cuMemMap": Case(
        _ADDRESS + "create a 4M @d = 0; map r 4M a = 0; releasehandle a = 0",
        (held(VMM1, 4 * M),),
    ),
    # one call over three maps of two allocations; one of them is still referred to
    "cuMemUnmap": Case(
        _ADDRESS + "create a 4M @d = 0; create b 2M @d = 0; map r 4M a = 0; map r+4M 2M b = 0; "
        "map r+6M 4M a = 0; releasehandle a = 0; unmap r 5M = 1; unmap r 10M = 0",
        ({VMM1: sums(6 * M, 2, 4 * M, 1, 2 * M, 1)},),
    ),
    "cuMemRetainAllocationHandle": Case(
        _ADDRESS + "create a 4M @d = 0; map r 4M a = 0; releasehandle a = 0; "
        "retainhandle b r+1M = 0; unmap r 4M = 0",
        (held(VMM1, 4 * M),),
    ),
    "cuMemImportFromShareableHandle": Case(
        _EXPORTED
        + """fork { use 0 = 0; import b f = 0; reserve r 8M = 0; map r 4M b = 0
                    map r+4M 4M b = 0; releasehandle b = 0; unmap r 8M = 0
                    import c f = 0; releasehandle c = 0; import d 99 = 1 }
             wait = 0""",
        (held(VMM0, 4 * M), {IMPORTED: sums(4 * M, 1, 4 * M, 1, 0, 0, 0, 1)}),
    ),
    "cuArrayCreate_v2": Case(
        "use 0 = 0; desc d 100 0 0x20 2; array a @d = 0; desc e 10 20 0x08 4; array b @e = 0",
        (held(ARRAY, 800, 800),),
    ),
    "cuArray3DCreate_v2": Case(
        "use 0 = 0; desc3 d 8 4 2 0x02 1 0; array3 a @d = 0; desc3 e 8 4 6 0x20 4 4; "
        "array3 b @e = 0",
        (held(ARRAY, 128, 3072),),
    ),
    "cuMipmappedArrayCreate": Case(
        "use 0 = 0; desc3 d 8 4 2 0x01 1 0; mip a @d 99 = 0; mip b @d 2 = 0; mip e @d 0 = 0; "
        "desc3 l 8 4 2 0x01 1 1; mip c @l 99 = 0",
        (held(ARRAY, 64 + 8 + 2 + 1, 64 + 8, 64, 64 + 16 + 4 + 2),),
    ),
    "cuArrayDestroy": Case(
        "use 0 = 0; desc d 100 1 0x20 1; array a @d = 0; mipdestroy a = 400; arraydestroy a = 0",
        (freed(ARRAY, 400),),
    ),
    "cuMipmappedArrayDestroy": Case(
        "use 0 = 0; desc3 d 8 8 0 0x01 1 0; mip a @d 1 = 0; arraydestroy a = 400; mipdestroy a = 0",
        (freed(ARRAY, 64),),
    ),
    "cuIpcGetMemHandle": Case(
        """use 0 = 0; alloc p 3M = 0; blob h 64; ipcget @h p = 0; ipcopen q h = 201
           fork { use 0 = 0; ipcopen a h = 0 }
           wait = 0""",
        (
            {**held(DEVICE0, 3 * M), IMPORTED: sums(0, 0, 0, 0, 0, 0, 3 * M, 1)},
            held(IMPORTED, 3 * M),
        ),
    ),
    "cuIpcOpenMemHandle_v2": Case(
        """use 0 = 0; alloc p 3M = 0; blob h 64; ipcget @h p = 0
           fork { use 0 = 0; ipcopen a h = 0; ipcopen b h = 0; ipcclose a = 0 }
           wait = 0""",
        (held(DEVICE0, 3 * M), held(IMPORTED, 3 * M)),
    ),
    "cuIpcOpenMemHandle": Case(
        """use 0 = 0; alloc p 3M = 0; blob h 64; ipcget @h p = 0
           fork { use 0 = 0; ipcopen a h cuIpcOpenMemHandle = 0 }
           wait = 0""",
        (held(DEVICE0, 3 * M), held(IMPORTED, 3 * M)),
    ),
    "cuIpcCloseMemHandle": Case(
        """use 0 = 0; alloc p 3M = 0; blob h 64; ipcget @h p = 0
           fork { use 0 = 0; ipcopen a h = 0; ipcopen b h = 0; ipcclose a = 0; ipcclose b = 0
                  ipcclose b = 1; ipcopen c h = 0; free c = 1 }
           wait = 0""",
        (held(DEVICE0, 3 * M), {IMPORTED: sums(6 * M, 2, 3 * M, 1, 3 * M, 1)}),
    ),
    "cuCtxCreate_v2": made("ctx c 1"),
    "cuCtxCreate": made("cuCtxCreate &c 0 1"),
    "cuCtxCreate_v3": made("ctx3 c 1"),
    "cuCtxCreate_v4": made("ctx4 c 1"),
    "cuCtxDestroy_v2": ended_early("ctx c 0 = 0", "destroy c = 0; destroy c = 201"),
    "cuCtxDestroy": ended_early("ctx c 0 = 0", "cuCtxDestroy c = 0"),
    "cuCtxDetach": ended_early("ctx c 0 = 0", "cuCtxDetach c = 0"),
    "cuCtxSetCurrent": switched("set a = 0"),
    "cuCtxPushCurrent_v2": switched("push a = 0"),
    "cuCtxPushCurrent": switched("cuCtxPushCurrent a = 0"),
    "cuCtxPopCurrent_v2": switched("pop c = 0"),
    "cuCtxPopCurrent": switched("cuCtxPopCurrent &c = 0"),
    # two retains: the first release is not the end
    "cuDevicePrimaryCtxRetain": Case(
        """use 0 = 0; retain c 0 = 0; alloc p 1M = 0; release 0 = 0; free p = 0; async q 2M = 0
           release 0 = 0; alloc r 1M = 709; use 1 = 0; alloc s 3M = 0""",
        (
            {
                DEVICE0: sums(M, 1, M, 1),
                ("device", "own", -1): sums(0, 0, 0, 0, 0, 0, M, 1),
                **held(POOL0, 2 * M),
                **held(DEVICE1, 3 * M),
            },
        ),
    ),
    "cuDevicePrimaryCtxRelease_v2": ended_early("use 0 = 0", "release 0 = 0"),
    "cuDevicePrimaryCtxRelease": ended_early("use 0 = 0", "cuDevicePrimaryCtxRelease 0 = 0"),
    "cuDevicePrimaryCtxReset_v2": ended_early("use 0 = 0", "reset 0 = 0"),
    "cuDevicePrimaryCtxReset": ended_early("use 0 = 0", "cuDevicePrimaryCtxReset 0 = 0"),
    "cuGraphAddMemAllocNode": Case(
        "use 0 = 0; alloc p 1M = 0; graphnode n device 0 4096; "
        "cuGraphAddMemAllocNode &g 0 0 0 @n = 0",
        (held(DEVICE0, M),),
        {"not_booked_graph": 1},
    ),
    # a node of another type is no memory
    "cuGraphAddNode": Case(
        "use 0 = 0; alloc p 1M = 0; nodeparams k 1 0; cuGraphAddNode &g 0 0 0 @k = 0; "
        "nodeparams n 10 4096; cuGraphAddNode &g 0 0 0 @n = 0",
        (held(DEVICE0, M),),
        {"not_booked_graph": 1},
    ),
    "cuGraphAddNode_v2": Case(
        "use 0 = 0; alloc p 1M = 0; nodeparams k 1 0; cuGraphAddNode_v2 &g 0 0 0 0 @k = 0; "
        "nodeparams n 10 4096; cuGraphAddNode_v2 &g 0 0 0 0 @n = 0",
        (held(DEVICE0, M),),
        {"not_booked_graph": 1},
    ),
    "cuImportExternalMemory": Case(
        "use 0 = 0; alloc p 1M = 0; cuImportExternalMemory &x 0 = 0; "
        "cuImportExternalMemory 0 0 = 1",
        (held(DEVICE0, M),),
        {"not_booked_external": 1},
    ),
    "cuMemMapArrayAsync": Case(
        "use 0 = 0; alloc p 1M = 0; blob l 64; cuMemMapArrayAsync @l 1 0 = 0",
        (held(DEVICE0, M),),
        {"not_booked_sparse": 1},
    ),
    "cuMemMapArrayAsync_ptsz": Case(
        "use 0 = 0; alloc p 1M = 0; blob l 64; cuMemMapArrayAsync_ptsz @l 1 0 = 0",
        (held(DEVICE0, M),),
        {"not_booked_sparse": 1},
    ),
    "cuArrayCreate": Case(
        "use 0 = 0; desc1 d 10 10 0x02 1; array1 a @d = 0; arraydestroy a = 0; array1 a @d = 0",
        ({ARRAY: sums(400, 2, 200, 1, 200, 1)},),
    ),
    "cuDeviceGetUuid_v2": asked("cuDeviceGetUuid_v2"),
    "cuDeviceGetUuid": asked("cuDeviceGetUuid"),
    "cuArray3DCreate": Case(
        "use 0 = 0; desc31 d 2 2 2 0x03 4 0; array31 a @d = 0", (held(ARRAY, 128),)
    ),
}

#: behaviour that belongs to no single function
BEHAVIOURS: dict[str, Case] = {
    "a free of 0 is nothing": Case("use 0 = 0; alloc p 1M = 0; free 0 = 0", (held(DEVICE0, M),)),
    "frees that fail are nothing": Case(
        """use 0 = 0; alloc p 1M = 0; free 12345 = 1; free p+512 = 1; freehost 12345 = 1
           freeasync 12345 = 1; arraydestroy 4096 = 400; unmap 4096 4096 = 1; freehost p = 1""",
        (held(DEVICE0, M),),
    ),
    # what a failed free took out is put back: the second one finds it
    "failed frees are put back": Case(
        f"""use 0 = 0; alloc a 1M = 0; async b 2M = 0; hostalloc c 4M = 0; managed d 8M = 0
           blob r 64K; register @r 64K = 0; desc f 10 1 0x01 1; array e @f = 0
           desc3 g 8 8 0 0x01 1 0; mip m @g 1 = 0; alloc1 o 16K = 0
           {failing(*FREES, "cuMemFree_v2:2", result=700)}
           free a = 700; free d = 700; freeasync b = 700; freehost c = 700; unregister @r = 700
           arraydestroy e = 700; mipdestroy m = 700; free1 o = 700
           free a = 0; free d = 0; freeasync b = 0; freehost c = 0; unregister @r = 0
           arraydestroy e = 0; mipdestroy m = 0; free1 o = 0""",
        (
            {
                **freed(DEVICE0, M, 16 * K),
                **freed(POOL0, 2 * M),
                **freed(PINNED, 4 * M),
                **freed(MANAGED, 8 * M),
                **freed(REGISTERED, 64 * K),
                **freed(ARRAY, 10, 64),
            },
        ),
    ),
    "failed releases and unmaps are put back": Case(
        _ADDRESS
        + """create a 4M @d = 0; inject cuMemMap:1:1,cuMemRelease:1:1,cuMemUnmap:1:1
             map r 4M a = 1; map r 4M a = 0; map r+4M 4M a = 0; releasehandle a = 1
             unmap r 8M = 1; releasehandle a = 0; unmap r 4M = 0; unmap r+4M 4M = 0
             create b 2M @d = 0; inject cuMemRelease:1:1; releasehandle b = 1
             releasehandle b = 0""",
        (freed(VMM1, 4 * M, 2 * M),),
    ),
    "failed ends of contexts are put back": Case(
        f"""init = 0; ctx c 0 = 0; alloc p 1M = 0; use 1 = 0; alloc q 2M = 0
           {failing(*ENDS, result=1)}
           destroy c = 1; release 1 = 1; reset 1 = 1; free q = 0; destroy c = 0; use 1 = 0
           alloc r 3M = 0; release 1 = 0; alloc s 4M = 0""",
        ({**held(DEVICE0, M), DEVICE1: sums(9 * M, 3, 2 * M, 1, 7 * M, 2)},),
    ),
    "failures of every allocating call": Case(
        f"""use 0 = 0; prop d device 1; desc f 10 1 0x01 1; blob b 4096; defaultpool q 1 = 0
           {failing(*ALLOCATIONS, result=2)}
           alloc p 1M = 2; pitch p w 1000 10 = 2; managed p 2M = 2; hostalloc p 3M = 2
           register @b 4096 = 2; async p 4M = 2; frompool p 5M q = 2; create p 6M @d = 2
           array p @f = 2""",
        (
            {
                DEVICE0: sums(0, 0, 0, 0, 0, 0, M + 10_000, 2),
                MANAGED: sums(0, 0, 0, 0, 0, 0, 2 * M, 1),
                PINNED: sums(0, 0, 0, 0, 0, 0, 3 * M, 1),
                REGISTERED: sums(0, 0, 0, 0, 0, 0, 4096, 1),
                POOL0: sums(0, 0, 0, 0, 0, 0, 4 * M, 1),
                POOL1: sums(0, 0, 0, 0, 0, 0, 5 * M, 1),
                VMM1: sums(0, 0, 0, 0, 0, 0, 6 * M, 1),
                ARRAY: sums(0, 0, 0, 0, 0, 0, 10, 1),
            },
        ),
    ),
    # pitched and pinned calls go through the entries of plain ones: booked once
    "nested calls are counted": Case(
        "use 0 = 0; pitch p w 1000 10 = 0; allochost h 1M = 0; pitch q w 1G 9 = 2",
        (
            {
                DEVICE0: sums(10 * K, 1, 0, 0, 10 * K, 1, 9 * G, 1),
                **held(PINNED, M),
            },
        ),
        {"nested": 3},
        {"nested": True},
    ),
    "sparse and deferred arrays own nothing": Case(
        """use 0 = 0; desc3 s 8 4 0 0x01 1 0x40; array3 a @s = 0; desc3 d 8 4 0 0x01 1 0x80
           array3 b @d = 0; mip c @s 2 = 0; arraydestroy a = 0; arraydestroy b = 0
           mipdestroy c = 0; alloc p 1M = 0""",
        (held(DEVICE0, M),),
        {"not_booked_sparse": 3},
    ),
    # the simulated driver refuses it: a failure of unknown size, counted as such
    "an unknown format": Case(
        "use 0 = 0; desc3 n 8 4 2 0x77 1 0; array3 a @n = 1; alloc p 1M = 0",
        ({**held(DEVICE0, M), ARRAY: sums(0, 0, 0, 0, 0, 0, 0, 1)},),
        {"format_unknown": 1},
    ),
    "after a reset the handle is a context without memory": Case(
        """use 0 = 0; alloc p 4M = 0; managed m 1M = 0; async s 2M = 0; hostalloc h 8M = 0
           reset 0 = 0; free p = 1; alloc q 3M = 0; free q = 0; alloc r 1M = 0
           reset 0 = 0; async t 1M = 0""",
        (
            {
                DEVICE0: sums(8 * M, 3, 3 * M, 1, 5 * M, 2),
                **held(MANAGED, M),
                **held(POOL0, 2 * M, M),
                **held(PINNED, 8 * M),
            },
        ),
    ),
    "a handle that is used again is another context": Case(
        "init = 0; ctx a 0 = 0; alloc p 4M = 0; destroy a = 0; ctx b 1 = 0; alloc q 1M = 0; "
        "destroy b = 0; ctx c 0 = 0; alloc r 2M = 0",
        ({**held(DEVICE0, 4 * M, 2 * M), **held(DEVICE1, M)},),
    ),
    "a thread in a context that another one ends": Case(
        """init = 0; ctx a 0 = 0; barrier
           thread 1 { set a = 0; alloc p 4M = 0; barrier; barrier; alloc q 1M = 709 }
           thread 0 { barrier; destroy a = 0; barrier; use 1 = 0; alloc r 2M = 0 }""",
        (
            {
                **held(DEVICE0, 4 * M),
                ("device", "own", -1): sums(0, 0, 0, 0, 0, 0, M, 1),
                **held(DEVICE1, 2 * M),
            },
        ),
    ),
    "memory of one device freed from the context of another": Case(
        "use 0 = 0; alloc p 4M = 0; use 1 = 0; free p = 0; alloc q 1M = 0",
        ({**freed(DEVICE0, 4 * M), **held(DEVICE1, M)},),
    ),
    "pools of another device survive the current context": Case(
        """use 0 = 0; use 1 = 0; poolprops o device 0; pool p @o = 0; frompool a 4M p = 0
           reset 1 = 0; frompool b 1M p = 0; free a = 0; reset 0 = 0; frompool c 2M p = 0""",
        ({POOL0: sums(7 * M, 3, 4 * M, 1, 3 * M, 2)},),
    ),
}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def run(driver: Driver) -> Iterator[Run]:
    """One run for all scripts: a process must not disturb the next one's figures."""
    with recording(driver, events="all") as run:
        yield run


def check(case: Case, run: Run, driver: Driver, folder: Path) -> None:
    played = play(run, driver, case.script, folder, **case.options)
    assert tuple(played.figures) == case.figures
    assert played.losses == case.losses


@pytest.mark.parametrize("symbol", CASES)
def test_function(symbol: str, run: Run, driver: Driver, tmp_path: Path) -> None:
    check(CASES[symbol], run, driver, tmp_path)


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_behaviour(name: str, run: Run, driver: Driver, tmp_path: Path) -> None:
    check(BEHAVIOURS[name], run, driver, tmp_path)


def test_no_function_is_left_out(run: Run, driver: Driver) -> None:
    """Every hooked function has its case above, and its probe in this run."""
    assert CASES.keys() == _abi.sites().keys()
    (library,) = (one for one in run.attached if one.path == str(driver.libcuda))
    assert {site.symbol for site in library.sites} == CASES.keys()
    assert library.missing == ()


def test_host_memory_and_what_is_others_is_in_no_peak(
    run: Run, driver: Driver, tmp_path: Path
) -> None:
    script = "use 0 = 0; alloc p 1M = 0; hostalloc h 2M = 0; managed m 4M = 0; async a 8M = 0"
    played = play(run, driver, script, tmp_path)
    assert played.infos[0].peak == 9 * M
    profile = run.profile().filter(pid=played.infos[0].pid)
    assert profile.totals("alloc_space") == {
        "own": 9 * M,
        "pinned": 2 * M,
        "registered": 0,
        "imported": 0,
        "managed": 4 * M,
    }


@pytest.mark.parametrize("symbol", ["cuDeviceGetUuid", "cuDeviceGetUuid_v2"])
def test_a_device_is_named_as_the_process_was_told(
    symbol: str, run: Run, driver: Driver, tmp_path: Path
) -> None:
    played = play(run, driver, asked(symbol).script, tmp_path)
    rows = run.profile().filter(pid=played.infos[0].pid).samples()
    names = sorted(row["device"] for row in rows)
    assert len(names) == 2
    assert [name.startswith("GPU-") for name in names] == [False, True]
