# SPDX-License-Identifier: Apache-2.0
"""What a push sends, to a Connect server of our own (`tests/support/push_server.py`)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.held import (
    BACKWARD,
    FORWARD,
    MAIN,
    MALLOC,
    MIB,
    NAMELESS,
    profile,
    row,
)
from tests.support.push_server import PushServer, basic, push_server

import igsdk
from igsdk._events import Frame
from igsdk.profile.metadata import ProcessRow

HELD = row(in_use=3 * MIB, allocated=9 * MIB)


@pytest.fixture
def server() -> Iterator[PushServer]:
    with push_server() as running:
        yield running


def test_a_push_looks_like_pyroscopes_own_client(server: PushServer) -> None:
    """Headers, one series with one sample and a UUID, types and their order (facts §6)."""
    pushed = profile(HELD).push(server.url, labels={"env": "prod"})

    (request,), (sample,) = server.pushes, server.samples
    assert request.path == "/push.v1.PusherService/Push"
    assert request.headers["user-agent"].startswith("igsdk/")
    assert str(uuid.UUID(sample.ID)) == sample.ID
    texts = sample.message.string_table
    types = [(texts[kind.type], texts[kind.unit]) for kind in sample.message.sample_type]
    units = {"space": "bytes", "objects": "count"}
    assert types == [(f"{w}_{u}", units[u]) for w in ("inuse", "alloc") for u in units]
    period = sample.message.period_type
    assert (texts[period.type], texts[period.unit]) == ("space", "bytes")
    assert texts[0] == ""
    assert sample.labels == {
        "__name__": "gpu_memory",
        "__delta__": "false",
        "service_name": "serve",
        "process": "serve",
        "kind": "device",
        "device": "GPU-1",
        "env": "prod",
    }
    assert sample.values == {
        ("cuMemAlloc_v2", "forward", "main"): {
            "inuse_space": 3 * MIB,
            "inuse_objects": 3,
            "alloc_space": 9 * MIB,
            "alloc_objects": 9,
        }
    }
    assert (pushed.route, pushed.stored, pushed.bytes, pushed.shown) == ("push", 1, 3 * MIB, True)


def test_a_series_for_each_set_of_labels(server: PushServer) -> None:
    rows = [
        HELD,
        row(in_use=MIB, pid=8, allocated=MIB),
        row(in_use=MIB, kind="pinned", device="host", host="pinned"),
        row(in_use=MIB, namespace="ml", pod="vllm-0", container="engine", node="n1"),
    ]
    profile(*rows).push(server.url, name="gpu")

    found = {s.labels["kind"] + s.labels.get("pod", ""): s for s in server.samples}
    assert sorted(found) == ["device", "devicevllm-0", "pinned"]
    assert found["device"].total("inuse_space") == 4 * MIB
    assert found["devicevllm-0"].labels["service_name"] == "engine"
    assert {s.labels["__name__"] for s in server.samples} == {"gpu"}


def test_pids_are_labels_on_demand(server: PushServer) -> None:
    both = profile(HELD, row(in_use=MIB, pid=8))
    igsdk.Pyroscope(server.url, by=("process", "pid")).push(both)
    assert sorted(s.labels["pid"] for s in server.samples) == ["7", "8"]


def test_what_is_not_allocated_is_another_type(server: PushServer) -> None:
    rows = [
        HELD,
        row(in_use=50 * MIB, kind="registered", device="host", host="registered"),
        row(in_use=60 * MIB, kind="imported", host="imported"),
    ]
    profile(*rows).push(server.url)
    sums = {s.labels["__name__"]: s.total("inuse_space") // MIB for s in server.samples}
    assert sums == {"gpu_memory": 3, "gpu_memory_registered": 50, "gpu_memory_imported": 60}


def test_every_frame_has_a_name(server: PushServer) -> None:
    """A location with neither line nor address would take its samples with it."""
    stack = (MALLOC, NAMELESS, Frame("", kind="python"), Frame("[no symbols]", kind="marker"))
    bad = Frame("bad\udc80name", "x.py", 1, kind="python")
    profile(row((*stack, bad), in_use=MIB)).push(server.url)
    (names,) = server.samples[0].values
    assert names == ("cuMemAlloc_v2", "libfast.so+0x1234", "0x0", "[no symbols]", "bad?name")


def test_lines_may_be_part_of_names(server: PushServer) -> None:
    other = Frame("forward", "/srv/model.py", 43, kind="python")
    two = profile(row(in_use=MIB), row((MALLOC, other, MAIN), in_use=MIB))
    two.push(server.url, lines=True)
    assert [stack[1] for stack in sorted(server.samples[0].values)] == [
        "forward (model.py:42)",
        "forward (model.py:43)",
    ]


def test_the_interpreters_frames_are_left_out(server: PushServer) -> None:
    inner = Frame("_PyEval_EvalFrameDefault", mapping="/x/python3", kind="interpreter")
    profile(row((MALLOC, FORWARD, inner, MAIN), in_use=MIB)).push(server.url)
    assert list(server.samples[0].values) == [("cuMemAlloc_v2", "forward", "main")]


@pytest.mark.parametrize(
    ("settings", "header", "value"),
    [
        ({"user": "42", "password": "s3:cret"}, "authorization", basic("42", "s3:cret")),
        ({"token": "abc"}, "authorization", "Bearer abc"),
        ({"tenant": "team-a"}, "x-scope-orgid", "team-a"),
        ({"headers": {"X-Via": "me"}}, "x-via", "me"),
    ],
)
def test_logins(server: PushServer, settings: dict[str, Any], header: str, value: str) -> None:
    profile(HELD).push(f"{server.url}/behind/a/proxy/", **settings)
    assert {request.headers[header] for request in server.requests} == {value}
    assert server.requests[0].path == "/behind/a/proxy/push.v1.PusherService/Push"


def test_large_series_come_in_parts(server: PushServer) -> None:
    """No more than 16,000 samples, and less than lets a server's burst limit through."""
    rows = [
        row((MALLOC, Frame(f"layer{number}" + 80 * "x", kind="python")), in_use=number + 1)
        for number in range(20_000)
    ]
    pushed = profile(*rows).push(server.url)
    assert pushed.stored == len(server.samples) > 1
    for sample in server.samples:
        assert len(sample.message.sample) <= 16_000
        assert sample.message.ByteSize() < 2_000_000
    assert server.total("inuse_space") == sum(range(20_001))


def test_deep_stacks_keep_their_leaf(server: PushServer) -> None:
    calls = [Frame(f"f{depth}", kind="python") for depth in range(1500)]
    profile(row((MALLOC, *calls), in_use=MIB)).push(server.url)
    ((*names,),) = server.samples[0].values
    assert names[:2] == ["cuMemAlloc_v2", "f0"]
    assert len(names) == 1000


def test_allocations_are_pushed_once(server: PushServer) -> None:
    server_side = igsdk.Pyroscope(server.url)
    server_side.push(profile(HELD))
    server_side.push(profile(row(in_use=4 * MIB, allocated=12 * MIB)))
    server_side.push(profile(row(in_use=0, allocated=12 * MIB)))
    states = [sample.total("inuse_space") // MIB for sample in server.samples]
    assert states == [3, 4]  # the third had nothing to say
    assert server.total("alloc_space") == 12 * MIB
    assert server.total("alloc_objects") == 12


def test_a_second_push_names_the_first(server: PushServer) -> None:
    first, second = profile(HELD), profile(row(in_use=MIB, allocated=10 * MIB))
    first.push(server.url)
    second.push(server.url, since=first)
    assert server.total("alloc_space") == 10 * MIB


def test_the_dead_hold_nothing(server: PushServer) -> None:
    """A profile shows what an ended process held; a server is told what is held now."""
    ended = ProcessRow("serve", 7, 1, state="ended")
    gone = profile(HELD, row(in_use=MIB, pid=8), processes=(ended,))
    igsdk.Pyroscope(server.url).push(gone, ended=False)
    assert server.total("inuse_space") == MIB
    assert server.total("alloc_space") == 9 * MIB
    server.samples.clear()
    gone.push(server.url)
    assert server.total("inuse_space") == 4 * MIB


def test_the_time_is_the_intervals_end(server: PushServer) -> None:
    timed = profile(HELD, time_ns=5 * 10**18, duration_ns=10**9)
    timed.push(server.url, verify=False)
    timed.push(server.url, at=1e9, verify=False)
    times = [s.message.time_nanos for s in server.samples]
    assert times == [5 * 10**18 + 10**9, 10**18]
    assert {s.message.duration_nanos for s in server.samples} == {10**9}


def test_an_empty_profile_is_no_request(server: PushServer) -> None:
    assert profile().push(server.url).stored == 0
    assert server.requests == []


@pytest.mark.parametrize(
    ("url", "settings", "words"),
    [
        ("pyroscope:4040", {}, "no server's address"),
        ("http://", {}, "no server's address"),
        ("http://host:99999", {}, "no server's address"),
        ("http://me:secret@host", {}, "password in it"),
        ("http://host/?tenant=x", {}, "more in it"),
        ("http://host", {"labels": {"k8s.pod": "x"}}, "no name for a label"),
        ("http://host", {"labels": {"__name__": "x"}}, "no name for a label"),
        ("http://host", {"labels": {"a": "x" * 2049}}, "too long"),
        ("http://host", {"labels": {f"l{n}": "x" for n in range(25)}}, "29 labels"),
        ("http://host", {"name": "gpu-memory"}, "no name for profiles"),
        ("http://host", {"tenant": "a/b"}, "no name of a tenant"),
        ("http://host", {"token": "a\nb"}, "no header takes"),
        ("http://host", {"token": "a", "user": "b"}, "exclude one another"),
        ("http://host", {"timeout": 0}, "no positive number"),
        ("http://host", {"by": ("colour",)}, "has no 'colour'"),
        ("https://host", {"ca": "/nowhere.pem"}, "no certificates"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_sent(
    url: str, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(igsdk.UsageError, match=words) as caught:
        profile(HELD).push(url, **settings)
    assert "secret" not in str(caught.value)


def test_two_stacks_of_one_place_are_one(server: PushServer) -> None:
    """Two addresses in one function, as a flame graph shows it."""
    again = Frame("main", address=0x1010, mapping="/usr/bin/serve")
    profile(row(in_use=MIB), row((MALLOC, FORWARD, again), in_use=MIB)).push(server.url)
    assert len(server.samples[0].message.sample) == 1
    assert server.total("inuse_space") == 2 * MIB


def test_names_of_functions_do_not_run_together(server: PushServer) -> None:
    profile(row(in_use=MIB), row((MALLOC, BACKWARD, MAIN), in_use=2 * MIB)).push(server.url)
    assert {stack[1]: v["inuse_space"] // MIB for stack, v in server.samples[0].values.items()} == {
        "forward": 1,
        "backward": 2,
    }
