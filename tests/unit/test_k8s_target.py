# SPDX-License-Identifier: Apache-2.0
"""Targets `k8s:`, pods as the API server describes them, and frames of a port-forward."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.api_server import pod
from tests.support.frames import server_frame, unmasked

from igsdk._errors import UsageError
from igsdk.client.k8s.frames import Forward, FramesInvalid
from igsdk.client.k8s.pods import read_pod
from igsdk.client.k8s.target import ClusterTarget, parse


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("k8s:", ("", "gadget", "k8s-app=gadget", (), 8080)),
        ("k8s://", ("", "gadget", "k8s-app=gadget", (), 8080)),
        ("k8s://prod", ("prod", "gadget", "k8s-app=gadget", (), 8080)),
        ("k8s://prod/", ("prod", "gadget", "k8s-app=gadget", (), 8080)),
        ("k8s:///tools", ("", "tools", "k8s-app=gadget", (), 8080)),
        ("k8s://prod/tools?selector=a%3Db,c=d", ("prod", "tools", "a=b,c=d", (), 8080)),
        ("k8s:?selector=", ("", "gadget", "", (), 8080)),
        ("k8s:?node=a,b&node=gpu-*", ("", "gadget", "k8s-app=gadget", ("a", "b", "gpu-*"), 8080)),
        ("k8s:?port=9000", ("", "gadget", "k8s-app=gadget", (), 9000)),
        ("k8s://aws:eks%2Fone/x", ("aws:eks/one", "x", "k8s-app=gadget", (), 8080)),
    ],
)
def test_targets(text: str, parts: tuple[Any, ...]) -> None:
    context, namespace, selector, nodes, port = parts
    assert parse(text) == ClusterTarget(text, context, namespace, selector, nodes, port)


@pytest.mark.parametrize(
    "text",
    ["k8s:prod", "k8s:/prod", "k8s://a/b/c", "k8s:?nodes=a", "k8s:?port=0", "k8s:?port=x"],
)
def test_targets_that_are_none(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert text in caught.value.cause


def test_nodes_are_chosen_by_name_and_pattern() -> None:
    target = parse("k8s:?node=a,gpu-*")
    assert [node for node in ("a", "ab", "gpu-1", "cpu-1", "") if target.wants(node)] == [
        "a",
        "gpu-1",
    ]
    assert parse("k8s:").wants("")


def test_a_ready_pod() -> None:
    found = read_pod(pod("one", "node-1", containers={"abc": "main"}))
    assert found is not None
    assert (found.name, found.node, found.ready, found.gone) == ("one", "node-1", True, False)
    assert found.containers == {"abc": "main"}


@pytest.mark.parametrize(
    ("more", "phase", "why"),
    [
        ({"ready": False}, "Running", "container gadget is not ready yet"),
        ({"ready": False, "waiting": "ImagePullBackOff"}, "Running", "ImagePullBackOff: back-off"),
        ({"leaving": True}, "Terminating", "it is being deleted"),
    ],
)
def test_why_a_pod_is_not_ready(more: dict[str, Any], phase: str, why: str) -> None:
    found = read_pod(pod("one", "node-1", **more))
    assert found is not None
    assert found.phase == phase
    assert why in found.why


def test_a_pod_without_a_node_says_why() -> None:
    raw = pod("one", "", ready=False, phase="Pending")
    raw["status"] = {
        "phase": "Pending",
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "x"}
        ],
    }
    found = read_pod(raw)
    assert found is not None
    assert found.why == "not scheduled: Unschedulable: x"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=50)
@given(anything, anything, anything)
def test_no_pod_makes_it_stumble(meta: Any, spec: Any, status: Any) -> None:
    named = {"uid": "u", "name": "n", "labels": meta}
    found = read_pod({"metadata": named, "spec": spec, "status": status})
    assert found is not None
    found = read_pod({"metadata": named, "spec": spec, "status": {"conditions": status}})
    assert found is not None
    assert read_pod(meta) is None or isinstance(meta, dict)


#: of all three ways in which a frame says its length
blocks = st.builds(
    lambda start, size: (start * (size // len(start) + 1))[:size],
    st.binary(min_size=1, max_size=9),
    st.sampled_from([1, 124, 125, 126, 65_534, 65_535, 65_536, 70_000]),
)


@given(st.lists(blocks, max_size=6), st.data())
def test_bytes_come_through_frames_in_any_pieces(parts: list[bytes], data: st.DataObject) -> None:
    stream = server_frame(b"\0\x90\x1f") + server_frame(b"\1\x90\x1f")
    stream += b"".join(server_frame(b"\0" + part) for part in parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    forward, found = Forward(), b""
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += b"".join(forward.receive(stream[start:end]))
    assert found == b"".join(parts)
    assert not forward.why


@given(blocks)
def test_what_is_sent_is_one_masked_frame(data: bytes) -> None:
    assert unmasked(Forward().send(data)) == (2, b"\0" + data)


def test_messages_may_come_in_several_frames_with_pings_between() -> None:
    forward = Forward()
    stream = (
        server_frame(b"\0\x90\x1f")
        + server_frame(b"\0ab", last=False)
        + server_frame(b"hello", kind=9)
        + server_frame(b"cd", kind=0)
    )
    assert b"".join(forward.receive(stream)) == b"abcd"
    assert unmasked(forward.reply) == (10, b"hello")


def test_what_the_port_forward_says_is_wrong_is_kept() -> None:
    forward = Forward()
    stream = server_frame(b"\1\x90\x1f") + server_frame(b"\1connection refused")
    assert forward.receive(stream + server_frame(b"\x03\xe8", kind=8)) == []
    assert forward.why == "connection refused"
    assert forward.ended


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_waits_for_more(data: bytes) -> None:
    forward = Forward()
    with contextlib.suppress(FramesInvalid):
        forward.receive(data)


def test_a_frame_without_end_is_refused() -> None:
    with pytest.raises(FramesInvalid, match="too long"):
        Forward().receive(b"\x82\x7f" + (1 << 40).to_bytes(8, "big"))
    endless = server_frame(bytes(3 << 20), kind=0, last=False) * 6
    with pytest.raises(FramesInvalid, match="too long"):
        Forward().receive(endless)
