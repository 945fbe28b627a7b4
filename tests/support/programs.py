# SPDX-License-Identifier: Apache-2.0
"""Random programs of driver calls for the player, as hypothesis strategies.

Threads work at the same time, each on its own set of variables; at a barrier the sets
go round, so what one thread allocated another one frees, and addresses that the driver
hands out again wander between threads. Ends of contexts have a phase of their own: what
they give back of a call in flight in another thread nobody could say.
"""

from __future__ import annotations

from hypothesis import strategies as st

THREADS = 3
_SETS = range(THREADS)
_SIZES = st.sampled_from(["1", "512", "4096", "1M", "3M", "64M", "100G"])
_SLOT = st.integers(0, 3)


def _op(template: str, **parts: st.SearchStrategy[object]) -> st.SearchStrategy[str]:
    return st.fixed_dictionaries(parts).map(lambda values: template.format(s="{s}", **values))


def _device_ops() -> list[st.SearchStrategy[str]]:
    size, slot = _SIZES, _SLOT
    return [
        _op("clear p{s}_{i}; alloc &p{s}_{i} {n}", i=slot, n=size),
        _op("clear p{s}_{i}; managed &p{s}_{i} {n}", i=slot, n=size),
        _op(
            "clear p{s}_{i}; pitch &p{s}_{i} &w{s} {n} {rows}",
            i=slot,
            n=size,
            rows=st.integers(1, 9),
        ),
        _op("clear p{s}_{i}; async &p{s}_{i} {n}", i=slot, n=size),
        _op("clear p{s}_{i}; asyncz &p{s}_{i} {n}", i=slot, n=size),
        _op("clear p{s}_{i}; frompool &p{s}_{i} {n} pool{d}", i=slot, n=size, d=st.integers(0, 2)),
        _op("free p{s}_{i}; clear p{s}_{i}", i=slot),
        _op("free p{s}_{i}; clear p{s}_{i}", i=slot),
        _op("freeasync p{s}_{i}; clear p{s}_{i}", i=slot),
        _op("freeasyncz p{s}_{i}; clear p{s}_{i}", i=slot),
        st.just("free 0"),
        st.just("free 12345"),
    ]


def _host_ops() -> list[st.SearchStrategy[str]]:
    size, slot = _SIZES, _SLOT
    return [
        _op("clear h{s}_{i}; allochost &h{s}_{i} {n}", i=slot, n=size),
        _op("clear h{s}_{i}; hostalloc &h{s}_{i} {n}", i=slot, n=size),
        _op("freehost h{s}_{i}; clear h{s}_{i}", i=slot),
        st.just("register @b{s} 8192"),
        st.just("unregister @b{s}"),
        _op("clear o{s}; alloc1 &o{s} {n}", n=size),
        st.just("free1 o{s}; clear o{s}"),
    ]


def _array_ops() -> list[st.SearchStrategy[str]]:
    return [
        st.just("clear a{s}; array &a{s} @desc"),
        st.just("clear a{s}; array3 &a{s} @desc3"),
        st.just("clear a{s}; array3 &a{s} @sparse"),
        st.just("arraydestroy a{s}; clear a{s}"),
        st.just("clear i{s}; mip &i{s} @desc3 4"),
        st.just("mipdestroy i{s}; clear i{s}"),
    ]


def _vmm_ops() -> list[st.SearchStrategy[str]]:
    slot = st.integers(0, 1)
    place = st.sampled_from(["@gpu0", "@gpu1", "@host"])
    return [
        _op("clear v{s}_{i}; create &v{s}_{i} 2M {place}", i=slot, place=place),
        _op("releasehandle v{s}_{i}; clear v{s}_{i}", i=slot),
        _op("map r{s} 2M v{s}_{i}", i=slot),
        _op("map r{s}+2097152 2M v{s}_{i}", i=slot),
        st.just("unmap r{s} 2M"),
        st.just("unmap r{s} 4M"),
        st.just("retainhandle &v{s}_1 r{s}"),
    ]


_WORK = st.one_of(*_device_ops(), *_device_ops(), *_host_ops(), *_array_ops(), *_vmm_ops())
_ALONE = st.one_of(
    st.sampled_from(["reset 0", "reset 1", "release 0", "retain &c0 0", "set c0", "retain &c1 1"]),
    st.sampled_from(["ctx &x 1", "destroy x", "push c0", "pop &y", "set c1", "pooldestroy pool2"]),
    st.sampled_from(["inject cuMemFree_v2:2:700", "inject cuMemAlloc_v2:3:2", "inject none"]),
    st.sampled_from(["inject cuMemRelease:1:1,cuMemUnmap:1:1,cuMemMap:1:205", "alloc &q 5000"]),
)
_ENDS = st.sampled_from(["", "kill9", "exit", "teardown\nfree p0_0\nfree p0_1\nfreehost h0_0"])

_BLOBS = """blob b0 8192
blob b1 8192
blob b2 8192
desc desc 64 32 0x20 2
desc3 desc3 32 16 8 0x10 4 0
desc3 sparse 32 16 8 0x10 4 0x40
prop gpu0 device 0
prop gpu1 device 1
prop host host 0
poolprops pp device 1
"""

# Everything that means something to one process only: a fork does not inherit it.
_START = """init
retain &c0 0
set c0
defaultpool &pool0 0
defaultpool &pool1 1
pool &pool2 @pp
reserve &r0 4M
reserve &r1 4M
reserve &r2 4M
"""


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A script for the player; it ends, and every process of it keeps books."""
    phases = draw(st.integers(1, 4))
    lines: list[list[str]] = [["barrier", "set c0"] for _ in range(THREADS)]
    for phase in range(phases):
        if draw(st.booleans()):
            lines[0] += draw(st.lists(_ALONE, max_size=4))
        for thread in range(THREADS):
            lines[thread].append("barrier")
            work = draw(st.lists(_WORK, max_size=12))
            lines[thread] += [op.replace("{s}", str((thread + phase) % THREADS)) for op in work]
            lines[thread].append("barrier")
    end = draw(_ENDS)
    body = "".join(
        f"thread {number} {{\n" + "\n".join(block) + ("\n" + end if number == 0 else "") + "\n}\n"
        for number, block in enumerate(lines)
    )
    return _BLOBS + draw(_before()) + _START + body


def _before() -> st.SearchStrategy[str]:
    """A child that works on its own, or none; forked before there are threads."""
    child = "fork {{\n" + _START + "{}\n}}\nwait\n"
    work = st.lists(_WORK, max_size=8)
    return st.one_of(
        st.just(""),
        work.map(lambda ops: child.format("\n".join(op.replace("{s}", "0") for op in ops))),
    )
