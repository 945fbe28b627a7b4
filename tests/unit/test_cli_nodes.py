# SPDX-License-Identifier: Apache-2.0
"""`igsdk nodes`, against the stand-in of an API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.api_server import ApiServer, api_server, kubeconfig
from tests.support.gadget_server import gadget_server

from igsdk.cli.app import run


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with api_server() as ours, gadget_server(tmp_path / "a.sock"):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", ours.url)))
        ours.put("pod-a", "node-a", tmp_path / "a.sock")
        yield ours


def test_a_table(api: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    api.put("pod-b", "a-node-with-a-long-name", ready=False, waiting="ImagePullBackOff")
    assert run(["nodes"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "NODE                     POD    PHASE    VERSION  STATE",
        "a-node-with-a-long-name  pod-b  Running  -        not ready",
        "  container gadget waits: ImagePullBackOff: back-off",
        "node-a                   pod-a  Running  0.54.0   ready",
    ]


def test_as_json(api: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nodes", "--target", "k8s://test/gadget?node=node-*", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "node": "node-a",
        "pod": "pod-a",
        "phase": "Running",
        "version": "0.54.0",
        "state": "ready",
        "why": "",
        "code": 0,
    }


@pytest.mark.parametrize(("forbidden", "code"), [("portforward", 3), ("list", 3)])
def test_no_rights(
    forbidden: str, code: int, api: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    api.forbidden = {forbidden}
    assert run(["nodes"]) == code
    said = capsys.readouterr()
    assert "rbac.yaml" in said.out + said.err


def test_nobody_there(api: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nodes", "--target", "k8s:///elsewhere"]) == 9
    assert "in the namespace elsewhere" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["unix:///run/ig.socket", "local:", "k8s:prod"])
def test_what_is_no_cluster(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nodes", "--target", target]) == 2
    assert "Traceback" not in capsys.readouterr().err
