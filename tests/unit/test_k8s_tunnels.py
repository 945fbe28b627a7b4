# SPDX-License-Identifier: Apache-2.0
"""Tunnels: bytes both ways, what ends them, and that nothing of them stays."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.frames import server_frame, unmasked

from igsdk._errors import TargetUnavailable
from igsdk.client.k8s.tunnels import Tunnel, Tunnels

HELLO = server_frame(b"\0\x90\x1f") + server_frame(b"\1\x90\x1f")


@pytest.fixture
def tunnels() -> Iterator[Tunnels]:
    ours = Tunnels()
    yield ours
    ours.close()


class Ways:
    """Hands out one end of socket pairs, and keeps the pod's ends."""

    def __init__(self) -> None:
        self.pods: list[socket.socket] = []
        self.error = ""
        self.greeting = b""

    def open(self) -> socket.socket:
        if self.error:
            raise TargetUnavailable(self.error, "Try again.")
        ours, pod = socket.socketpair()
        pod.sendall(HELLO + self.greeting)
        pod.settimeout(10)
        self.pods.append(pod)
        return ours


@pytest.fixture
def ways() -> Iterator[Ways]:
    ours = Ways()
    yield ours
    for pod in ours.pods:
        pod.close()


def path_of(tunnel: Tunnel) -> Path:
    return Path(tunnel.target.removeprefix("unix://"))


def dial(tunnel: Tunnel, hello: bytes = b"hello") -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(10)
    client.connect(str(path_of(tunnel)))
    client.sendall(hello)
    return client


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def receive(pod: socket.socket, size: int) -> bytes:
    """So many bytes as a pod gets them out of frames of less than 126 bytes."""
    data = b""
    while len(data) < size:
        head = read(pod, 2)
        frame = head + read(pod, (head[1] & 0x7F) + 4)
        kind, body = unmasked(frame)
        if kind == 2:
            assert body[:1] == b"\0"
            data += body[1:]
    return data


def read(side: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer where the other side ends."""
    data = b""
    with contextlib.suppress(ConnectionResetError):  # of an end that left something unread
        while len(data) < size and (piece := side.recv(size - len(data))):
            data += piece
    return data


def test_bytes_go_both_ways(tunnels: Tunnels, ways: Ways) -> None:
    with dial(tunnels.add(ways.open)) as client:
        until(lambda: bool(ways.pods))
        assert receive(ways.pods[0], 5) == b"hello"
        ways.pods[0].sendall(server_frame(b"\0answer"))
        assert read(client, 6) == b"answer"


def test_only_we_may_enter_and_nothing_listens_on_tcp(tunnels: Tunnels, ways: Ways) -> None:
    path = path_of(tunnels.add(ways.open))
    until(path.exists)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert len(os.fsencode(path)) <= 103  # what macOS takes


def test_a_long_temporary_folder_is_not_used(
    ways: Ways, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    ours = Tunnels()
    try:
        path = path_of(ours.add(ways.open))
        assert len(os.fsencode(path)) <= 103
        assert not list(deep.iterdir())
    finally:
        ours.close()
    assert not path.parent.exists()


def test_a_way_that_was_prepared_is_taken_first(tunnels: Tunnels, ways: Ways) -> None:
    tunnel = tunnels.add(ways.open)
    ways.greeting = server_frame(b"\0welcome")
    assert tunnel.prepare() == ""
    with dial(tunnel) as client:
        assert receive(ways.pods[0], 5) == b"hello"
        assert read(client, 7) == b"welcome"
    with dial(tunnel):
        until(lambda: len(ways.pods) == 2)


def test_who_only_knocks_needs_no_way(tunnels: Tunnels, ways: Ways) -> None:
    tunnel = tunnels.add(ways.open)
    for _ in range(3):
        dial(tunnel, b"").close()
    with dial(tunnel):
        until(lambda: bool(ways.pods))
        receive(ways.pods[0], 5)
    assert len(ways.pods) == 1


def test_what_the_pod_said_last_comes_before_the_end(tunnels: Tunnels, ways: Ways) -> None:
    last = bytes(range(256)) * 4000
    with dial(tunnels.add(ways.open)) as client:
        until(lambda: bool(ways.pods))
        assert receive(ways.pods[0], 5) == b"hello"
        sender = threading.Thread(target=_say_and_leave, args=(ways.pods[0], last))
        sender.start()
        sender.join()
        client.sendall(b"a pod that is gone hears nothing")
        assert read(client, len(last)) == last
        assert read(client, 1) == b""


def _say_and_leave(pod: socket.socket, data: bytes) -> None:
    for start in range(0, len(data), 32 << 10):
        pod.sendall(server_frame(b"\0" + data[start : start + (32 << 10)]))
    pod.close()


def test_a_closed_tunnel_still_brings_what_is_said_last(tunnels: Tunnels, ways: Ways) -> None:
    tunnel = tunnels.add(ways.open)
    with dial(tunnel) as client:
        until(lambda: bool(ways.pods))
        tunnel.close()
        until(lambda: not path_of(tunnel).exists())
        ways.pods[0].sendall(server_frame(b"\0bye"))
        assert read(client, 3) == b"bye"


def test_a_slow_client_makes_the_pod_wait_and_nobody_else(tunnels: Tunnels, ways: Ways) -> None:
    tunnel = tunnels.add(ways.open)
    with dial(tunnel) as slow:
        until(lambda: bool(ways.pods))
        flood = server_frame(b"\0" + bytes(60_000)) * 1000
        ways.pods[0].settimeout(0.2)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < len(flood):
                sent += ways.pods[0].send(memoryview(flood)[sent:])
        assert sent < len(flood) / 4, "it takes without end"
        with dial(tunnel) as quick:
            until(lambda: len(ways.pods) == 2)
            ways.pods[1].sendall(server_frame(b"\0quick"))
            assert read(quick, 5) == b"quick"
        whole = sent // (len(flood) // 1000) * 60_000
        assert read(slow, whole) == bytes(whole)


def test_why_a_port_does_not_answer_is_known(tunnels: Tunnels, ways: Ways) -> None:
    tunnel = tunnels.add(ways.open)
    with dial(tunnel) as client:
        until(lambda: bool(ways.pods))
        ways.pods[0].sendall(server_frame(b"\1nobody listens there"))
        assert read(client, 1) == b""
    until(lambda: tunnel.why == "nobody listens there")


def test_a_port_that_does_not_answer_is_found_out_at_once(tunnels: Tunnels, ways: Ways) -> None:
    tunnel = tunnels.add(ways.open)
    ways.greeting = server_frame(b"\1nobody listens there")
    assert tunnel.prepare() == "nobody listens there"
    ways.greeting = server_frame(b"\x03\xe8", kind=8)
    assert "ended" in tunnel.prepare()
    ways.greeting = b"\xff\xff"
    assert "no frames" in tunnel.prepare()


def test_a_way_that_cannot_be_opened_ends_the_connection(tunnels: Tunnels, ways: Ways) -> None:
    tunnel = tunnels.add(ways.open)
    ways.error = "The API server does not let you."
    with dial(tunnel) as client:
        assert read(client, 1) == b""
    until(lambda: "does not let you" in tunnel.why)
    with pytest.raises(TargetUnavailable, match="does not let you"):
        tunnel.prepare()


def test_garbage_from_the_api_server_ends_the_connection(tunnels: Tunnels, ways: Ways) -> None:
    tunnel = tunnels.add(ways.open)
    with dial(tunnel) as client:
        until(lambda: bool(ways.pods))
        ways.pods[0].sendall(b"HTTP/1.1 500 oh no\r\n")
        assert read(client, 1) == b""
    until(lambda: "no port-forward" in tunnel.why)


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_nothing_stays(ways: Ways) -> None:
    before = (descriptors(), threading.active_count())
    ours = Tunnels()
    ways.greeting = server_frame(b"\0welcome")
    for _ in range(4):
        tunnel = ours.add(ways.open)
        tunnel.prepare()
        dial(tunnel).close()
        tunnel.prepare()
    folder = path_of(tunnel).parent
    late = threading.Event()

    def slow() -> socket.socket:
        assert late.wait(10)
        return ways.open()

    client = dial(ours.add(slow))
    time.sleep(0.05)
    ours.close()
    ours.close()
    late.set()
    client.close()
    for pod in ways.pods:
        pod.close()
    assert not folder.exists()
    until(lambda: threading.active_count() == before[1])
    ways.pods[-1].close()
    until(lambda: descriptors() == before[0])


def test_who_ends_without_closing_leaves_no_folder_either(tmp_path: Path) -> None:
    code = "from igsdk.client.k8s.tunnels import Tunnels; Tunnels().add(lambda: None)"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=60)
    assert not list(tmp_path.iterdir())


def test_many_connections_one_thread(tunnels: Tunnels, ways: Ways) -> None:
    tunnel = tunnels.add(ways.open)
    clients = [dial(tunnel) for _ in range(64)]
    until(lambda: len(ways.pods) == 64)
    for pod in ways.pods:
        pod.sendall(server_frame(b"\0x"))
    assert [read(client, 1) for client in clients] == [b"x"] * 64
    until(lambda: not [one for one in threading.enumerate() if one.name == "igsdk-open"])
    assert len([one for one in threading.enumerate() if one.name == "igsdk-tunnels"]) == 1
    for client in clients:
        client.close()
