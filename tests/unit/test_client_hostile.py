# SPDX-License-Identifier: Apache-2.0
"""Daemons that send what none should, say nothing, never end or die: errors with a cause,
and counts; never a crash, a hang or memory without end."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support import gadget_packets as gp
from tests.support.gadget_server import (
    GadgetServer,
    Refusal,
    Session,
    described,
    log,
    serving_process,
)
from tests.support.opens import QUIET, SOURCE, SPECS, opens, saying

from igsdk._errors import AnswerInvalid, IgsdkError, RunRefused, TargetUnavailable
from igsdk._proto import gadget_pb2 as pb
from igsdk.client.remote import RemoteRuntime


@pytest.mark.parametrize(
    ("numbers", "lost", "repeated"),
    [
        ((1, 2, 5, 6), 2, 0),
        ((3,), 2, 0),
        ((1, 2, 2, 1, 3), 0, 2),
        ((1, 2**31), 2**31 - 2, 0),
        ((1, 2**32 - 1), 0, 1),
    ],
)
def test_gaps_are_counted(
    server: GadgetServer, host: RemoteRuntime, numbers: tuple[int, ...], lost: int, repeated: int
) -> None:
    server.run = saying(*(gp.packet(opens(1), number) for number in numbers))
    with host.run("opens") as ours:
        assert len(list(ours.rows())) == len(numbers)
        assert ours.losses() == {**QUIET, "packets": lost, "repeated": repeated}


def test_what_cannot_be_read_is_counted_and_passed_over(
    server: GadgetServer, host: RemoteRuntime
) -> None:
    short = pb.DataElement(payload=[b"123", b"path"])
    server.run = saying(
        b"\xff\xff\xff",
        pb.GadgetEvent(type=0, seq=1, payload=b"\x1a\xff"),
        gp.packet([*opens(1), short, pb.DataElement(), *opens(2)], 2),
        gp.packet(opens(9), 3, number=77),
        *(pb.GadgetEvent(type=kind) for kind in (1, 2, 3, 5, 99, 7 << 16, (3 << 16) + 1)),
        described(SOURCE),
        gp.packet(opens(3), 4),
    )
    with host.run("opens") as ours:
        assert [row["pid"] for row in ours.rows()] == [1, 2, 3]
        assert ours.losses() == {
            **QUIET,
            "unreadable_events": 1,
            "unreadable_packets": 2,
            "unreadable_rows": 2,
            "unknown_events": 5,
        }


def test_the_same_is_counted_for_columns(server: GadgetServer, host: RemoteRuntime) -> None:
    short = pb.DataElement(payload=[b"123", b"path"])
    server.run = saying(
        pb.GadgetEvent(type=0, seq=1, payload=b"\x1a\xff"), gp.packet([*opens(1), short], 2)
    )
    with host.run("opens") as ours:
        assert ours.collect()["opens"]["pid"].tolist() == [1]
        assert ours.losses() == {**QUIET, "unreadable_packets": 1, "unreadable_rows": 1}


def test_endless_logs_take_neither_memory_nor_rows(
    server: GadgetServer, host: RemoteRuntime
) -> None:
    server.run = saying(
        *(log(4, f"line {number} " + "x" * 20_000) for number in range(1_200)),
        gp.packet(opens(1), 1),
        log(2, "bad \x1b[31m\xff"),
        pb.GadgetEvent(type=0, seq=0, payload=b"all is over"),
    )
    with host.run("opens") as ours:
        assert [row["pid"] for row in ours.rows()] == [1]
        logs, losses = ours.logs, ours.losses()
    assert losses == {**QUIET, "log_lines": 202}
    assert len(logs) == 1000
    assert max(len(line.text) for line in logs) == 16384
    assert [(line.level, line.text) for line in logs[-2:]] == [
        ("error", "bad \x1b[31m\xff"),
        ("panic", "all is over"),
    ]


def test_packets_before_the_description_are_counted(
    server: GadgetServer, host: RemoteRuntime
) -> None:
    server.run = lambda session: iter(
        (gp.packet(opens(1), 1), described(SOURCE), gp.packet(opens(2), 2))
    )
    with host.run("opens") as ours:
        assert [row["pid"] for row in ours.rows()] == [2]
        assert ours.losses() == {**QUIET, "unreadable_packets": 1}


def fails_at_start(host: RemoteRuntime, error: type[IgsdkError]) -> IgsdkError:
    run = host.run("opens")
    with pytest.raises(error) as caught:
        run.__enter__()
    assert caught.value.cause
    assert caught.value.remedy
    return caught.value


def test_no_description_at_all(server: GadgetServer, host: RemoteRuntime) -> None:
    server.run = lambda session: iter((gp.packet(opens(1), 1),))
    assert "without saying" in fails_at_start(host, AnswerInvalid).cause


@pytest.mark.parametrize(
    "told",
    [
        b"\xff\xff",
        b"\x32\x80\x80\x80\x08" + b"x" * (16 << 20),
        b"twice",
        b"same number",
        b"no type",
        b"many",
    ],
    ids=["no message", "huge", "twice", "same number", "no type", "many"],
)
def test_descriptions_that_make_no_sense(
    server: GadgetServer, host: RemoteRuntime, told: bytes
) -> None:
    sources = {
        b"twice": [SOURCE, SOURCE],
        b"same number": [SOURCE, gp.source("others", SPECS)],
        b"no type": [pb.DataSource(name="opens")],
        b"many": [gp.source(str(number), SPECS, number=number) for number in range(300)],
    }.get(told)
    data = pb.GadgetInfo(dataSources=sources).SerializeToString() if sources else told
    server.run = lambda session: itertools.chain(
        (pb.GadgetEvent(type=4, payload=data),), (log(4, "on and on") for _ in range(10**6))
    )
    fails_at_start(host, AnswerInvalid)


def test_answers_without_end(server: GadgetServer, host: RemoteRuntime) -> None:
    server.describe = lambda request: pb.GadgetInfo(params=[pb.Param()] * 5000)
    with pytest.raises(AnswerInvalid, match="5,000 parameters"):
        host.describe("opens")
    server.describe = lambda request: pb.GadgetInfo(metadata=b"x" * (9 << 20))
    with pytest.raises(AnswerInvalid, match="bytes"):
        host.describe("opens")
    server.describe = lambda request: pb.GadgetInfo(metadata=b"x" * (65 << 20))
    with pytest.raises(AnswerInvalid, match="more at once than we take"):
        host.describe("opens")


def test_endless_packets_without_rows_end_in_time(
    server: GadgetServer, host: RemoteRuntime
) -> None:
    def run(session: Session) -> Iterator[Any]:
        yield described(SOURCE)
        for number in itertools.count(1):
            yield gp.packet([], number)
            if session.stop.wait(0.001):
                return

    server.run = run
    with host.run("opens") as ours:
        started = time.monotonic()
        assert list(ours.rows(timeout=0.3)) == []
        assert 0.2 < time.monotonic() - started < 10


def test_silence_ends_in_time(server: GadgetServer) -> None:
    def run(session: Session) -> Iterator[Any]:
        session.stop.wait(30)
        yield described(SOURCE)

    server.run = run
    with RemoteRuntime(server.target, call_timeout=0.5) as host:
        started = time.monotonic()
        assert "within 0.5 s" in fails_at_start(host, TargetUnavailable).cause
        assert time.monotonic() - started < 10
        server.describe = lambda request: pb.GadgetInfo(name=str(time.sleep(2)))  # type: ignore[func-returns-value]
        with pytest.raises(TargetUnavailable, match="in time"):
            host.describe("opens")


def test_a_daemon_that_does_not_stop_is_left(server: GadgetServer, host: RemoteRuntime) -> None:
    done = threading.Event()

    def run(session: Session) -> Iterator[Any]:
        yield described(SOURCE)
        for number in itertools.count(1):
            yield gp.packet(opens(number), number)
            if done.is_set():
                return

    server.run = run
    with host.run("opens") as ours:
        started = time.monotonic()
        ours.stop(timeout=0.3)
        assert time.monotonic() - started < 10
        assert ours.error is None
        assert next(ours.rows())["pid"] == 1
        assert sum(1 for _ in ours.rows()) > 0  # and has an end
    done.set()


def test_a_slow_reader_bounds_memory_and_loses_nothing(
    server: GadgetServer, host: RemoteRuntime
) -> None:
    made = 0

    def run(session: Session) -> Iterator[Any]:
        nonlocal made
        yield described(SOURCE)
        long = "x" * (1 << 20)
        for number in range(1, 201):
            made = number
            yield gp.packet([gp.element(SPECS, [number, long])], number)

    server.run = run
    with host.run("opens") as ours:
        until = time.monotonic() + 20
        before = -1
        while made != before and time.monotonic() < until:
            before = made
            time.sleep(0.5)
        assert 60 <= made < 120  # 64 MiB here, and what gRPC holds on both sides
        assert [row["pid"] for row in ours.rows()] == list(range(1, 201))
        assert ours.losses() == QUIET


def test_a_stream_that_breaks_gives_what_came_and_then_says_so(
    server: GadgetServer, host: RemoteRuntime
) -> None:
    def run(session: Session) -> Iterator[Any]:
        yield described(SOURCE)
        yield gp.packet(opens(1, 2), 1)
        raise Refusal("the map is gone", grpc.StatusCode.UNKNOWN)

    server.run = run
    with host.run("opens") as ours:
        rows = ours.rows()
        assert [next(rows)["pid"], next(rows)["pid"]] == [1, 2]
        with pytest.raises(RunRefused, match="the map is gone"):
            next(rows)
    with host.run("opens") as ours:
        assert ours.collect()["opens"]["pid"].tolist() == [1, 2]
        assert isinstance(ours.error, RunRefused)
        with pytest.raises(RunRefused):
            ours.collect()


def test_a_daemon_that_is_killed(tmp_path: Path) -> None:
    with serving_process(tmp_path / "socket") as (process, target), RemoteRuntime(target) as host:
        with host.run("opens") as run:
            rows = run.rows()
            assert [next(rows)["pid"] for _ in range(3)] == [1, 2, 3]
            process.kill()
            with pytest.raises(TargetUnavailable, match=r"The connection to unix:.* ended"):
                list(rows)
        with pytest.raises(TargetUnavailable):
            host.describe("opens")


def test_what_is_no_gadget_daemon(tmp_path: Path, server: GadgetServer) -> None:
    bare = grpc.server(futures.ThreadPoolExecutor(1))
    bare.add_insecure_port(f"unix:{tmp_path / 'bare'}")
    bare.start()
    with pytest.raises(AnswerInvalid, match="no gadget daemon"):
        RemoteRuntime(f"unix:{tmp_path / 'bare'}")
    bare.stop(None).wait()
    server.info = lambda: b"\xff\xff"
    with pytest.raises(AnswerInvalid, match="cannot be read"):
        RemoteRuntime(server.target)


def test_a_daemon_of_another_protocol_says_so(server: GadgetServer, host: RemoteRuntime) -> None:
    def run(session: Session) -> Iterator[Any]:
        raise Refusal("expected version to be 2, got 1")

    server.run = run
    error = fails_at_start(host, RunRefused)
    assert "expected version to be 2, got 1" in error.cause
    assert error.remedy == "Use the igsdk and the daemon of releases that fit."


def test_a_million_rows_of_nothing_take_little_memory() -> None:
    code = (
        "import resource\n"
        "from igsdk.client.columns import ColumnReader\n"
        "from igsdk.client.kinds import kind_of\n"
        "from igsdk.client.schema import DataSource, Field\n"
        "source = DataSource(0, 's', True, (Field('pid', kind_of(8), 0, 0, 4),))\n"
        "def most():\n    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = most()\n"
        "columns, broken = ColumnReader(source).read([bytes((0x1a, 0)) * 1_000_000])\n"
        "print(columns.rows, columns.unreadable, broken, (most() - before) // 1024)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rows, unreadable, broken, mebibytes = map(int, done.stdout.split())
    assert (rows, unreadable, broken) == (0, 1_000_000, 0)
    assert mebibytes < 100
