# SPDX-License-Identifier: Apache-2.0
"""Images in a real registry, compared with skopeo; and registries that do not play along."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support import registry as real
from tests.support import tiny
from tests.support.relay import relay
from tests.support.unwilling import Answers, always, unwilling

from igsdk import ImageUnreadable, RegistryRefused, TargetUnavailable, UsageError
from igsdk.cli.app import run
from igsdk.image import layout, names
from igsdk.image.challenges import read_challenge
from igsdk.image.registry import Registry
from igsdk.image.transport import Answer, Transport

NAME = "team/tiny:v1"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("image") / "tiny.tar"
    assert run(["gadget", "build", str(tiny.SOURCE), "-o", str(path)]) == 0
    return path


@pytest.fixture(autouse=True)
def no_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logins of whoever runs the tests stay out of them."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "nobody"))


def index_of(image: Path) -> bytes:
    found = layout.read(str(image))
    return found.blob(found.image())


def test_anonymous(tmp_path: Path, image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with real.registry(tmp_path / "registry") as server:
        name = f"{server.address}/{NAME}"
        for _ in range(2):
            assert run(["gadget", "push", str(image), name, "--plain-http"]) == 0
        assert real.skopeo_raw(server, NAME) == index_of(image)
        capsys.readouterr()
        assert run(["gadget", "inspect", name, "--plain-http", "--json"]) == 0
        pulled = json.loads(capsys.readouterr().out)
        assert run(["gadget", "inspect", str(image), "--json"]) == 0
        local = json.loads(capsys.readouterr().out)
        assert pulled == {**local, "name": name, "file": ""}
        assert run(["gadget", "inspect", name]) == 9
        assert "--plain-http" in capsys.readouterr().err
        assert run(["gadget", "inspect", f"{server.address}/team/none", "--plain-http"]) == 12


def test_password(
    tmp_path: Path,
    image: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with real.registry(tmp_path / "registry", password=True) as server:
        push = ["gadget", "push", str(image), f"{server.address}/{NAME}", "--plain-http"]
        assert run(push) == 12
        assert "docker login" in capsys.readouterr().err
        wrong = real.log_in(tmp_path / "wrong", server.address, "guess")
        monkeypatch.setenv("DOCKER_CONFIG", str(wrong))
        assert run(push) == 12
        assert "does not accept your login" in capsys.readouterr().err
        assert server.tags("team/tiny") == []
        right = real.log_in(tmp_path / "right", server.address)
        monkeypatch.setenv("DOCKER_CONFIG", str(right))
        assert run(push) == 0
        assert server.tags("team/tiny") == ["v1"]
        assert real.skopeo_raw(server, NAME) == index_of(image)


def test_tls(
    tmp_path: Path,
    image: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with real.registry(tmp_path / "registry", password=True, tls=True) as server:
        monkeypatch.setenv("DOCKER_CONFIG", str(real.log_in(tmp_path / "login", server.address)))
        push = ["gadget", "push", str(image), f"{server.address}/{NAME}"]
        assert run(push) == 9
        assert "SSL_CERT_FILE" in capsys.readouterr().err
        monkeypatch.setenv("SSL_CERT_FILE", str(server.authority))
        assert run(push) == 0
        assert real.skopeo_raw(server, NAME) == index_of(image)


def test_login_from_a_helper(tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What docker-credential-NAME says, which gets the registry on its input."""
    helper = tmp_path / "docker-credential-tests"
    answer = json.dumps({"Username": real.USER, "Secret": real.PASSWORD})
    helper.write_text(f"#!/bin/sh\ncat > {tmp_path}/asked\necho '{answer}'\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/sbin:/usr/bin:/bin")
    with real.registry(tmp_path / "registry", password=True) as server:
        config = {"credHelpers": {server.address: "tests"}}
        (tmp_path / "config.json").write_text(json.dumps(config))
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        assert run(["gadget", "push", str(image), f"{server.address}/{NAME}", "--plain-http"]) == 0
        assert (tmp_path / "asked").read_text() == server.address


def test_an_interrupted_push_leaves_no_tag(tmp_path: Path, image: Path) -> None:
    """Whatever the request at which it ends."""
    found = layout.read(str(image))
    with real.registry(tmp_path / "registry") as server:
        reference = names.parse(f"{server.address}/{NAME}")
        for last in range(40):
            if pushes(Ending(server.address, True, last=last), found, reference):
                break
            assert server.tags("team/tiny") == [], f"after {last} requests"
        assert last > 5
        assert server.tags("team/tiny") == ["v1"]


def pushes(transport: Transport, found: layout.Layout, reference: names.Reference) -> bool:
    try:
        Registry(transport, reference.repository).push(found, reference)
    except KeyboardInterrupt:
        return False
    return True


class Ending(Transport):
    """Ctrl-C after so many requests."""

    def __init__(self, domain: str, plain_http: bool, last: int) -> None:
        super().__init__(domain, plain_http)
        self.asked, self.last = 0, last

    def ask(
        self,
        method: str,
        path: str,
        expected: tuple[int, ...],
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        if self.asked == self.last:
            raise KeyboardInterrupt
        self.asked += 1
        return super().ask(method, path, expected, headers, body)


@pytest.mark.parametrize(
    ("number", "limit"),
    [*((signal.SIGKILL, limit) for limit in (300, 5000, 20000)), (signal.SIGINT, 9000)],
)
def test_a_killed_push_leaves_no_tag(
    tmp_path: Path, image: Path, number: signal.Signals, limit: int
) -> None:
    """After so many bytes of what it has to send; the next one brings it to its end."""
    clients: list[subprocess.Popen[bytes]] = []
    with (
        real.registry(tmp_path / "registry") as server,
        relay(server.address, limit, lambda: clients[0].send_signal(number)) as between,
    ):
        name = f"{between.address}/{NAME}"
        push = [
            sys.executable,
            "-m",
            "igsdk.cli",
            "gadget",
            "push",
            str(image),
            name,
            "--plain-http",
        ]
        clients.append(subprocess.Popen(push, stderr=subprocess.DEVNULL))
        assert clients[0].wait(60) in (-number, 128 + number)
        assert server.tags("team/tiny") == []
        assert run(push[3:]) == 0
        assert real.skopeo_raw(server, NAME) == index_of(image)


def transport_to(address: str, waits: list[float], timeout: float = 5.0) -> Transport:
    """A transport whose pauses are written down instead of taken."""
    return Transport(address, True, timeout, sleep=waits.append)


@pytest.mark.parametrize(
    ("status", "error", "asked"),
    [
        (401, RegistryRefused, 1),
        (403, RegistryRefused, 1),
        (404, RegistryRefused, 1),
        (418, RegistryRefused, 1),
        (429, TargetUnavailable, 5),
        (500, TargetUnavailable, 5),
        (503, TargetUnavailable, 5),
    ],
)
def test_refusals(status: int, error: type[Exception], asked: int) -> None:
    waits: list[float] = []
    body = json.dumps({"errors": [{"code": "BUSY", "message": "not today"}]}).encode()
    with unwilling(always(status, {}, body)) as server:
        reference = names.parse(f"{server.address}/{NAME}")
        transport = transport_to(server.address, waits)
        with pytest.raises(error, match="not today"):
            Registry(transport, reference.repository).pull(reference)
        assert len(server.asked) == asked
    assert waits == [1.0, 2.0, 4.0, 8.0][: asked - 1]


def test_it_waits_as_long_as_is_asked_for() -> None:
    waits: list[float] = []
    busy, slow = unwilling(always(429, {"Retry-After": "7"})), "slow down"
    with busy as server, pytest.raises(TargetUnavailable, match=slow):
        transport_to(server.address, waits).ask("GET", "/v2/", (200,))
    assert waits == [7.0] * 4
    with unwilling(always(429, {"Retry-After": "3600"})) as server:
        with pytest.raises(TargetUnavailable):
            transport_to(server.address, waits).ask("GET", "/v2/", (200,))
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("said", "waits"),
    [
        ("Thu, 01 Jan 1970 00:00:00 GMT", [0.0] * 4),
        ("soon", [1.0, 2.0, 4.0, 8.0]),
        ("Xyz, 99 Foo 1970 GMT", [1.0, 2.0, 4.0, 8.0]),
        ("-5", [1.0, 2.0, 4.0, 8.0]),
    ],
)
def test_other_ways_to_say_it(said: str, waits: list[float]) -> None:
    taken: list[float] = []
    busy = unwilling(always(503, {"Retry-After": said}))
    with busy as server, pytest.raises(TargetUnavailable, match="503"):
        transport_to(server.address, taken).ask("GET", "/v2/", (200,))
    assert taken == waits


def test_silence_ends() -> None:
    silent = unwilling(lambda *_: None)
    with silent as server, pytest.raises(TargetUnavailable, match=r"within 0\.3 s"):
        transport_to(server.address, [], 0.3).ask("GET", "/v2/", (200,))


def test_what_trickles_ends(tmp_path: Path) -> None:
    """An answer whose next piece always comes in time, and whose end never does."""

    def trickle(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not stopped.wait(0.02):
                    connection.sendall(b"x")

    stopped = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=trickle, args=(listener,), daemon=True)
        server.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        start = time.monotonic()
        with pytest.raises(TargetUnavailable, match="end of its answer within 1 s"):
            transport_to(address, [], 0.1).ask("GET", "/v2/", (200,))
        assert time.monotonic() - start < 5
        stopped.set()
        server.join()


@pytest.mark.parametrize("place", ["", "http://[", "ftp://there/x", "//\x7f"])
def test_a_registry_that_names_no_place(image: Path, place: str) -> None:
    def answers(method: str, path: str, headers: dict[str, str]) -> Said:
        return (404, {}, b"") if method == "HEAD" else (202, {"Location": place}, b"")

    with unwilling(answers) as server:
        reference = names.parse(f"{server.address}/{NAME}")
        registry = Registry(transport_to(server.address, []), reference.repository)
        with pytest.raises((RegistryRefused, TargetUnavailable)):
            registry.push(layout.read(str(image)), reference)
    redirects = unwilling(always(307, {"Location": place or "http://]"}))
    with redirects as server, pytest.raises((RegistryRefused, TargetUnavailable)):
        transport_to(server.address, []).ask("GET", "/v2/", (200,))


def test_a_digest_that_is_another_images(image: Path) -> None:
    with unwilling(always(500)) as server:
        reference = names.parse(f"{server.address}/team/tiny@sha256:{'0' * 64}")
        registry = Registry(transport_to(server.address, []), reference.repository)
        with pytest.raises(UsageError, match="not the one"):
            registry.push(layout.read(str(image)), reference)
        assert server.asked == []


def test_a_damaged_image_is_not_begun(image: Path) -> None:
    found = layout.read(str(image))
    program = max(found.blobs, key=lambda digest: len(found.blobs[digest]))
    for damage in ({**found.blobs, program: b"other"}, {program: found.blobs[program]}):
        broken = layout.Layout(found.entries, damage)
        with unwilling(always(500)) as server:
            reference = names.parse(f"{server.address}/{NAME}")
            registry = Registry(transport_to(server.address, []), reference.repository)
            with pytest.raises(ImageUnreadable):
                registry.push(broken, reference)
            assert server.asked == []


def test_this_machine_is_asked_without_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{real.free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    with unwilling(always(200, {}, b"here")) as server:
        assert transport_to(server.address, []).ask("GET", "/v2/", (200,)).body == b"here"


def test_nobody_there() -> None:
    with pytest.raises(TargetUnavailable, match="cannot be reached"):
        transport_to(f"127.0.0.1:{real.free_port()}", []).ask("GET", "/v2/", (200,))


Said = tuple[int, dict[str, str], bytes]


def token_server(token_status: int = 200) -> Answers:
    """A registry that wants a token, and its token server."""

    def answers(method: str, path: str, headers: dict[str, str]) -> Said:
        if path.startswith("/token"):
            return token_status, {}, json.dumps({"token": "t0ken"}).encode()
        if headers.get("Authorization") == "Bearer t0ken":
            return 200, {}, b"{}"
        realm = f"http://{headers['Host']}/token"
        words = f'Bearer realm="{realm}",service="tests",scope="repository:team/tiny:pull,push"'
        return 401, {"WWW-Authenticate": words}, b""

    return answers


def test_tokens() -> None:
    with unwilling(token_server()) as server:
        assert transport_to(server.address, []).ask("GET", "/v2/x", (200,)).body == b"{}"
        asked = "/token?service=tests&scope=repository%3Ateam%2Ftiny%3Apull%2Cpush"
        assert server.asked == [("GET", "/v2/x"), ("GET", asked), ("GET", "/v2/x")]
    closed = unwilling(token_server(401))
    with closed as server, pytest.raises(RegistryRefused, match="asks for a login"):
        transport_to(server.address, []).ask("GET", "/v2/x", (200,))


@pytest.mark.parametrize(
    ("header", "scheme", "words"),
    [
        ('Basic realm="x"', "basic", {"realm": "x"}),
        ('Negotiate, Basic realm="x"', "basic", {"realm": "x"}),
        ('Digest realm="d", Bearer realm="r", scope="a:b:pull,push"', "bearer", {"realm": "r"}),
        ("Basic", "basic", {}),
        ("Negotiate", "negotiate", {}),
        ("", "", {}),
    ],
)
def test_challenges(header: str, scheme: str, words: dict[str, str]) -> None:
    found = read_challenge(header)
    assert found.scheme == scheme
    assert found.words.items() >= words.items()


@pytest.mark.parametrize("token", [["a"], "a\nHost: b", "", None, 7.5, {}])
def test_tokens_that_are_none(token: object) -> None:
    """What cannot stand in a header is none; the rest the registry refuses."""

    def answers(method: str, path: str, headers: dict[str, str]) -> Said:
        if path.startswith("/token"):
            return 200, {}, json.dumps({"token": token}).encode()
        return 401, {"WWW-Authenticate": f'Bearer realm="http://{headers["Host"]}/token"'}, b""

    with unwilling(answers) as server, pytest.raises(RegistryRefused, match="asks for a login"):
        transport_to(server.address, []).ask("GET", "/v2/x", (200,))


def test_a_tag_that_is_no_index() -> None:
    kind = {"Content-Type": "application/vnd.oci.image.manifest.v1+json"}
    with unwilling(always(200, kind, b"{}")) as server:
        reference = names.parse(f"{server.address}/{NAME}")
        with pytest.raises(ImageUnreadable, match="no image index"):
            Registry(transport_to(server.address, []), reference.repository).pull(reference)


def test_other_bytes_than_asked_for(image: Path) -> None:
    """A registry or something on the way that changes a part."""
    found = layout.read(str(image))
    kind = {"Content-Type": found.image()["mediaType"]}

    def answers(method: str, path: str, headers: dict[str, str]) -> Said:
        wanted = path.rpartition("/")[2]
        if wanted == "v1":
            return 200, kind, index_of(image)
        data = found.blobs.get(wanted, b"")
        return 200, {}, data + (b" " if "/blobs/" in path else b"")

    with unwilling(answers) as server:
        reference = names.parse(f"{server.address}/{NAME}")
        with pytest.raises(ImageUnreadable, match="was asked for"):
            Registry(transport_to(server.address, []), reference.repository).pull(reference)


def test_a_registry_that_takes_something_else_gets_no_tag(image: Path) -> None:
    def answers(method: str, path: str, headers: dict[str, str]) -> Said:
        if method == "POST":
            return 202, {"Location": "/upload?state=1"}, b""
        return (404 if method == "HEAD" else 201), {"Docker-Content-Digest": "sha256:other"}, b""

    with unwilling(answers) as server:
        reference = names.parse(f"{server.address}/{NAME}")
        registry = Registry(transport_to(server.address, []), reference.repository)
        with pytest.raises(ImageUnreadable, match="tag was not set"):
            registry.push(layout.read(str(image)), reference)
        assert not [path for method, path in server.asked if path.endswith("/v1")]


@pytest.mark.parametrize(
    "config",
    [
        "no JSON",
        "[]",
        '{"auths": ["x"]}',
        '{"credHelpers": 7}',
        '{"auths": {"ADDRESS": {"auth": "%%%"}}}',
        '{"auths": {"ADDRESS": {"auth": 7}}}',
        '{"credsStore": "../bin/sh"}',
        '{"credsStore": "that-nobody-has"}',
    ],
)
def test_logins_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    with unwilling(always(401, {"WWW-Authenticate": 'Basic realm="x"'})) as server:
        (tmp_path / "config.json").write_text(config.replace("ADDRESS", server.address))
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        with pytest.raises(RegistryRefused, match=r"config\.json"):
            transport_to(server.address, []).ask("GET", "/v2/", (200,))


def test_passwords_stay_off_plain_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is not this one gets no login without TLS."""
    words = {"WWW-Authenticate": 'Basic realm="x"'}
    with unwilling(always(401, words)) as server:
        monkeypatch.setenv("http_proxy", f"http://{server.address}")
        monkeypatch.setenv("DOCKER_CONFIG", str(real.log_in(tmp_path / "login", "far.example")))
        with pytest.raises(RegistryRefused, match="plain HTTP"):
            transport_to("far.example", []).ask("GET", "/v2/", (200,))
        assert server.asked == [("GET", "http://far.example/v2/")]


def test_signatures_travel_and_are_made_there(
    tmp_path: Path, image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is in the file goes along; one for an image in a registry is put beside it."""
    key, signed = tmp_path / "key.pem", tmp_path / "signed.tar"
    make = ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
    subprocess.run([*make, "-out", str(key)], check=True, capture_output=True)
    signed.write_bytes(image.read_bytes())
    assert run(["gadget", "sign", str(signed), "--key", str(key)]) == 0
    digest = layout.read(str(image)).image()["digest"]
    tag = f"{digest.replace(':', '-')}.sig"
    with real.registry(tmp_path / "registry") as server:
        for repository, file in (("team/along", signed), ("team/there", image)):
            name = f"{server.address}/{repository}:v1"
            assert run(["gadget", "push", str(file), name, "--plain-http"]) == 0
            if file == image:
                assert server.tags(repository) == ["v1"]
                assert run(["gadget", "sign", name, "--key", str(key), "--plain-http"]) == 0
            assert server.tags(repository) == [tag, "v1"]
            manifest = json.loads(real.skopeo_raw(server, f"{repository}:{tag}"))
            assert len(manifest["layers"]) == 1
            capsys.readouterr()
            assert run(["gadget", "inspect", name, "--plain-http", "--json"]) == 0
            [one] = json.loads(capsys.readouterr().out)["signatures"]
            assert one["of"] == digest
