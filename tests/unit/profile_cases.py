# SPDX-License-Identifier: Apache-2.0
"""Profiles for tests: some frames by hand, and hypothesis strategies for whole profiles."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from igsdk.ledger import AttachedLibrary, Frame, Site, marker
from igsdk.profile import Metadata, ProcessRow, Profile
from igsdk.profile.names import VALUES

A = Frame("alloc", "a.py", 1, kind="python")
B = Frame("work", "a.py", 2, kind="python")
C = Frame("<module>", "a.py", 3, kind="python")
LIBCUDA = Frame("cuMemAlloc_v2", None, 0, 0x120, "/usr/lib/libcuda.so.1", "ab12")

frames = st.builds(
    Frame,
    function=st.sampled_from(["f", "g", "f;g", "<module>", "é", "_Z1fv", ""]),
    file=st.sampled_from([None, "a.py", "b.cpp"]),
    line=st.integers(0, 3),
    address=st.integers(0, 2),
    mapping=st.sampled_from([None, "/lib/x.so"]),
    build_id=st.sampled_from([None, "ab"]),
    kind=st.sampled_from(["native", "python", "interpreter"]),
)
all_frames = frames | st.sampled_from([marker("not attributed"), marker("accounts full")])
kinds = st.sampled_from(
    [("device", "0", "own"), ("pool", "host", "pinned"), ("pool", "1", "own"),
     ("pool", "1", "managed"), ("registered", "host", "registered"), ("", "", ""),
     ("imported", "unknown", "imported"), ("managed", "0", "managed")]
)  # fmt: skip


@st.composite
def samples(draw: st.DrawFn) -> dict[str, Any]:
    kind, device, host = draw(kinds)
    row: dict[str, Any] = {
        "stack": tuple(draw(st.lists(all_frames, min_size=1, max_size=4))),
        "kind": kind,
        "device": device,
        "host": host,
        "process": draw(st.sampled_from(["python train.py", "vllm", ""])),
        "pid": draw(st.integers(0, 3)),
        "start_ns": draw(st.sampled_from([0, 2**40])),
        "node": draw(st.sampled_from(["", "node-a"])),
        "pod": draw(st.sampled_from(["", "p-0"])),
        "namespace": draw(st.sampled_from(["", "ml"])),
        "container": draw(st.sampled_from(["", "main"])),
    }
    return row | {name: draw(st.integers(0, 2**55)) for name in VALUES}


notes = st.lists(st.sampled_from(["one", "two", "three"]), max_size=2).map(tuple)
metadata = st.builds(
    Metadata,
    time_ns=st.sampled_from([0, 10**18, 2 * 10**18]),
    duration_ns=st.integers(0, 10**12),
    notes=notes,
    command=st.sampled_from(["", "a", "b"]),
    driver=st.sampled_from(["", "real", "simulated"]),
    peak=st.sampled_from(["none", "exact", "inexact", "interval", "summed"]),
    boots=st.sampled_from([(), (1,), (2**63 + 5,)]),
    losses=st.dictionaries(st.sampled_from(["events", "captures"]), st.integers(1, 9)),
    failures=st.lists(
        st.fixed_dictionaries({"boot": st.just(1), "time_ns": st.integers(0, 5)}), max_size=3
    ).map(tuple),
    processes=st.sampled_from([(), (ProcessRow("p", 1, 2, classes={"own": {"in_use": 3}}),)]),
    attached=st.sampled_from(
        [(), (AttachedLibrary("/l", (Site("cuMemAlloc_v2", 16, "jump"),), ("cuX",)),)]
    ),
)
profiles = st.builds(Profile.from_samples, st.lists(samples(), max_size=8), metadata)


def sample(*stack: Frame, host: str = "own", **more: Any) -> dict[str, Any]:
    return {"stack": stack, "kind": "device", "device": "0", "host": host, **more}
