# SPDX-License-Identifier: Apache-2.0
"""Credentials of clusters: kubeconfig files, credential plugins, a pod's own account."""

from __future__ import annotations

import base64
import json
import logging
import os
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import Configuration
from tests.support.api_server import TOKEN, ApiServer, api_server, kubeconfig

from igsdk._errors import (
    AnswerInvalid,
    IgsdkError,
    PermissionMissing,
    TargetUnavailable,
    UsageError,
)
from igsdk.client.k8s.api import ApiServer as Client
from igsdk.client.k8s.pods import read_pod
from igsdk.client.k8s.wiring import Wiring, _spared


@pytest.fixture
def config(tmp_path: Path, api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubeconfig that works."""
    path = kubeconfig(tmp_path / "config", api.url)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.fixture
def api() -> Any:
    with api_server() as ours:
        ours.put("one", "node-1")
        yield ours


def names(client: Client) -> list[str]:
    pods, _ = client.list_pods("gadget")
    client.close()
    return [pod["metadata"]["name"] for pod in pods]


def refused(kind: type[IgsdkError], context: str = "") -> IgsdkError:
    with pytest.raises(kind) as caught:
        Client(context).list_pods("gadget")
    assert caught.value.remedy
    return caught.value


def test_a_token_in_the_kubeconfig(config: Path) -> None:
    client = Client()
    assert (client.name, client.namespace) == ("test", "team")
    assert names(client) == ["one"]


def test_no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    assert "missing" in refused(TargetUnavailable).cause


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "{", "contexts: 5\ncurrent-context: x\n", "\0"])
def test_files_that_are_no_kubeconfig(text: str, config: Path) -> None:
    config.write_text(text)
    with pytest.raises((TargetUnavailable, UsageError)) as caught:
        Client()
    assert caught.value.remedy


@pytest.mark.parametrize("text", ["token: 's3cr3t\n", "a:\n  token: s3cr3t: x\n"])
def test_a_broken_kubeconfig_is_not_quoted(text: str, config: Path) -> None:
    config.write_text(text)
    with pytest.raises(TargetUnavailable, match="in line") as caught:
        Client()
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("field", ["clusters", "users"])
def test_a_context_that_leads_nowhere(field: str, config: Path) -> None:
    document = json.loads(config.read_text())
    del document[field]
    config.write_text(json.dumps(document))
    with pytest.raises(IgsdkError) as caught:
        Client().list_pods("gadget")
    assert isinstance(caught.value, TargetUnavailable | PermissionMissing)


def test_wrong_context_names_those_there_are(config: Path) -> None:
    error = refused(UsageError, "prod")
    assert "prod" in error.cause
    assert "test" in error.remedy


def test_of_several_files_the_first_one_s_current_context_counts(
    config: Path, api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = kubeconfig(tmp_path / "other", "http://127.0.0.1:1")
    other.write_text(other.read_text().replace('"test"', '"second"').replace('"it"', '"dead"'))
    missing = tmp_path / "missing"
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, (missing, config, other))))
    assert names(Client()) == ["one"]
    assert Client("second").host.endswith(":1")


PLUGIN = """
import json, pathlib, sys
count = pathlib.Path(sys.argv[1])
number = int(count.read_text() or 0) + 1 if count.exists() else 1
count.write_text(str(number))
if sys.argv[2] == "fail":
    sys.exit("please log in first")
status = {"token": sys.argv[2]}
if len(sys.argv) > 3:
    status["expirationTimestamp"] = sys.argv[3]
print(json.dumps({"kind": "ExecCredential", "status": status,
                  "apiVersion": "client.authentication.k8s.io/v1"}))
"""


def plugin(tmp_path: Path, *arguments: str) -> tuple[dict[str, Any], Path]:
    """A user whose credentials come from a program, and the file that counts its calls."""
    program, count = tmp_path / "plugin.py", tmp_path / "count"
    program.write_text(PLUGIN)
    how = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(program), str(count), *arguments],
        "interactiveMode": "Never",
    }
    return {"exec": how}, count


def test_a_plugin_gives_the_token(config: Path, api: ApiServer, tmp_path: Path) -> None:
    user, count = plugin(tmp_path, TOKEN, "2999-01-01T00:00:00Z")
    kubeconfig(config, api.url, user)
    client = Client()
    client.list_pods("gadget")
    assert names(client) == ["one"]
    assert count.read_text() == "1"


def test_a_token_that_says_it_expired_is_renewed(
    config: Path, api: ApiServer, tmp_path: Path
) -> None:
    user, count = plugin(tmp_path, TOKEN, "2000-01-01T00:00:00Z")
    kubeconfig(config, api.url, user)
    assert names(Client()) == ["one"]
    assert int(count.read_text()) >= 2


def test_a_token_that_the_api_server_takes_no_more_is_renewed(
    config: Path, api: ApiServer, tmp_path: Path
) -> None:
    user, count = plugin(tmp_path, "old")
    kubeconfig(config, api.url, user)
    api.tokens = {"old"}
    client = Client()
    client.list_pods("gadget")
    plugin_now = json.loads(config.read_text())
    plugin_now["users"][0]["user"]["exec"]["args"][-1] = TOKEN
    config.write_text(json.dumps(plugin_now))
    api.tokens = {TOKEN}
    assert names(client) == ["one"]
    assert count.read_text() == "2"


def test_a_plugin_that_fails_is_quoted_once_and_nothing_is_logged(
    config: Path, api: ApiServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    user, _ = plugin(tmp_path, "fail")
    kubeconfig(config, api.url, user)
    handlers = list(logging.getLogger().handlers)
    assert "please log in first" in refused(PermissionMissing).cause
    assert logging.getLogger().handlers == handlers
    assert capfd.readouterr().err == ""


def test_credentials_that_are_wrong(config: Path, api: ApiServer) -> None:
    api.tokens = {"another"}
    error = refused(PermissionMissing)
    assert "expired" in error.cause
    assert error.exit_code == 3


def test_rights_that_are_missing(config: Path, api: ApiServer) -> None:
    api.forbidden = {"list"}
    error = refused(PermissionMissing)
    assert "list pods in the namespace gadget" in error.cause
    assert "rbac.yaml" in error.remedy


def test_nobody_answers(config: Path, api: ApiServer) -> None:
    api.stop()
    assert "cannot be reached" in refused(TargetUnavailable).cause
    api.start()


def test_a_name_that_has_no_address(config: Path) -> None:
    kubeconfig(config, "http://nowhere.invalid:6443")
    assert "nowhere.invalid" in refused(TargetUnavailable).cause


def test_what_is_no_api_server(config: Path, api: ApiServer) -> None:
    kubeconfig(config, f"{api.url}/somewhere/else")
    refused(AnswerInvalid)


def test_long_lists_come_in_pages(config: Path, api: ApiServer) -> None:
    api.page = 3
    for number in range(10):
        api.put(f"pod-{number}", "node")
    assert len(names(Client())) == 11


def test_in_a_pod_its_own_account_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the account are at a fixed place, so here only that it is looked for."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    assert "in-cluster" in refused(TargetUnavailable).cause


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 that signs itself, with its key."""
    path = tmp_path / "server.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", f"{path}.key", "-out", path, "-days", "1",
         "-subj", "/CN=api", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_text(path.read_text() + Path(f"{path}.key").read_text())
    return path


def test_tls_with_the_cluster_s_own_authority(config: Path, certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with api_server(context) as api:
        api.put("one", "node-1")
        kubeconfig(config, api.url)
        assert "not trusted" in refused(TargetUnavailable).cause
        for safe in (
            {"certificate-authority": str(certificate)},
            {"insecure-skip-tls-verify": True},
        ):
            kubeconfig(config, api.url, cluster=safe)
            assert names(Client()) == ["one"]
            with Client().forward("gadget", "one", 8080) as way:
                assert way.recv(5) == b"\x82\x03\0\x90\x1f"


def test_a_proxy_that_wants_a_login() -> None:
    """Lists and tunnels both tell it, and get no further here."""
    heads: list[str] = []

    def refuse() -> None:
        for _ in range(2):
            connection, _ = proxy.accept()
            with connection:
                heads.append(connection.recv(1 << 16).decode())
                connection.sendall(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")

    made = Configuration()
    made.host = "http://cluster.invalid:6443"
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        made.proxy = f"http://me:p%40ss@127.0.0.1:{proxy.getsockname()[1]}"
        made.no_proxy = None
        thread = threading.Thread(target=refuse)
        thread.start()
        wiring = Wiring(made, "ours")
        for ask in (wiring.get, wiring.upgrade):
            with pytest.raises(IgsdkError):
                ask("/x", {}, "list pods", 5.0)
        thread.join()
    login = base64.b64encode(b"me:p@ss").decode()
    assert [f"proxy-authorization: basic {login}".lower() in head.lower() for head in heads] == [
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("host", "rules", "spared"),
    [
        ("api.example.com", "", False),
        ("api.example.com", "example.com", True),
        ("api.example.com", ".example.com, other", True),
        ("badexample.com", "example.com", False),
        ("10.0.0.7", "10.0.0.0/8", True),
        ("11.0.0.7", "10.0.0.0/8", False),
        ("anything", "*", True),
    ],
)
def test_hosts_that_no_proxy_is_for(host: str, rules: str, spared: bool) -> None:
    assert _spared(host, rules) is spared


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b'{"type": "ADDED"}',
        b"null",
        b"\xff",
        b'{"type": "ERROR", "object": 5}',
        b"[" * 9999,
    ],
)
def test_a_watch_of_garbage_is_an_error_of_ours(line: bytes, config: Path, api: ApiServer) -> None:
    api.garbage = line
    client = Client()
    with pytest.raises((AnswerInvalid, TargetUnavailable)) as caught:
        list(client.watch_pods("gadget", "", "", "100"))
    assert caught.value.remedy
    client.close()


@pytest.mark.parametrize("body", [b"", b"hello", b"[]", b'{"kind": "PodList"}', b"[" * 9999])
def test_a_list_of_garbage_is_an_error_of_ours(body: bytes, config: Path, api: ApiServer) -> None:
    api.garbage = body
    assert "no Kubernetes API server" in refused(AnswerInvalid).cause


def test_pods_that_are_none_are_passed_over(config: Path, api: ApiServer) -> None:
    api.garbage = b'{"kind": "PodList", "metadata": {}, "items": [null, 5, {"metadata": []}]}'
    pods, version = Client().list_pods("gadget")
    assert (list(map(read_pod, pods)), version) == ([None] * 3, "")


@pytest.mark.parametrize("code", [400, 404, 429, 500, 503])
def test_an_api_server_that_cannot_says_why(code: int, config: Path, api: ApiServer) -> None:
    api.failing = code
    error = refused(TargetUnavailable)
    assert "it is raining" in error.cause
    with pytest.raises(TargetUnavailable, match="it is raining"):
        Client().forward("gadget", "one", 8080)
