# SPDX-License-Identifier: Apache-2.0
"""TLS: who is believed, who is not, and that an error says which it was, at once."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.certificates import Authority, authority
from tests.support.gadget_server import VERSION, GadgetServer, gadget_server

import igsdk
from igsdk import TLS, TargetUnavailable, UsageError
from igsdk.cli.app import run
from igsdk.client.address import parse
from igsdk.client.checks import check_daemon
from igsdk.client.remote import RemoteRuntime
from igsdk.client.tls import read_files

Serve = Callable[..., contextlib.AbstractContextManager[GadgetServer]]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("theirs"), "others")


def serving(
    ours: Authority, *names: str, days: int = 30, clients: Authority | None = None
) -> contextlib.AbstractContextManager[GadgetServer]:
    cert, key = ours.sign(*(names or ("localhost", "127.0.0.1")), days=days)
    credentials = grpc.ssl_server_credentials(
        [(key.read_bytes(), cert.read_bytes())],
        clients.file.read_bytes() if clients else None,
        require_client_auth=clients is not None,
    )
    return gadget_server("127.0.0.1:0", credentials)


def version(target: str, tls: TLS | bool | None = None) -> str:
    with RemoteRuntime(target, 5, 5, tls) as host:
        return host.version


def refusal(target: str, tls: TLS | bool | None = None) -> str:
    """What is said, within a time that is far below gRPC's own."""
    began = time.monotonic()
    with pytest.raises(TargetUnavailable) as caught:
        RemoteRuntime(target, 20, 20, tls)
    assert time.monotonic() - began < 10
    assert caught.value.remedy
    return str(caught.value)


def test_a_daemon_by_an_authority_that_we_name(ours: Authority) -> None:
    with serving(ours) as server:
        assert version(f"{server.target}?ca={ours.file}") == VERSION
        assert version(server.target, TLS(ca=str(ours.file))) == VERSION
        assert version(server.target.replace("+tls", ""), TLS(ca=str(ours.file))) == VERSION
        with igsdk.connect(server.target, tls=TLS(ca=str(ours.file))) as host:
            shown = host.handshake  # type: ignore[union-attr]
        assert shown is not None
        assert shown.version == "TLSv1.3"
        assert set(shown.names) == {"localhost", "127.0.0.1"}


def test_whom_nobody_signed_that_we_know(ours: Authority, theirs: Authority) -> None:
    with serving(theirs) as server:
        told = refusal(server.target, TLS(ca=str(ours.file)))
        assert f"not by an authority in {ours.file}" in told
        assert "that this system knows" in refusal(server.target)


def test_the_systems_authorities(ours: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(ours.file))
    with serving(ours) as server:
        assert version(server.target) == VERSION
        assert version(server.target.replace("+tls", ""), True) == VERSION


def test_another_name(ours: Authority) -> None:
    with serving(ours, "gpu-1.example.com") as server:
        told = refusal(server.target, TLS(ca=str(ours.file)))
        assert "is not for '127.0.0.1'" in told
        named = f"{server.target}?ca={ours.file}&server_name=gpu-1.example.com"
        assert version(named) == VERSION


def test_a_certificate_that_has_ended(ours: Authority) -> None:
    with serving(ours, days=-1) as server:
        assert "expired" in refusal(server.target, TLS(ca=str(ours.file)))


def test_a_daemon_that_wants_to_know_us(ours: Authority, theirs: Authority) -> None:
    ca = str(ours.file)
    with serving(ours, clients=ours) as server:
        assert "asks for a certificate of ours" in refusal(server.target, TLS(ca=ca))
        cert, key = map(str, ours.sign("me"))
        assert version(server.target, TLS(ca, cert, key)) == VERSION
        cert, key = map(str, theirs.sign("me"))
        assert "does not take our connection" in refusal(server.target, TLS(ca, cert, key))


def test_one_side_alone(ours: Authority) -> None:
    with serving(ours) as server:
        plain = server.target.replace("+tls", "")
        assert f"{plain} speaks over TLS. Write tcp+tls://" in refusal(plain)
    with gadget_server("127.0.0.1:0") as server:
        assert version(server.target) == VERSION
        encrypted = server.target.replace("tcp", "tcp+tls")
        assert "speaks without TLS" in refusal(encrypted)


@contextlib.contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    """A port whose server says this to whoever connects, and hangs up; None: says nothing."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)

        def serve() -> None:
            held = []
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    stream, _ = server.accept()
                    held.append(stream)
                    if answer is not None:
                        stream.sendall(answer)
                        stream.close()
            for stream in held:
                stream.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"\x15\x03", b"\0" * 99, None])
@pytest.mark.parametrize("scheme", ["tcp", "tcp+tls"])
def test_what_is_something_else(answer: bytes | None, scheme: str) -> None:
    with answering(answer) as port:
        began = time.monotonic()
        with pytest.raises(igsdk.IgsdkError) as caught:
            RemoteRuntime(f"{scheme}://127.0.0.1:{port}", 2, 2)
        assert time.monotonic() - began < 15
    assert caught.value.exit_code in (9, 14)
    assert caught.value.remedy


def test_nobody(ours: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for scheme in ("tcp", "tcp+tls"):
        assert "Nobody listens at" in refusal(f"{scheme}://127.0.0.1:{port}")
        assert "There is no host" in refusal(f"{scheme}://nowhere.invalid:1")
        assert "There is no host a..b" in refusal(f"{scheme}://a..b:1")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("ca=/nowhere", "No such file"),
        ("ca={key}", "is not certificates of authorities"),
        ("ca={ca}&cert={cert}", "go together"),
        ("ca={ca}&cert={cert}&key=/nowhere", "/nowhere cannot be read"),
        ("ca={ca}&cert={cert}&key={ca}", "is not a certificate with the key"),
        ("ca={ca}&cert={ca}&key={key}", "is not a certificate with the key"),
        ("ca={ca}&ca={ca}", "makes no sense"),
        ("ca=", "makes no sense"),
        ("insecure=1", "ca, cert, key, server_name"),
    ],
)
def test_files_that_are_no_good(ours: Authority, query: str, words: str) -> None:
    cert, key = ours.sign("me")
    filled = query.format(ca=ours.file, cert=cert, key=key)
    with pytest.raises(UsageError, match=words):
        read_files(parse(f"tcp+tls://127.0.0.1:1?{filled}").tls or TLS())


def test_a_key_with_a_password(ours: Authority, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    cert, key = ours.sign("me")
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(UsageError, match="has a password"):
        read_files(TLS(str(ours.file), str(cert), str(locked)))


@pytest.mark.parametrize(
    ("target", "tls"),
    [
        ("tcp://127.0.0.1:1?ca=x", None),
        ("unix:///tmp/x", True),
        ("tcp+tls://127.0.0.1:1?ca=x", TLS(ca="y")),
        ("tcp+tls://127.0.0.1", None),
        ("tcp+ssl://127.0.0.1:1", None),
    ],
)
def test_targets_that_make_no_sense(target: str, tls: Any) -> None:
    with pytest.raises(UsageError):
        parse(target, tls)


def test_targets_as_they_are_shown() -> None:
    address = parse("tcp+tls://[::1]:8080?ca=/a%20b&server_name=x")
    assert (address.shown, address.host, address.port) == ("tcp+tls://[::1]:8080", "::1", 8080)
    assert address.tls == TLS(ca="/a b", server_name="x")


def test_doctor(ours: Authority, capsys: Any) -> None:
    with serving(ours, days=5) as server:
        target = f"{server.target}?ca={ours.file}"
        found = {check.name: check for check in check_daemon(lambda: RemoteRuntime(target))}
        assert found["encryption"].state == "warn"
        assert "for 4 days more" in found["encryption"].detail
        run(["doctor", "--json", "--target", server.target])
        (told,) = json.loads(capsys.readouterr().out)["targets"]
        assert (told["code"], told["checks"][0]["name"]) == (9, "connection")
        assert "not by an authority" in told["checks"][0]["detail"]
    with gadget_server("127.0.0.1:0") as server:
        checks = check_daemon(lambda: RemoteRuntime(server.target))
        assert next(one for one in checks if one.name == "encryption").state == "warn"
