# SPDX-License-Identifier: Apache-2.0
"""Runs over gRPC, against a server of our own that behaves, or does not."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tests.support import gadget_packets as gp
from tests.support.gadget_fields import gadgets, same, visible
from tests.support.gadget_server import (
    GadgetServer,
    Session,
    described,
    gadget_server,
    serving_process,
)
from tests.support.opens import QUIET, SOURCE, SPECS, opens, saying, until_stopped

from igsdk._errors import (
    IgsdkError,
    PermissionMissing,
    TargetUnavailable,
    UsageError,
)
from igsdk._proto import gadget_pb2 as pb
from igsdk.client.remote import RemoteRuntime


def test_rows_come_as_they_are_made(server: GadgetServer, host: RemoteRuntime) -> None:
    more = threading.Event()

    def run(session: Session) -> Iterator[Any]:
        yield described(SOURCE)
        yield gp.packet(opens(1, 2), 1)
        assert more.wait(20)
        yield gp.packet([], 2)
        yield gp.packet(opens(3), 3)

    server.run = run
    with host.run("opens") as ours:
        rows = ours.rows()
        assert next(rows) == {"pid": 1, "path": "/proc/1"}
        again = ours.rows(timeout=0.05)
        assert [row["pid"] for row in again] == [2]  # nothing is lost between two loops
        more.set()
        assert [(row.source, row["pid"]) for row in rows] == [("opens", 3)]
        assert list(ours.rows()) == []
        assert ours.losses() == QUIET


def test_the_request_is_what_was_asked_for(server: GadgetServer, host: RemoteRuntime) -> None:
    params = [
        pb.Param(key="pid", prefix="operator.oci.ebpf.", typeHint="uint32", defaultValue="0"),
        pb.Param(key="pull", prefix="operator.oci.", typeHint="string"),
    ]
    asked = []

    def describe(request: pb.GetGadgetInfoRequest) -> pb.GadgetInfo:
        asked.append(request)
        return pb.GadgetInfo(params=params)

    server.describe = describe
    server.run = saying()
    with host.run("opens:v1", {"pid": 7, "pull": "never"}, timeout=1.5, log_level="debug"):
        pass
    request = server.sessions[0].request.runRequest
    assert asked[0].version == request.version == 1
    assert asked[0].imageName == request.imageName == "opens:v1"
    assert dict(asked[0].paramValues) == {"operator.oci.pull": "never"}
    assert dict(request.paramValues) == {
        "operator.oci.ebpf.pid": "7",
        "operator.oci.pull": "never",
    }
    assert (request.logLevel, request.timeout) == (5, 1_500_000_000)


def test_the_send_side_stays_open_until_the_end(server: GadgetServer, host: RemoteRuntime) -> None:
    server.run = until_stopped(gp.packet(opens(1), 1))
    with host.run("opens") as ours:
        (session,) = server.sessions
        assert next(ours.rows())["pid"] == 1
        assert not session.half_closed.wait(0.3)
        ours.stop()
        assert session.asked_to_stop.is_set()
        assert ours.error is None


def test_what_came_before_the_stop_is_there_after_it(
    server: GadgetServer, host: RemoteRuntime
) -> None:
    def run(session: Session) -> Iterator[Any]:
        yield described(SOURCE)
        yield from (gp.packet(opens(number), number) for number in range(1, 101))
        assert session.stop.wait(30)
        yield gp.packet(opens(101), 101)

    server.run = run
    with host.run("opens") as ours:
        ours.stop()
        assert [row["pid"] for row in ours.rows()] == list(range(1, 102))
        ours.stop()


def test_collecting_for_a_time_and_to_the_end(server: GadgetServer, host: RemoteRuntime) -> None:
    def run(session: Session) -> Iterator[Any]:
        yield described(SOURCE, gp.source("others", SPECS))
        for number in itertools.count(1):
            yield gp.packet(opens(number), number)
            if session.stop.wait(0.02):
                return

    server.run = run
    with host.run("opens") as ours:
        started = time.monotonic()
        collected = ours.collect(0.5)
        assert 0.4 < time.monotonic() - started < 10
        ours.stop()
        rest = ours.collect()
    assert list(collected) == ["opens", "others"]
    assert collected["others"].rows == 0
    pids = [*collected["opens"]["pid"], *rest["opens"]["pid"]]
    assert pids == list(range(1, len(pids) + 1))
    assert collected["opens"].rows > 3


def test_collecting_ends_in_time_where_packets_never_end(
    server: GadgetServer, host: RemoteRuntime
) -> None:
    data = gp.packet(opens(*range(50)), 1).SerializeToString()

    def run(session: Session) -> Iterator[Any]:
        yield described(SOURCE)
        while not session.stop.is_set():
            yield data

    server.run = run
    with host.run("opens") as ours:
        started = time.monotonic()
        assert ours.collect(0.3)["opens"].rows > 0
        assert time.monotonic() - started < 10


def test_several_data_sources_and_single_events(server: GadgetServer, host: RemoteRuntime) -> None:
    one = gp.source("events", SPECS, array=False)
    server.run = lambda session: iter(
        (
            described(SOURCE, one),
            gp.packet(opens(1), 1),
            gp.packet(opens(2), 2, array=False, number=1),
            gp.packet(opens(3), 3),
        )
    )
    with host.run("opens") as ours:
        assert list(ours.gadget.sources) == ["opens", "events"]
        assert [row["pid"] for row in ours.rows("events")] == [2]
        with pytest.raises(UsageError, match="'closes'"):
            next(ours.rows("closes"))


def test_batches_are_packets_as_columns(server: GadgetServer, host: RemoteRuntime) -> None:
    server.run = saying(gp.packet(opens(1, 2), 1), gp.packet([], 2), gp.packet(opens(3), 3))
    with host.run("opens") as ours:
        assert [batch["pid"].tolist() for batch in ours.batches()] == [[1, 2], [], [3]]


@given(gadgets())
@settings(max_examples=40, deadline=None)
def test_every_kind_comes_back_over_a_socket(made: Any) -> None:
    specs, rows, big = made
    server, host = _shared()
    server.run = lambda session: iter(
        (
            described(gp.source("s", specs, big=big)),
            gp.packet([gp.element(specs, row, big) for row in rows], 1),
        )
    )
    with host.run("any") as ours:
        read = list(ours.rows())
        assert ours.losses() == QUIET
    for row, wanted in zip(read, (visible(specs, row) for row in rows), strict=True):
        assert all(same(wanted[name], row[name]) for name in wanted)


_shared_parts: list[Any] = []


def _shared() -> tuple[GadgetServer, RemoteRuntime]:
    """One server for all examples; hypothesis takes no fixture that is made for each test."""
    return _shared_parts[0], _shared_parts[1]


@pytest.fixture(scope="module", autouse=True)
def _one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with (
        gadget_server(tmp_path_factory.mktemp("shared") / "socket") as ours,
        RemoteRuntime(ours.target) as host,
    ):
        _shared_parts[:] = [ours, host]
        yield


def test_packets_larger_than_grpcs_own_limit(server: GadgetServer, host: RemoteRuntime) -> None:
    long = "x" * 100_000
    rows = [gp.element(SPECS, [pid, long]) for pid in range(100)]
    server.run = saying(gp.packet(rows, 1))
    with host.run("opens") as ours:
        assert [row["path"] == long for row in ours.rows()] == [True] * 100


def test_over_tcp() -> None:
    with gadget_server("127.0.0.1:0") as server:
        server.run = saying(gp.packet(opens(1), 1))
        with RemoteRuntime(server.target) as host, host.run("opens") as run:
            assert [row["pid"] for row in run.rows()] == [1]


# Addresses


def test_sockets_that_lead_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with pytest.raises(TargetUnavailable, match="no socket"):
        RemoteRuntime(f"unix://{path}")
    path.write_text("")
    with pytest.raises(TargetUnavailable, match="is no socket"):
        RemoteRuntime(f"unix:{path}")
    path.unlink()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with pytest.raises(TargetUnavailable, match="Nobody serves"):
        RemoteRuntime(f"unix:{path}")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_a_socket_that_is_not_for_us() -> None:
    code = (
        "import grp, os, sys\n"
        "from igsdk.client.address import parse\n"
        "from igsdk.client.knock import knock\n"
        "from igsdk._errors import PermissionMissing\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try:\n    knock(parse(sys.argv[1]), 5)\n"
        "except PermissionMissing as error:\n    print(error)\n"
    )
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as ours:
        Path(folder).chmod(0o711)
        path = Path(folder, "socket")
        ours.bind(str(path))
        ours.listen()
        path.chmod(0o660)
        argv = [sys.executable, "-c", code, f"unix:{path}"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(f"The socket {path} is not for you. Become root, or have")
    assert PermissionMissing.exit_code == 3


@pytest.mark.parametrize(
    "target",
    [
        *("unix:", "unix://relative", "unix:/" + "x" * 200, "unix:/a\0b", "tcp:", "tcp://host"),
        *("tcp://host:0", "tcp://host:70000", "tcp://a b:80", "tcp://host:80/path", "tcp://:80"),
    ],
)
def test_targets_that_are_none(target: str) -> None:
    with pytest.raises(UsageError):
        RemoteRuntime(target)


def test_a_port_that_nobody_serves() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        started = time.monotonic()
        with pytest.raises(TargetUnavailable, match="Nobody listens at"):
            RemoteRuntime(f"tcp://127.0.0.1:{port}", connect_timeout=0.5)
        assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"timeout": 0}, UsageError),
        ({"log_level": "loud"}, UsageError),
        ({"params": {"nothing": 1}}, UsageError),
        ({"params": {"pull": "\udcff"}}, UsageError),
        ({"image": "opens\udcff"}, UsageError),
    ],
)
def test_runs_that_make_no_sense(
    host: RemoteRuntime, change: dict[str, Any], error: type[IgsdkError]
) -> None:
    with pytest.raises(error):
        host.run(**{"image": "opens", **change})


def test_a_run_starts_once(server: GadgetServer, host: RemoteRuntime) -> None:
    server.run = saying()
    run = host.run("opens")
    with pytest.raises(UsageError, match="not started"):
        run.gadget  # noqa: B018
    with run, pytest.raises(UsageError, match="only once"):
        run.__enter__()


def test_a_connection_that_was_closed(server: GadgetServer) -> None:
    server.run = saying()
    with RemoteRuntime(server.target) as host:
        run = host.run("opens")
    with pytest.raises(UsageError, match="closed"):
        host.describe("opens")
    with pytest.raises(UsageError, match="closed"):
        run.__enter__()


def test_ctrl_c_while_waiting_for_rows(server: GadgetServer) -> None:
    server.run = until_stopped()
    code = (
        "import sys\n"
        "from igsdk.client.remote import RemoteRuntime\n"
        "with RemoteRuntime(sys.argv[1]) as host, host.run('opens') as run:\n"
        "    print('waits', flush=True)\n"
        "    list(run.rows())\n"
    )
    argv = [sys.executable, "-c", code, server.target]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waits\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert told.rstrip().endswith(b"KeyboardInterrupt")
    assert server.sessions[0].asked_to_stop.is_set()


def test_no_thread_stays_behind(server: GadgetServer, host: RemoteRuntime) -> None:
    server.run = until_stopped(gp.packet(opens(1), 1))
    for _ in range(3):
        with host.run("opens"):
            pass
    until = time.monotonic() + 10
    while "igsdk run" in (names := [thread.name for thread in threading.enumerate()]):
        assert time.monotonic() < until, names
        time.sleep(0.05)


def test_the_example(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed: pip install 'igsdk[data]'")
    script = Path(__file__).parents[2] / "examples" / "opens_to_frame.py"
    with serving_process(tmp_path / "socket") as (_, target):
        argv = [sys.executable, str(script), target, "0.3"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    heading, count, losses = done.stdout.splitlines()
    assert heading == "proc.comm"
    assert count.split()[0] == "sh"
    assert int(count.split()[1]) > 3
    assert losses == "nothing was lost"


def test_nothing_heavy_before_it_is_needed(tmp_path: Path) -> None:
    code = (
        "import sys, igsdk\n"
        "with igsdk.connect(sys.argv[1]) as host, host.run('opens') as run:\n"
        "    next(run.rows())\n"
        "print(*sys.modules)\n"
    )
    with serving_process(tmp_path / "socket") as (_, target):
        argv = [sys.executable, "-c", code, target]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert {"numpy", "pandas", "pyarrow", "click"}.isdisjoint(done.stdout.split())


@pytest.mark.parametrize(
    ("package", "code", "extra"),
    [
        ("grpc", "igsdk.connect('unix:///nowhere')", "igsdk[remote]"),
        ("pandas", "columns.to_pandas()", "igsdk[data]"),
        ("pyarrow", "columns.to_arrow()", "igsdk[data]"),
    ],
)
def test_extras_that_are_not_installed(package: str, code: str, extra: str) -> None:
    script = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "import igsdk\n"
        "from igsdk.client.schema import DataSource\n"
        "columns = igsdk.Columns(DataSource(0, 's', True, ()), {}, 0)\n"
        f"try:\n    {code}\nexcept igsdk.ExtensionMissing as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr == ""
    assert extra in done.stdout


def test_this_machine_runs_no_other_gadgets() -> None:
    from igsdk._run import LocalRuntime

    local = LocalRuntime.__new__(LocalRuntime)  # as it is without root
    for method in (local.run, local.describe, local.create, local.instances, local.attach):
        with pytest.raises(TargetUnavailable, match="local:"):
            method("trace_open:latest")


def test_from_asyncio(server: GadgetServer, host: RemoteRuntime) -> None:
    """As docs/sdk.md shows it: waiting in a thread, ended from the loop."""
    server.run = until_stopped(gp.packet(opens(1, 2), 1))

    async def main() -> list[int]:
        pids = []
        with host.run("opens") as run:
            rows = run.rows()
            asyncio.get_running_loop().call_later(0.3, threading.Thread(target=run.stop).start)
            while (row := await asyncio.to_thread(next, rows, None)) is not None:
                pids.append(row["pid"])
        return pids

    assert asyncio.run(main()) == [1, 2]
