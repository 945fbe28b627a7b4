# SPDX-License-Identifier: Apache-2.0
"""Instances: made, listed, attached to and removed, by a daemon that is easily killed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.support import wire
from tests.support.gadget_instances import Daemon
from tests.support.gadget_server import GadgetServer
from tests.support.opens import QUIET

from igsdk._errors import AnswerInvalid, RunRefused, TargetUnavailable, UsageError
from igsdk._proto import gadget_pb2 as pb
from igsdk.client.remote import RemoteRuntime


@pytest.fixture
def daemon(server: GadgetServer) -> Iterator[Daemon]:
    ours = Daemon()
    ours.serve_on(server)
    yield ours
    ours.kept.clear()


@pytest.fixture
def host(server: GadgetServer, daemon: Daemon) -> Iterator[RemoteRuntime]:
    with RemoteRuntime(server.target, call_timeout=3) as ours:
        yield ours


def test_an_instance_from_beginning_to_end(daemon: Daemon, host: RemoteRuntime) -> None:
    assert host.instances() == []
    made = host.create("opens:v1", name="mine", tags=["a", "b"])
    assert (made.name, made.image, made.tags) == ("mine", "opens:v1", ("a", "b"))
    assert made.state == "running"
    assert abs(made.created - time.time()) < 60
    assert host.instances() == [made]
    with host.attach(made) as run:
        rows = run.rows()
        assert [next(rows)["pid"] for _ in range(3)] == [1, 2, 3]
        assert (run.gadget.id, run.gadget.name) == (made.id, "mine")
        assert run.losses() == QUIET
        started = time.monotonic()
    assert time.monotonic() - started < 3  # it was left, not stopped
    assert run.error is None
    assert host.instances() == [made]
    host.remove("mine")
    assert host.instances() == []


def test_nobody_attaches_before_it_is_ready(daemon: Daemon, host: RemoteRuntime) -> None:
    daemon.starting = 0.7
    made = host.create("opens", name="slow")
    for which in ("slow", made.id):
        with host.attach(which) as run:
            assert next(run.rows())["pid"] == 1
    assert not daemon.died


def test_one_that_is_never_ready(daemon: Daemon, server: GadgetServer) -> None:
    daemon.starting = 5
    with RemoteRuntime(server.target, call_timeout=0.4) as host:
        made = host.create("opens")
        with pytest.raises(TargetUnavailable, match="in time"):
            host.attach(made)
        daemon.failing = "load program: permission denied"
        failed = host.create("opens", name="broken")
        with pytest.raises(RunRefused, match="broken failed: load program"):
            host.attach(failed)
    assert not daemon.died


def test_an_instance_that_is_removed_ends_its_runs(daemon: Daemon, host: RemoteRuntime) -> None:
    made = host.create("opens")
    with host.attach(made) as run:
        rows = run.rows()
        assert next(rows)["pid"] == 1
        host.remove(made)
        list(rows)
        assert run.ended
        assert run.error is None


def test_names_that_are_none(daemon: Daemon, host: RemoteRuntime) -> None:
    host.create("opens", name="mine")
    for name in ("Mine", "a b", "x" * 33, "ä"):
        with pytest.raises(UsageError, match="no name"):
            host.create("opens", name=name)
    with pytest.raises(UsageError, match="'yours'") as caught:
        host.remove("yours")
    assert "mine" in caught.value.remedy
    with pytest.raises(RunRefused, match="yours not found"):
        host.attach("yours")
    with pytest.raises(RunRefused, match="did not remove"):
        host.remove("f" * 32)


def test_by_id_one_is_removed_where_none_can_be_listed(daemon: Daemon, host: RemoteRuntime) -> None:
    made = host.create("opens")
    daemon.lists = False
    with pytest.raises(RunRefused, match="gadget not found"):
        host.instances()
    host.remove(made)
    assert daemon.kept == {}


def test_parameters_are_checked_here_too(daemon: Daemon, host: RemoteRuntime) -> None:
    with pytest.raises(UsageError, match="no parameter"):
        host.create("opens", {"nothing": 1})
    assert daemon.kept == {}


def test_what_makes_no_sense(daemon: Daemon, server: GadgetServer, host: RemoteRuntime) -> None:
    server.describe = lambda request: pb.GadgetInfo(imageName="opens")
    with pytest.raises(AnswerInvalid, match="as if it were no instance"):
        host.attach("mine")
    server.instances["CreateGadgetInstance"] = lambda request: pb.CreateGadgetInstanceResponse(
        result=1
    )
    with pytest.raises(RunRefused, match="did not make"):
        host.create("opens")
    server.instances = {}
    with pytest.raises(RunRefused, match="keeps no instances"):
        host.instances()


def test_what_a_real_daemon_said(server: GadgetServer) -> None:
    said = {
        name: wire.recording(f"instance-{name}").responses
        for name in ("create", "list", "remove", "remove-unknown", "info", "attach")
    }
    server.instances = {
        "CreateGadgetInstance": lambda _: said["create"][0],
        "ListGadgetInstances": lambda _: said["list"][0],
        "RemoveGadgetInstance": lambda _: said["remove"][0],
    }
    server.describe = lambda request: said["info"][0] if request.flags else pb.GadgetInfo()
    server.run = lambda session: said["attach"]
    with RemoteRuntime(server.target) as host:
        made = host.create("top_cuda_memory:up", name="recorded")
        (listed,) = host.instances()
        assert (listed.id, listed.name, listed.state) == (made.id, "recorded", "running")
        assert listed.params["operator.LocalManager.host"] == "true"
        with host.attach("recorded") as run:
            assert [row["mem_alloc_bytes"] for row in run.rows()] == [4_096_000]
            assert run.losses() == QUIET
        host.remove("recorded")
        server.instances["RemoveGadgetInstance"] = lambda _: said["remove-unknown"][0]
        with pytest.raises(RunRefused, match="instance not found"):
            host.remove("0" * 32)
    assert server.sessions[0].request.attachRequest.id == made.id
