# SPDX-License-Identifier: Apache-2.0
"""What is found out about a daemon before anybody relies on it, and with which exit code."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support import gadget_packets as gp
from tests.support.gadget_server import GadgetServer, Refusal, Session, described, log

from igsdk._check import Check
from igsdk._doctor import look, merged
from igsdk._proto import gadget_pb2 as pb
from igsdk.cli.app import run
from igsdk.client.checks import check_daemon
from igsdk.client.k8s import checks as k8s_checks
from igsdk.client.member import Member
from igsdk.client.remote import RemoteRuntime

#: in the words of Inspektor Gadget 0.55.1
NOT_THERE = 'ensuring image: resolving image "ghcr.io/x:latest" on local registry: not found'
NOT_FETCHED = (
    'ensuring image: pulling image (if missing) "x": pulling image "x": copying to local '
    'repository: failed to perform "FetchReference" on source: Get "https://x/v2": dial tcp: '
    "lookup x: no such host"
)
UNSIGNED = (
    'verifying image: pulling gadget signature "x": pulling signing information with cosign: '
    "not found"
)
SPECS = [gp.Spec("pid", gp.UINT32, 4)]
NAMES = ("events", "heap", "losses", "processes")

Checks = Callable[..., "dict[str, Check]"]


@pytest.fixture
def ours(server: GadgetServer) -> GadgetServer:
    """Has the gadget, runs it, and keeps no instances."""
    sources = [gp.source(name, SPECS) for name in NAMES]
    host = pb.Param(key="host", prefix="operator.LocalManager.", typeHint="bool")
    server.describe = lambda request: pb.GadgetInfo(
        imageName=request.imageName, dataSources=sources, params=[host]
    )
    server.run = lambda session: running(session, sources)
    return server


def running(session: Session, sources: list[pb.DataSource]) -> Iterator[pb.GadgetEvent]:
    yield described(*sources)
    yield log(3, "no containers here")


@pytest.fixture
def checks(ours: GadgetServer) -> Checks:
    def look(*gadget: str, **how: Any) -> dict[str, Check]:
        found = check_daemon(lambda: RemoteRuntime(ours.target, 2, 2), *gadget, **how)
        return {check.name: check for check in found}

    return look


def asked(never: str, missing: str = "") -> Callable[[pb.GetGadgetInfoRequest], pb.GadgetInfo]:
    """Refuses with the first where no registry may be asked, else with the second."""

    def describe(request: pb.GetGadgetInfoRequest) -> pb.GadgetInfo:
        alone = request.paramValues["operator.oci.pull"] == "never"
        words = never if alone else missing
        if words:
            raise Refusal(words)
        return pb.GadgetInfo(imageName=request.imageName)

    return describe


def test_all_is_well(ours: GadgetServer, checks: Checks) -> None:
    ours.instances = {"ListGadgetInstances": lambda request: pb.ListGadgetInstanceResponse()}
    found = checks()
    assert {check.state for check in found.values()} == {"ok"}
    assert list(found) == [
        *("connection", "encryption", "daemon", "instances", "image", "signature", "gadget")
    ]
    assert found["daemon"].detail == "version 0.54.0, protocol 1.0"
    assert "by frame pointers" in found["gadget"].detail
    assert ours.sessions == []


def test_an_agent_is_told_by_its_stacks(ours: GadgetServer, checks: Checks) -> None:
    sources = [gp.source(name, SPECS) for name in (*NAMES, "report", "stacks")]
    ours.describe = lambda request: pb.GadgetInfo(dataSources=sources)
    found = checks()
    assert "whole stacks" in found["gadget"].detail
    assert {"image", "signature"}.isdisjoint(found)  # it has no images


def test_a_run_of_two_seconds_is_asked_for(ours: GadgetServer, checks: Checks) -> None:
    assert checks(run=True)["run"].detail == "the daemon warns: no containers here"
    (session,) = ours.sessions
    assert dict(session.request.runRequest.paramValues) == {"operator.LocalManager.host": "true"}
    assert session.request.runRequest.timeout == 2_000_000_000


def test_probes_that_did_not_go_on(ours: GadgetServer, checks: Checks) -> None:
    sources = [gp.source(name, SPECS) for name in NAMES]
    words = "attaching to container 1: parsing ld cache: ldCache format error"
    ours.run = lambda session: iter((described(*sources), *[log(5, words)] * 3, log(5, "else")))
    found = checks(run=True)
    assert found["run"].state == "ok"
    assert found["probes"].state == "warn"
    assert found["probes"].detail == f"3 probes could not be put on; the first: {words}"
    assert ours.sessions[0].request.runRequest.logLevel == 5


def test_a_run_that_fails(ours: GadgetServer, checks: Checks) -> None:
    def fail(session: Session) -> Iterable[pb.GadgetEvent]:
        raise Refusal("load program: permission denied")

    ours.run = fail
    found = checks(run=True)["run"]
    assert (found.state, found.code) == ("fail", 13)
    assert found.remedy == "Run it where the kernel has what it needs."


def test_what_is_in_nobodys_way(ours: GadgetServer, checks: Checks) -> None:
    ours.info = lambda: pb.InfoResponse(
        version="2.0", serverVersion="9.0.0", experimental=True
    ).SerializeToString()
    found = checks()
    assert found["daemon"].state == "warn"
    assert "9.0.0, protocol 2.0, with experimental features" in found["daemon"].detail
    assert found["instances"].state == "warn"
    assert "keeps no instances" in found["instances"].detail
    assert [check.code for check in found.values()] == [0] * len(found)


def test_a_broken_instance(ours: GadgetServer, checks: Checks) -> None:
    state = pb.GadgetInstanceState(status=pb.StatusError, message="no such image")
    one = pb.GadgetInstance(id=f"{1:032x}", name="memory", state=state)
    ours.instances["ListGadgetInstances"] = lambda request: pb.ListGadgetInstanceResponse(
        gadgetInstances=[one]
    )
    assert checks()["instances"].detail == "memory failed: no such image"

    def refuse(request: bytes) -> None:
        raise Refusal("gadget not found")

    ours.instances["ListGadgetInstances"] = refuse
    found = checks()["instances"]
    assert (found.state, found.code) == ("warn", 0)


@pytest.mark.parametrize(
    ("never", "missing", "name", "words"),
    [
        (NOT_THERE, NOT_FETCHED, "image", "could not fetch it: no such host"),
        (NOT_THERE, "pulling is disallowed", "image", "may not fetch"),
        ("x is not part of allowed gadgets: a, b", "", "image", "takes others only"),
        ("something new", "", "image", "something new"),
        (UNSIGNED, "", "signature", "no key that signed"),
        (NOT_THERE, UNSIGNED, "signature", "no key that signed"),
    ],
)
def test_images_that_cannot_be_had(
    ours: GadgetServer, checks: Checks, never: str, missing: str, name: str, words: str
) -> None:
    ours.describe = asked(never, missing)
    found = checks(run=True)
    assert [check.name for check in found.values() if check.state == "fail"] == [name]
    assert words in found[name].detail
    assert found[name].code == 13
    assert found[name].remedy


def test_an_image_that_is_fetched_when_asked_for(ours: GadgetServer, checks: Checks) -> None:
    ours.describe = asked(NOT_THERE)
    found = checks("registry.example.com/opens:v1")
    assert "fetched from its registry" in found["image"].detail
    assert found["gadget"].state == "ok"


def test_another_gadget_of_this_name(ours: GadgetServer, checks: Checks) -> None:
    ours.describe = lambda request: pb.GadgetInfo(dataSources=[gp.source("opens", SPECS)])
    found = checks("example.com/profile_cuda_memory:v9")["gadget"]
    assert (found.state, found.code) == ("fail", 10)
    assert "it gives opens" in found.detail


@pytest.mark.parametrize(
    ("info", "code", "words"),
    [
        (b"\xff\xff", 14, "no gadget daemon"),
        (grpc.StatusCode.UNIMPLEMENTED, 14, "no gadget daemon"),
        (grpc.StatusCode.UNAVAILABLE, 9, "ended"),
        (grpc.StatusCode.UNKNOWN, 13, "refuses"),
    ],
)
def test_what_is_no_daemon(
    ours: GadgetServer, checks: Checks, info: Any, code: int, words: str
) -> None:
    def say() -> bytes:
        if isinstance(info, bytes):
            return info
        raise Refusal("no", info)

    ours.info = say
    (found,) = checks().values()
    assert (found.name, found.state, found.code) == ("connection", "fail", code)
    assert words in found.detail


def test_silence_ends(ours: GadgetServer, checks: Checks) -> None:
    def hang(request: pb.GetGadgetInfoRequest) -> pb.GadgetInfo:
        time.sleep(3)
        return pb.GadgetInfo()

    ours.describe = hang
    found = checks()["gadget"]
    assert (found.state, found.code) == ("fail", 9)
    assert "did not answer in time" in found.detail


def test_descriptions_that_contradict_themselves(ours: GadgetServer, checks: Checks) -> None:
    twice = [gp.source("opens", SPECS), gp.source("opens", SPECS)]
    ours.describe = lambda request: pb.GadgetInfo(dataSources=twice)
    found = checks()["gadget"]
    assert (found.state, found.code) == ("fail", 14)


def test_text(ours: GadgetServer, capsys: Any) -> None:
    assert run(["doctor", "--target", ours.target]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ours.target
    assert lines[3] == "ok    daemon      version 0.54.0, protocol 1.0"
    assert lines[-1] == f"{ours.target} works."

    ours.describe = asked(UNSIGNED)
    assert run(["doctor", "--target", ours.target]) == 13
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3].split("-> ")[1].startswith("Sign it with `igsdk gadget sign`")
    assert lines[-1] == f"{ours.target} does not work, see above."


def test_json_of_several(ours: GadgetServer, tmp_path: Path, capsys: Any) -> None:
    nowhere = f"unix://{tmp_path}/nowhere"
    argv = ["doctor", "--json", "--gadget", "opens", "--target", ours.target, "--target", nowhere]
    assert run(argv) == 9
    first, second = json.loads(capsys.readouterr().out)["targets"]
    assert (first["target"], first["works"], first["code"]) == (ours.target, True, 0)
    assert (second["target"], second["works"], second["code"]) == (nowhere, False, 9)
    (check,) = second["checks"]
    assert (check["name"], check["state"]) == ("connection", "fail")
    assert check["remedy"]


def test_what_makes_no_sense(capsys: Any) -> None:
    assert run(["doctor", "--target", "ftp://somewhere"]) == 2
    assert "is not a target" in capsys.readouterr().out


def test_what_nodes_have_in_common_stands_there_once() -> None:
    well = [Check("connection", "ok", "it answers, after 3 ms"), Check("daemon", "ok", "1.0")]
    slow = [Check("connection", "ok", "it answers, after 90 ms"), Check("daemon", "ok", "0.9")]
    down = [Check("connection", "fail", "nobody listens", "Start it.", 9)]
    nodes = {"a": well, "b": slow, "c": well, "d": well, "e": well}
    assert [(one.state, one.detail) for one in merged(nodes)] == [
        ("ok", "it answers (all 5 nodes)"),
        ("ok", "1.0 (on a, c, d and 1 more)"),
        ("ok", "0.9 (on b)"),
    ]
    assert [(one.state, one.detail, one.code) for one in merged({"a": well, "b": down})] == [
        ("ok", "it answers (on a)", 0),
        ("warn", "nobody listens (on b)", 0),
        ("ok", "1.0 (on a)", 0),
    ]
    assert [(one.state, one.code) for one in merged({"a": down, "b": down})] == [("fail", 9)]


def test_nodes_of_a_cluster(ours: GadgetServer, monkeypatch: Any) -> None:
    closed = []

    class Membership:
        def close(self) -> None:
            closed.append(self)

    def cluster(target: str) -> tuple[list[Check], Membership, list[Member]]:
        members = [Member(name, lambda: RemoteRuntime(ours.target)) for name in ("a", "b")]
        return [Check("pods", "ok", "2 ready")], Membership(), members

    monkeypatch.setattr(k8s_checks, "check_cluster", cluster)
    found = look("k8s:")
    assert found.code == 0
    assert [check.detail for check in found.checks][:2] == ["2 ready", "it answers (all 2 nodes)"]
    assert len(closed) == 1

    ours.describe = asked(UNSIGNED)
    assert look("k8s:").code == 13
