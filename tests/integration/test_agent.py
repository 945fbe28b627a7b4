# SPDX-License-Identifier: Apache-2.0
"""igsdk agent: real BPF, the simulated driver, several clients over real sockets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from tests.support import gadget_books
from tests.support.agents import GADGET, SECONDS, Client, agent, agent_process, attached, client
from tests.support.inspektor_daemon import gadgetctl_program
from tests.support.recording import own_driver, paused
from tests.support.registry import make_certificates
from tests.support.simdriver import Driver, all_books

import igsdk
from igsdk._events import Frame, stack_id
from igsdk._proto import gadget_pb2 as pb
from igsdk.agent import feed, hub, service
from igsdk.agent.agent import Agent, Settings
from igsdk.agent.listen import TLS, Access
from igsdk.client.remote import RemoteRuntime

BEFORE = "use 0 = 0; alloc &a 1M; alloc &b 2M; managed &m 4096; allochost &h 8192; free a"
AFTER = "alloc &c 512; free b; alloc &x 100G; free m"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with agent(tmp_path_factory.mktemp("agent")) as one:
        yield one


@pytest.fixture
def driver(served: Agent, tmp_path: Path) -> Driver:
    """One that nobody else uses, with probes on before it is opened."""
    own = own_driver(tmp_path)
    served.hub.session.libraries.admit_path(str(own.libcuda))
    return own


def target_of(served: Agent) -> str:
    return served.targets[0]


def told(one: Client) -> Any:
    """As the comparison of books wants it."""
    return cast(Any, one)


def settle(one: Client, books: list[Any]) -> None:
    one.settle(
        lambda: gadget_books.unlike(told(one), books) == [],
        or_else=lambda: str(gadget_books.unlike(told(one), books)),
    )


def await_events(one: Client, count: int) -> None:
    one.settle(
        lambda: len(one.rows("events")) >= count, or_else=lambda: str(len(one.rows("events")))
    )


def test_clients_are_told_what_the_driver_did(
    served: Agent, driver: Driver, tmp_path: Path
) -> None:
    """Those that are there before a program, that come while it runs, and when it has ended."""
    name, target = driver.play.name, target_of(served)
    with client(target, comm=name) as early, client(target, comm=name) as other:
        with paused(driver, tmp_path, BEFORE, AFTER) as process, client(target, comm=name) as late:
            late.settle(lambda: bool(late.rows("heap")))
            settle(late, all_books(tmp_path))
            assert {row["mem_alloc_bytes"] for row in late.rows("heap")} == {0}
            assert {row["proc.pid"] for row in late.rows("heap")} == {process.pid}
        books = all_books(tmp_path)
        for one in (early, other):
            gadget_books.assert_booked(told(one), books)
            assert one.run.losses()["packets"] == 0
        with client(target, comm=name) as last:
            settle(last, books)


def test_each_row_is_of_a_process_and_a_stack_that_were_told_before(
    served: Agent, driver: Driver, tmp_path: Path
) -> None:
    name = driver.play.name
    with client(target_of(served), comm=name, events="all") as one:
        with paused(driver, tmp_path, BEFORE, AFTER):
            pass
        settle(one, all_books(tmp_path))
    stacks, processes = set(), set()
    for row in one.kept:
        if row.source == "stacks":
            stacks.add(row["id"])
        elif row.source == "processes":
            processes.add(row["process"])
        elif row.source in ("heap", "events"):
            assert row["stack"] in stacks
            assert row.source == "events" or row["process"] in processes
    known = served.hub.session.stacks.stacks
    assert stacks
    for row in one.rows("stacks"):
        frames = tuple(Frame(*values) for values in json.loads(row["frames"]))
        assert (frames, row["how"]) == (known[row["id"]].frames, known[row["id"]].how)
        assert row["id"] == stack_id(frames)


@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        ("all", ["ALLOCATION"] * 4 + ["FREE", "ALLOCATION", "FREE", "FAILURE", "FREE"]),
        ("failures", ["FAILURE"]),
        ("none", []),
    ],
)
def test_events(
    events: str, wanted: list[str], served: Agent, driver: Driver, tmp_path: Path
) -> None:
    with client(target_of(served), comm=driver.play.name, events=events) as one:
        with paused(driver, tmp_path, BEFORE, AFTER) as process:
            pass
        settle(one, all_books(tmp_path))
        one.run.stop()
        one.join()
    rows = one.rows("events")
    assert [row["type"] for row in rows] == wanted
    for row in rows:
        assert (row["proc.pid"], row["proc.comm"]) == (process.pid, driver.play.name)
        assert row["time_raw"] > row["epoch"] > 0
        assert row["row"] in one.latest("heap")
    for row in rows:
        if row["type"] == "FAILURE":
            assert (row["api"], row["result"]) == ("cuMemAlloc_v2", "CUDA_ERROR_OUT_OF_MEMORY")
            assert (row["bytes_raw"], row["in_use_raw"]) == (100 << 30, 512)


def test_a_run_is_told_of_what_it_asked_for(served: Agent, driver: Driver, tmp_path: Path) -> None:
    target = target_of(served)
    with paused(driver, tmp_path, BEFORE, AFTER) as process:
        namespace = Path(f"/proc/{process.pid}/ns/mnt").stat().st_ino
        own: list[dict[str, Any]] = [
            {"pid": process.pid},
            {"mntns": namespace, "comm": driver.play.name},
        ]
        for params in own:
            with client(target, **params) as one:
                one.await_rows("heap")
                assert {row["proc.pid"] for row in one.rows("heap")} == {process.pid}
        none: list[dict[str, Any]] = [{"pid": 1}, {"comm": "no"}]
        none += [{name: 4711} for name in ("uid", "gid", "mntns")]
        for params in none:
            with client(target, **params) as one:
                assert not one.rows("heap") + one.rows("processes")


def test_a_process_is_described(served: Agent, driver: Driver, tmp_path: Path) -> None:
    with paused(driver, tmp_path, BEFORE, AFTER) as process:
        with client(target_of(served), pid=process.pid) as one:
            one.await_rows("processes")
        (row,) = [r for r in one.latest("processes").values() if r["kind"] == "device"]
        assert row["cmdline"].startswith(str(driver.play))
        assert row["proc.creds.uid"] == os.geteuid()
        assert row["container_id"] == row["pod_uid"] == ""
        assert row["state"] == "live"
        assert (row["in_use_raw"], row["peak_raw"]) == (2 << 20, 3 << 20)
        assert row["process_peak"] == 3 << 20
        report = json.loads(one.rows("report")[-1]["json"])
    assert report["peak"] == "exact"
    assert str(driver.libcuda) in [library["path"] for library in report["attached"]]
    assert (report["boot"], report["epoch"]) == (row["boot"], row["epoch"])


def test_the_peak_is_of_the_whole_machine(served: Agent, driver: Driver, tmp_path: Path) -> None:
    """What stood then adds up, and rows are sent again when it changes."""
    with client(target_of(served)) as one:
        with paused(driver, tmp_path, "use 0 = 0; alloc &a 3M; alloc &b 2M; free b", "free a"):
            pass
        settle(one, all_books(tmp_path))
        tracer = served.hub.session.tracer

        def at_peak() -> int:
            return sum(row["peak_bytes"] for row in one.latest("heap").values())

        one.settle(
            lambda: at_peak() == tracer.peak()["bytes"] >= 5 << 20,
            or_else=lambda: f"{at_peak()} {tracer.peak()['bytes']}",
        )


def test_every_row_comes_again(
    served: Agent, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "RESEND", 1.0)
    with paused(driver, tmp_path, BEFORE, AFTER) as process:  # noqa: SIM117
        with client(target_of(served), pid=process.pid) as one:
            numbers = {
                row["row"]
                for row in served.hub.frame(time.monotonic()).heap.rows
                if row["proc.pid"] == process.pid
            }
            assert len(numbers) == 3

            def counts() -> dict[int, int]:
                rows = [row["row"] for row in one.rows("heap")]
                return {number: rows.count(number) for number in numbers}

            one.settle(lambda: min(counts().values()) > 2, or_else=lambda: str(counts()))
            assert max(counts().values()) - min(counts().values()) <= 1
            assert {row["mem_alloc_bytes"] for row in one.rows("heap")} == {0}


def test_the_last_packet_has_what_changed(served: Agent, driver: Driver, tmp_path: Path) -> None:
    """Of a run whose interval is not over by far."""
    with client(target_of(served), comm=driver.play.name, interval="1m", events="all") as one:
        with paused(driver, tmp_path, BEFORE, AFTER):
            pass
        assert not one.rows("heap")
        one.run.stop()
        one.join()
    assert gadget_books.unlike(told(one), all_books(tmp_path)) == []
    assert len(one.rows("events")) == 9


def test_a_run_ends_by_its_timeout(served: Agent) -> None:
    with RemoteRuntime(target_of(served)) as host:
        begun = time.monotonic()
        with host.run(GADGET, timeout=0.5) as run:
            assert {row.source for row in run.rows()} >= {"losses", "report"}
        assert time.monotonic() - begun < SECONDS


def test_instances(served: Agent, driver: Driver, tmp_path: Path) -> None:
    """They keep events for whoever comes, and the state is told whole."""
    target = target_of(served)
    with RemoteRuntime(target) as host:
        made = host.create(
            GADGET, {"comm": driver.play.name, "events": "all"}, name="kept", tags=("a", "b")
        )
        assert [(one.id, one.name, one.state, one.tags) for one in host.instances()] == [
            (made.id, "kept", "running", ("a", "b"))
        ]
        with pytest.raises(igsdk.RunRefused, match="already"):
            host.create(GADGET, name="kept")
        with paused(driver, tmp_path, BEFORE, AFTER):
            pass
        served.hub.settle()
        with attached(target, "kept") as first, attached(target, made.id) as second:
            for one in (first, second):
                settle(one, all_books(tmp_path))
                await_events(one, 9)
            host.remove("kept")
            first.join()
            second.join()
            assert (first.error, second.error) == (None, None)
        assert host.instances() == []
        with pytest.raises(igsdk.IgsdkError):
            host.attach("kept")
        with pytest.raises(igsdk.RunRefused, match="not found"):
            host.remove(made.id)


def test_an_instance_keeps_so_many_events(served: Agent, driver: Driver, tmp_path: Path) -> None:
    target = target_of(served)
    with RemoteRuntime(target) as host:
        made = host.create(GADGET, {"comm": driver.play.name, "events": "all"})
        with paused(driver, tmp_path, "use 0 = 0; pairs 2000 512", ""):
            pass
        served.hub.settle()
        with attached(target, made.id) as one:
            settle(one, all_books(tmp_path))
            await_events(one, 1024)
        host.remove(made.id)
    times = [row["time_raw"] for row in one.rows("events")]
    assert len(times) == 1024
    assert times == sorted(times)


def test_a_slow_client_loses_events_and_nobody_else(
    served: Agent, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "MOST_WAITING", 500)
    name, target = driver.play.name, target_of(served)
    with RemoteRuntime(target) as host, client(target, comm=name) as quick:
        slow = host.run(GADGET, {"comm": name, "events": "all", "interval": "100ms"})
        with slow:
            with paused(driver, tmp_path, "use 0 = 0; pairs 100000 512", AFTER.split("; ")[0]):
                settle(quick, all_books(tmp_path))
            books = all_books(tmp_path)
            settle(quick, books)
            late = Client(slow)
            settle(late, books)
            slow.stop()
            late.join()
            losses = slow.losses()
    assert losses["packets"] > 0
    causes = {row["cause"]: row["count"] for row in late.rows("losses")}
    assert causes["events"] == causes["events_unread"] == 0
    assert len(late.rows("events")) + losses["packets"] + losses["unread"] == 200_001


def test_a_client_that_is_killed_leaves_its_place(served: Agent) -> None:
    runs = served.hub
    before = len(runs._subscribers)
    code = (
        "import igsdk, sys\n"
        "with igsdk.client.remote.RemoteRuntime(sys.argv[1]) as host:\n"
        "    with host.run('profile_cuda_memory') as run:\n"
        "        next(iter(run.rows())); print('there', flush=True)\n"
        "        list(run.rows())\n"
    )
    argv = [sys.executable, "-c", f"import igsdk.client.remote\n{code}", target_of(served)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"there\n"
        assert len(runs._subscribers) == before + 1
        process.kill()
    until = time.monotonic() + SECONDS
    while len(runs._subscribers) != before:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_what_is_refused(served: Agent) -> None:
    with RemoteRuntime(target_of(served)) as host:
        with pytest.raises(igsdk.RunRefused, match="profile_cuda_memory"):
            host.run("trace_open:latest")
        for image in (f"registry.test/x/{GADGET}:v9", f"{GADGET}@sha256:00", GADGET):
            assert host.describe(image).image == image
        with pytest.raises(igsdk.UsageError, match="nonsense"):
            host.run(GADGET, {"nonsense": 1})
        with pytest.raises(igsdk.UsageError, match="one of none, failures, all"):
            host.run(GADGET, {"events": "some"})


def status_of(served: Agent, method: str, *messages: bytes) -> tuple[str, str]:
    """How a call ends, in the words of the service."""
    path = target_of(served).removeprefix("unix://")
    channel: Any
    with grpc.insecure_channel(f"unix:{path}") as channel:
        try:
            if method.endswith("RunGadget"):
                list(channel.stream_stream(method)(iter(messages), timeout=SECONDS))
            else:
                channel.unary_unary(method)(messages[0], timeout=SECONDS)
        except grpc.RpcError as error:
            ended: Any = error
            return ended.code().name, ended.details()
    return "OK", ""


def run_of(version: int = 1, **more: Any) -> bytes:
    asked = pb.GadgetRunRequest(imageName=GADGET, version=version, **more)
    return pb.GadgetControlRequest(runRequest=asked).SerializeToString()


def attach_to(number: str, version: int = 1) -> bytes:
    asked = pb.GadgetAttachRequest(id=number, version=version)
    return pb.GadgetControlRequest(attachRequest=asked).SerializeToString()


FIRST = "expected first control message to be gadget run request"


@pytest.mark.parametrize(
    ("method", "message", "words"),
    [
        ("GadgetManager/RunGadget", run_of(7), "expected version to be 1, got 7"),
        ("GadgetManager/RunGadget", attach_to("0" * 32), f"gadget {'0' * 32} not found"),
        ("GadgetManager/RunGadget", attach_to("0" * 32, 2), "expected version to be 1, got 2"),
        ("GadgetManager/RunGadget", b"\x12\x00", FIRST),
        ("GadgetManager/RunGadget", b"", FIRST),
        ("GadgetManager/RunGadget", b"\xff\xff", FIRST),
        ("GadgetManager/RunGadget", run_of(paramValues={"x": "y"}), "no parameter 'x'"),
        ("GadgetManager/GetGadgetInfo", b"", "expected version to be 1, got 0"),
        ("GadgetManager/GetGadgetInfo", b"\xff", "cannot be read"),
        ("GadgetInstanceManager/GetGadgetInstance", b"", "gadget  not found"),
        ("GadgetInstanceManager/CreateGadgetInstance", b"", "no other"),
        ("GadgetInstanceManager/CreateGadgetInstance", b"\xff", "cannot be read"),
    ],
)
def test_refusals_in_the_words_that_clients_know(
    method: str, message: bytes, words: str, served: Agent
) -> None:
    code, said = status_of(served, f"/api.{method}", message)
    assert code == "UNKNOWN"
    assert words in said


def test_who_says_nothing_keeps_no_thread_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "_FIRST_WORDS", 0.3)
    silence = threading.Event()
    with agent(tmp_path, most_runs=1) as one, grpc.insecure_channel(one.targets[0]) as channel:
        call: Any = channel.stream_stream("/api.GadgetManager/RunGadget")
        mute = [call(iter(silence.wait, True), timeout=SECONDS) for _ in range(20)]
        assert {each.code() for each in mute} == {grpc.StatusCode.CANCELLED}
        silence.set()
        with RemoteRuntime(one.targets[0]) as other:
            assert other.version
    assert caplog.records == []


def test_a_mistake_with_events_is_logged_once_and_does_not_end_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with agent(tmp_path) as one:
        failed = []

        def fail(_: float) -> None:
            failed.append(1)
            raise ValueError("a mistake")

        with monkeypatch.context() as patch:
            patch.setattr(one.hub, "_pump", fail)
            until = time.monotonic() + SECONDS
            while len(failed) < 3 and time.monotonic() < until:
                time.sleep(0.05)
        assert len(failed) >= 3
        assert one.hub._thread.is_alive()
    assert len(caplog.records) == 1


def test_a_half_close_is_a_stop(served: Agent) -> None:
    assert status_of(served, "/api.GadgetManager/RunGadget", run_of()) == ("OK", "")


def test_another_client_of_the_service(served: Agent, driver: Driver, tmp_path: Path) -> None:
    """Inspektor Gadget's own, where somebody has it: it follows what changes, and ends."""
    argv = [gadgetctl_program(), "run", GADGET, "--remote-address", target_of(served)]
    script = "use 0 = 0; repeat 60 { alloc &a 1M; sleep 100; free a }"
    with subprocess.Popen([driver.play, "-e", script], env=driver.environment(tmp_path)) as player:
        done = subprocess.run(
            [*argv, "--comm", driver.play.name, "--timeout", "3"],
            capture_output=True,
            text=True,
            timeout=25,
        )
        player.kill()
    assert done.returncode == 0, done.stderr
    assert "live_full" in done.stdout
    lines = [line.split() for line in done.stdout.splitlines()]
    of_player = [line for line in lines if line[:2] == [driver.play.name, str(player.pid)]]
    assert len(of_player) > 3


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming somebody else needs root")
def test_a_socket_is_for_its_group_alone() -> None:
    group, nobody = 4711, 65534
    ask = ["perl", "-MIO::Socket::UNIX", "-e", "exit !IO::Socket::UNIX->new(Peer => $ARGV[0])"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with agent(folder, access=Access(str(group))) as one:
            path = one.targets[0].removeprefix("unix://")
            for number, wanted in ((group, 0), (nobody, 1)):
                done = subprocess.run([*ask, path], user=nobody, group=number, extra_groups=[])
                assert done.returncode == wanted


def test_there_is_a_limit_of_runs(tmp_path: Path) -> None:
    with agent(tmp_path, most_runs=2) as one, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(client(one.targets[0]))
        with pytest.raises(igsdk.RunRefused, match="2 runs already"):
            stack.enter_context(client(one.targets[0]))


def test_what_ended_long_ago_is_forgotten_whole(
    served: Agent, driver: Driver, tmp_path: Path
) -> None:
    """Its memory is given back, and no row of others changes by it."""
    session, target = served.hub.session, target_of(served)
    with paused(driver, tmp_path, BEFORE, AFTER) as process:
        folder = tmp_path / "short"
        folder.mkdir()
        for _ in range(70):
            driver.run(BEFORE, folder)
        pids = {book.pid for book in all_books(folder)}
        books = [book for book in all_books(tmp_path) if book.pid == process.pid]
        until = time.monotonic() + SECONDS
        known = pids
        while len(known & pids) >= 64:  # the kernel's rows are moved in crowds
            assert time.monotonic() < until, len(known & pids)
            session.forget_ended(0.0)
            time.sleep(0.2)
            with client(target) as one:
                settle(one, books)
                known = {row["proc.pid"] for row in one.rows("processes")}
                assert process.pid in known
                heap = {row["process"] for row in one.rows("heap")}
                assert heap <= {row["process"] for row in one.rows("processes")}


def test_over_tls_with_certificates_of_clients(tmp_path: Path) -> None:
    authority = make_certificates(tmp_path)
    cert, key = (str(tmp_path / name) for name in ("cert.pem", "key.pem"))
    listen = ("tcp://127.0.0.1:0", f"unix:{tmp_path}/a.sock")
    with Agent(Settings(listen, tls=TLS(cert, key, str(authority)))) as one:
        over_tls, socket = one.targets
        assert over_tls.startswith("tcp+tls://127.0.0.1:")
        ours = igsdk.TLS(ca=str(authority), cert=cert, key=key)
        for target, tls in ((over_tls, ours), (socket, None)):
            with RemoteRuntime(target, tls=tls) as host, host.run(GADGET) as run:
                assert {row.source for row in run.rows(timeout=0.5)} >= {"losses", "report"}
        with pytest.raises(igsdk.IgsdkError):
            RemoteRuntime(over_tls, 2.0, tls=igsdk.TLS(ca=str(authority)))
        with pytest.raises(igsdk.IgsdkError):
            RemoteRuntime(over_tls.replace("tcp+tls", "tcp"), 2.0)


def test_the_end_of_an_agent_harms_nobody(tmp_path: Path) -> None:
    """Clients get their last rows; programs, and another agent, the killed one's place."""
    driver, socket = own_driver(tmp_path), tmp_path / "own.sock"
    target = f"unix://{socket}"
    with paused(driver, tmp_path, BEFORE, AFTER) as process:
        with agent_process(socket) as one:
            one.kill()
            one.wait()
        assert socket.exists()
        with agent_process(socket) as one:
            with client(target, interval="1m") as ours:
                one.send_signal(signal.SIGTERM)
                ours.join()
                assert ours.error is None
            assert one.wait(SECONDS) == 0
        assert not socket.exists()
        assert list(tmp_path.glob(".own*")) == []
    assert process.returncode == 0
