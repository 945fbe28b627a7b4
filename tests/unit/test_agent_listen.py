# SPDX-License-Identifier: Apache-2.0
"""Where an agent listens: whose sockets are, what is in the way, who may reach a port."""

from __future__ import annotations

import fcntl
import grp
import os
import socket
import stat
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest
from tests.support.certificates import authority

from igsdk import ListenFailed, UsageError
from igsdk.agent.listen import TLS, Access, Socket, listen_tcp, port_of
from igsdk.cli.app import run


@pytest.fixture
def server() -> Iterator[grpc.Server]:
    one = grpc.server(futures.ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
    yield one
    one.stop(None).wait()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_socket_has_its_rights_and_goes_again(server: grpc.Server, tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    one = Socket(f"unix:{path}", Access(mode=0o640))
    assert one.listen(server) == f"unix://{path}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    one.close()
    one.close()
    assert names(tmp_path) == []


def test_nobody_may_connect_before_the_rights_are_set(
    server: grpc.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = Path.chmod

    def chmod(path: Path, mode: int) -> None:
        seen.append(stat.S_IMODE(path.stat().st_mode))
        real(path, mode)

    monkeypatch.setattr(Path, "chmod", chmod)
    one = Socket(f"unix:{tmp_path}/a.sock", Access())
    one.listen(server)
    one.close()
    assert seen == [0o600]


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file to another group needs root")
def test_a_socket_belongs_to_a_group(server: grpc.Server, tmp_path: Path) -> None:
    other = next(entry for entry in grp.getgrall() if entry.gr_gid not in (0, os.getegid()))
    for name in (other.gr_name, str(other.gr_gid)):
        one = Socket(f"unix:{tmp_path}/{name}.sock", Access(group=name))
        one.listen(server)
        found = (tmp_path / f"{name}.sock").stat()
        assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (other.gr_gid, 0o660)
        one.close()


def test_the_socket_of_a_dead_daemon_is_replaced(server: grpc.Server, tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    one = Socket(f"unix:{path}", Access())
    one.listen(server)
    assert path.is_socket()
    one.close()


def test_a_live_one_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(str(path))
        live.listen()
        with pytest.raises(ListenFailed, match="already") as caught:
            Socket(f"unix:{path}", Access())
        assert caught.value.remedy
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
    assert names(tmp_path) == ["a.sock"]


def test_one_of_two_agents_gets_the_name(server: grpc.Server, tmp_path: Path) -> None:
    """Also between the check and the binding."""
    target = f"unix:{tmp_path}/a.sock"
    first = Socket(target, Access())
    with pytest.raises(ListenFailed, match="already"):
        Socket(target, Access())
    first.listen(server)
    with pytest.raises(ListenFailed, match="already"):
        Socket(target, Access())
    first.close()
    Socket(target, Access()).close()
    assert names(tmp_path) == []


def test_a_lock_file_of_the_dead_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".a.sock.lock").touch()
    Socket(f"unix:{tmp_path}/a.sock", Access()).close()
    with (tmp_path / ".a.sock.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ListenFailed):
            Socket(f"unix:{tmp_path}/a.sock", Access())


def test_another_ones_socket_is_not_removed(server: grpc.Server, tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    one = Socket(f"unix:{path}", Access())
    one.listen(server)
    path.unlink()
    path.write_text("of somebody else")
    one.close()
    assert path.read_text() == "of somebody else"


def test_what_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name in ("file", "folder", "link", "nowhere/a.sock", "file/a.sock"):
        with pytest.raises(ListenFailed) as caught:
            Socket(f"unix:{tmp_path}/{name}", Access())
        assert caught.value.remedy
    assert (tmp_path / "file").read_text() == "precious"
    assert names(tmp_path) == ["file", "folder", "link"]


@pytest.mark.parametrize("target", ["unix:", "unix:///", "unix:a/", "unix:///" + "x" * 200])
def test_names_that_are_none(target: str) -> None:
    with pytest.raises(UsageError):
        Socket(target, Access())


def test_there_has_to_be_such_a_group(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no group"):
        Socket(f"unix:{tmp_path}/a.sock", Access(group="nobody-of-this-name"))


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("tcp://127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("tcp:127.1.2.3:0", ("127.1.2.3", 0)),
        ("tcp://[::1]:8080/", ("[::1]", 8080)),
        ("tcp://localhost:1", ("localhost", 1)),
    ],
)
def test_ports_of_this_machine(target: str, wanted: tuple[str, int]) -> None:
    assert port_of(target, None) == wanted


@pytest.mark.parametrize(
    "target",
    ["tcp://0.0.0.0:80", "tcp://[::]:80", "tcp://node-1:80", "tcp://127.0.0.1.evil.test:80"],
)
def test_others_need_tls(target: str) -> None:
    with pytest.raises(UsageError, match="could read"):
        port_of(target, None)
    assert port_of(target, TLS("cert", "key", "ca"))[1] == 80


@pytest.mark.parametrize("target", ["tcp://127.0.0.1", "tcp://:80", "tcp://a:99999", "local:", "x"])
def test_targets_that_are_none(target: str) -> None:
    with pytest.raises(UsageError):
        port_of(target, None)


def test_a_port_is_not_shared(server: grpc.Server) -> None:
    target = listen_tcp(server, "tcp://127.0.0.1:0", None)
    server.start()
    other = grpc.server(futures.ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
    with pytest.raises(ListenFailed):
        listen_tcp(other, target, None)
    other.stop(None).wait()


def test_files_of_tls_are_looked_into(server: grpc.Server, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name, words in (("empty", "no certificate"), ("missing", "can't be read")):
        files = TLS(*[str(tmp_path / name)] * 3)
        with pytest.raises(UsageError, match=words):
            listen_tcp(server, "tcp://127.0.0.1:0", files)


def test_a_key_has_to_be_its_certificate_s_own(server: grpc.Server, tmp_path: Path) -> None:
    ours = authority(tmp_path)
    (cert, key), (_, others) = ours.sign("one"), ours.sign("other")
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    for files, words in (
        (TLS(str(cert), str(others), str(ours.file)), "MISMATCH"),
        (TLS(str(cert), str(key), str(damaged)), "damaged"),
    ):
        with pytest.raises(UsageError, match=words):
            listen_tcp(server, "tcp://127.0.0.1:0", files)


@pytest.mark.parametrize("name", ["a%20b.sock", "a b.sock", "a?b#c.sock"])
def test_names_that_a_url_would_write_otherwise(
    name: str, server: grpc.Server, tmp_path: Path
) -> None:
    one = Socket(f"unix:{tmp_path}/{name}", Access())
    one.listen(server)
    assert name in names(tmp_path)
    one.close()
    assert names(tmp_path) == []


def test_a_link_in_its_place_is_not_followed(
    server: grpc.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As somebody would put there who may write to the folder, between bind and chmod."""
    path, secret = tmp_path / "a.sock", tmp_path / "secret"
    secret.touch(0o600)
    one = Socket(f"unix:{path}", Access(mode=0o666))

    def bind(_: object) -> int:
        path.symlink_to(secret)
        return 1

    monkeypatch.setattr(server, "add_insecure_port", bind)
    with pytest.raises(ListenFailed, match="can't listen"):
        one.listen(server)
    one.close()
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "--listen"),
        (["--listen", "tcp://0.0.0.0:1"], 2, "--tls-cert"),
        (["--listen", "tcp://0.0.0.0:1", "--tls-cert", "x"], 2, "belong together"),
        (["--listen", "unix:/nowhere/at/all.sock"], 16, "no folder"),
        (["--listen", "unix:/tmp/x.sock", "--mode", "9"], 2, "octal"),
        (["--listen", "unix:/tmp/x.sock", "--mode", "7777"], 2, "octal"),
        (["--listen", "unix:/tmp/x.sock", "--max-runs", "0"], 2, "makes no sense"),
        (["--listen", "unix:/tmp/x.sock", "--live-entries", "0"], 2, "live allocations"),
        (["--listen", "unix:/nowhere.sock", "--check"], 9, "nowhere.sock"),
        (["--listen", "unix:/tmp/x.sock", "--group", "nobody-of-this-name"], 2, "groupadd"),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="without root the kernel is what is complained of")
def test_the_command_line_says_what_is_wrong(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["agent", *arguments]) == code
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
