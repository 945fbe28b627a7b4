# SPDX-License-Identifier: Apache-2.0
"""What a real daemon said, recorded, means to us what its recorder saw."""

from __future__ import annotations

from collections import Counter
from typing import Any

import grpc
import pytest
from tests.support import wire
from tests.support.gadget_server import Refusal, Session, gadget_server

from igsdk._errors import IgsdkError, RunRefused, UsageError
from igsdk._proto import gadget_pb2 as pb
from igsdk.client.gadget import read_gadget
from igsdk.client.remote import RemoteRuntime
from igsdk.client.stream import Stream, no_losses

DAEMON = {"pull": "never", "host": True}
WORKLOAD = {
    "comm": "workload",
    "host": "CUDA_MEM_DEVICE",
    "mem_implicit_free_bytes": 0,
    "mem_implicit_free_calls": 0,
    "pad": (0,) * 7,
    "k8s.hostnetwork": False,
    "runtime.containerPid": 0,
}


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A daemon that answers as the recorded one did, and a client of it."""
    with gadget_server(tmp_path_factory.mktemp("wire") / "socket") as server:

        def of(describe: str, run: str = "") -> RemoteRuntime:
            # Read here: where they are missing, the test is skipped, not the server's thread.
            described = wire.recording(describe)
            events = wire.recording(run) if run else described
            server.describe = lambda request: _first(described)
            server.run = lambda session: _events(events, session)
            return RemoteRuntime(server.target)

        yield of


def _first(recorded: wire.Recording) -> bytes:
    if recorded.status != "OK":
        raise Refusal(recorded.message, grpc.StatusCode[recorded.status])
    return recorded.responses[0]


def _events(recorded: wire.Recording, session: Session) -> Any:
    yield from recorded.responses
    if len(recorded.requests) > 1:
        assert session.asked_to_stop.wait(20)
    if recorded.status != "OK":
        raise Refusal(recorded.message, grpc.StatusCode[recorded.status])


def test_every_recording_has_a_test() -> None:
    tested = set(ANSWERS) | set(STREAMS) | {name for name, *_ in REFUSALS} | set(CONTROL)
    if not wire.names():
        pytest.skip(f"the daemon's recordings are not at {wire.FOLDER}")
    assert set(wire.names()) == tested


#: recording -> (message that was asked, message that was answered, what it must say)
ANSWERS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "get-info": (pb.InfoRequest, pb.InfoResponse, {"version": "1.0", "serverVersion": "0.54.0"}),
    "gadget-info-profile-cuda": (pb.GetGadgetInfoRequest, pb.GetGadgetInfoResponse, {}),
    "gadget-info-top-cuda-memory": (pb.GetGadgetInfoRequest, pb.GetGadgetInfoResponse, {}),
    "instance-info": (pb.GetGadgetInfoRequest, pb.GetGadgetInfoResponse, {}),
    "instance-create": (
        pb.CreateGadgetInstanceRequest,
        pb.CreateGadgetInstanceResponse,
        {"result": 0},
    ),
    "instance-list": (pb.ListGadgetInstancesRequest, pb.ListGadgetInstanceResponse, {}),
    "instance-remove": (pb.GadgetInstanceId, pb.StatusResponse, {"result": 0, "message": ""}),
    "instance-remove-unknown": (pb.GadgetInstanceId, pb.StatusResponse, {"result": 1}),
}
CONTROL = ("run-stop-first", "run-wrong-version")


@pytest.mark.parametrize("name", ANSWERS)
def test_every_field_of_an_answer_is_one_of_ours(name: str) -> None:
    recorded = wire.recording(name)
    asked, answered, said = ANSWERS[name]
    question = asked.FromString(recorded.requests[0])
    answer = answered.FromString(recorded.responses[0])
    for message in (question, answer):
        known = type(message).FromString(message.SerializeToString())
        known.DiscardUnknownFields()
        assert known == message
        assert known.ByteSize() == message.ByteSize()  # nothing was unknown
    assert {field: getattr(answer, field) for field in said} == said


def test_instances_are_told_by_id_name_and_state() -> None:
    created = pb.CreateGadgetInstanceResponse.FromString(
        wire.recording("instance-create").responses[0]
    ).gadgetInstance
    (listed,) = pb.ListGadgetInstanceResponse.FromString(
        wire.recording("instance-list").responses[0]
    ).gadgetInstances
    assert (listed.id, listed.name) == (created.id, "recorded")
    assert listed.state.status == pb.StatusRunning
    assert list(listed.tags) == ["t1", "t2"]
    assert listed.gadgetConfig.imageName == "top_cuda_memory:up"
    told = pb.GetGadgetInfoResponse.FromString(wire.recording("instance-info").responses[0])
    gadget = read_gadget(told.gadgetInfo)
    assert (gadget.id, gadget.name) == (created.id, "recorded")


@pytest.mark.parametrize(
    ("name", "sources", "parameters"),
    [
        ("gadget-info-profile-cuda", {"allocs": 45}, 34),
        (
            "gadget-info-top-cuda-memory",
            {"libcuda_mem_stats": 27, "libcudart_mem_stats": 27},
            28,
        ),
    ],
)
def test_descriptions(replay: Any, name: str, sources: dict[str, int], parameters: int) -> None:
    with replay(name) as host:
        assert host.version == "0.54.0"
        gadget = host.describe("image")
    assert {one.name: len(one.fields) for one in gadget.sources.values()} == sources
    assert all(source.array and not source.big_endian for source in gadget.sources.values())
    assert len(gadget.parameters) == parameters
    assert len({parameter.key for parameter in gadget.parameters}) == parameters
    pull = next(one for one in gadget.parameters if one.name == "pull")
    assert pull.key == "operator.oci.pull"
    assert (pull.default, pull.allowed) == ("missing", ("always", "missing", "never"))
    assert "name: " in gadget.metadata


#: recording -> (description, events, packets, rows by data source, lines by level, its rows)
STREAMS: dict[str, tuple[str, int, int, dict[str, int], dict[str, int], list[dict[str, Any]]]] = {
    "run-profile-cuda": (
        "gadget-info-profile-cuda",
        10,
        7,
        {"allocs": 1},
        {"warning": 2},
        [
            {
                "count": 1500 * 4096,
                "proc.comm": "workload",
                "proc.pid": 28044,
                "proc.parent.comm": "python",
                "proc.creds.user": "root",
                "ustack_raw.stack_id": 12035,
                "ustack_raw.addresses": "0x0000557e1ac9118f; 0x00007f2ca14a224a; ",
                "ustack_raw.symbols": "",
                "runtime.containerStartedAt": 0,
            }
        ],
    ),
    "run-top-cuda-memory": (
        "gadget-info-top-cuda-memory",
        12,
        10,
        {"libcuda_mem_stats": 1},
        {"warning": 1},
        [
            {
                **WORKLOAD,
                "pid": 28080,
                "mem_alloc_bytes": 1500 * 4096,
                "mem_free_bytes": 1500 * 4096,
                "mem_alloc_calls": 1500,
                "mem_free_calls": 1500,
            }
        ],
    ),
    "run-debug-log": (
        "gadget-info-top-cuda-memory",
        542,
        6,
        {},
        {"debug": 534, "warning": 1},
        [],
    ),
    "instance-attach": (
        "gadget-info-top-cuda-memory",
        14,
        13,
        {"libcuda_mem_stats": 1},
        {},
        [
            {
                **WORKLOAD,
                "pid": 28226,
                "mem_alloc_bytes": 1000 * 4096,
                "mem_free_bytes": 1000 * 4096,
                "mem_alloc_calls": 1000,
                "mem_free_calls": 1000,
            }
        ],
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams(name: str) -> None:
    recorded = wire.recording(name)
    _, events, packets, _, levels, _ = STREAMS[name]
    stream = Stream()
    given = [packet for data in recorded.responses if (packet := stream.take(data))]
    assert len(recorded.responses) == events
    assert [packet.seq for packet in given] == list(range(1, packets + 1))
    assert Counter(line.level for line in stream.journal.lines()) == levels
    assert all(line.text.strip() for line in stream.journal.lines())
    assert stream.losses == no_losses()


@pytest.mark.parametrize("name", [name for name in STREAMS if name != "instance-attach"])
@pytest.mark.parametrize("as_columns", [False, True])
def test_streams_over_a_socket(replay: Any, name: str, as_columns: bool) -> None:
    describe, _, _, counts, levels, expected = STREAMS[name]
    with replay(describe, name) as host, host.run("image", DAEMON, log_level="debug") as run:
        run.stop()
        rows: list[Any] = _columns(run) if as_columns else list(run.rows())
        assert Counter(line.level for line in run.logs) == levels
        assert run.losses() == no_losses()
        assert run.error is None
    assert Counter(row.source if not as_columns else row["source"] for row in rows) == counts
    for row, wanted in zip(rows, expected, strict=True):
        assert {name: row[name] for name in wanted} == wanted


def _columns(run: Any) -> list[dict[str, Any]]:
    rows = []
    for source, columns in run.collect().items():
        for place in range(columns.rows):
            row = {name: columns[name][place] for name in columns}
            row["pad"] = tuple(row["pad"]) if "pad" in row else ()
            rows.append({**row, "source": source})
    return rows


#: recording -> (whether describing fails already, words of the cause, a word of the remedy)
REFUSALS = (
    ("gadget-info-missing-image", True, "no_such_gadget", "pull="),
    ("gadget-info-wrong-version", True, "expected version to be 1, got 2", "releases"),
    ("run-bad-param", False, 'invalid duration "soon"', "parameter"),
    ("run-stop-first", False, "expected first control message", "log"),
    ("run-wrong-version", False, "expected version to be 1, got 7", "releases"),
    ("instance-attach-unknown", False, "0000 not found", "instances"),
)


@pytest.mark.parametrize(("name", "early", "cause", "remedy"), REFUSALS)
def test_refusals(replay: Any, name: str, early: bool, cause: str, remedy: str) -> None:
    recorded = wire.recording(name)
    describe = name if early else "gadget-info-top-cuda-memory"
    with replay(describe, name) as host:
        run = None if early else host.run("image", DAEMON)
        with pytest.raises(RunRefused) as caught:
            run.__enter__() if run else host.describe("image")
    assert cause in caught.value.cause
    assert remedy in caught.value.remedy
    assert recorded.message.split(":")[0] in str(caught.value)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"host": True}, {"operator.LocalManager.host": "true"}),
        ({"c": "web"}, {"operator.LocalManager.containername": "web"}),
        ({"runtime-containername": "web"}, {"operator.LocalManager.containername": "web"}),
        ({"operator.oci.ebpf.map-fetch-interval": "2s"}, None),
        ({"map-fetch-count": 3}, {"operator.oci.ebpf.map-fetch-count": "3"}),
        (
            {"otel-metrics-print-interval": 0.25},
            {"operator.otel-metrics.otel-metrics-print-interval": "250000000ns"},
        ),
        ({"annotate": ["a:b=c", "d:e=f"]}, {"operator.oci.annotate": "a:b=c,d:e=f"}),
    ],
)
def test_parameters_of_a_real_gadget(
    replay: Any, given: dict[str, Any], sent: dict[str, str] | None
) -> None:
    with replay("gadget-info-top-cuda-memory") as host:
        request = host.run("image", given)._request.runRequest
    assert dict(request.paramValues) == (sent or given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"hots": 1}, "Did you mean host"),
        ({"pull": "sometimes"}, "always, missing, never"),
        ({"host": "perhaps"}, "true or false"),
        ({"map-fetch-count": "many"}, "whole number"),
        ({"otel-metrics-print-interval": "soon"}, "duration"),
        ({"host": True, "operator.LocalManager.host": True}, "twice"),
        ({"operator.oci.verify-image": False}, "no parameter"),
    ],
)
def test_wrong_parameters_of_a_real_gadget(replay: Any, given: dict[str, Any], words: str) -> None:
    with replay("gadget-info-top-cuda-memory") as host, pytest.raises(IgsdkError) as caught:
        host.run("image", given)
    assert isinstance(caught.value, UsageError)
    assert words in str(caught.value)
