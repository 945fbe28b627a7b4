# SPDX-License-Identifier: Apache-2.0
"""The pods of a cluster as members, and as a fleet: who joins, who leaves, what is said.

The API server is a stand-in (`tests/support/api_server.py`); `make cluster-test` has the
real one. The daemons are real gRPC servers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.api_server import ApiServer, api_server, kubeconfig
from tests.support.gadget_server import GadgetServer, counting, gadget_server

from igsdk._errors import IgsdkError, PermissionMissing, TargetUnavailable
from igsdk.client.fleet import Fleet
from igsdk.client.k8s import where as pod_names
from igsdk.client.k8s.membership import KubernetesMembership
from igsdk.client.k8s.nodes import survey
from igsdk.client.k8s.pods import Pod
from igsdk.client.member import Member, PodRef


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with api_server() as ours:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", ours.url)))
        yield ours


class Seen:
    """A membership and what it told."""

    def __init__(self, target: str = "k8s:") -> None:
        self.membership = KubernetesMembership(target, connect_timeout=5, call_timeout=10)
        self.members: dict[str, Member] = {}
        self.left: list[tuple[str, str]] = []

    def __enter__(self) -> Seen:
        self.membership.start(self._join, self._leave)
        return self

    def __exit__(self, *_: object) -> None:
        self.membership.close()

    def _join(self, member: Member) -> None:
        assert member.name not in self.members
        self.members[member.name] = member

    def _leave(self, name: str, why: str) -> None:
        del self.members[name]
        self.left.append((name, why))

    def nodes(self) -> list[str]:
        return sorted(self.members)


def until(true: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def refused(kind: type[IgsdkError], target: str = "k8s:") -> IgsdkError:
    with pytest.raises(kind) as caught, Seen(target):
        pass
    assert caught.value.remedy
    return caught.value


def test_ready_pods_are_members_and_others_become_ones(api: ApiServer) -> None:
    api.put("pod-a", "a")
    api.put("pod-b", "b", ready=False)
    api.put("other", "a", labels={"k8s-app": "other"})
    with Seen() as seen:
        assert seen.nodes() == ["a"]
        assert seen.members["a"].labels == {"node": "a", "pod": "pod-a", "namespace": "gadget"}
        api.put("pod-b", "b")
        api.put("pod-c", "c")
        until(lambda: seen.nodes() == ["a", "b", "c"])


def test_pods_leave_when_they_are_asked_to_go_and_when_they_are_gone(api: ApiServer) -> None:
    for name in "abc":
        api.put(f"pod-{name}", name)
    with Seen() as seen:
        api.put("pod-a", "a", leaving=True)
        api.put("pod-b", "b", ready=False, phase="Failed")
        api.delete("pod-c")
        until(lambda: not seen.members)
        assert [name for name, _ in seen.left] == ["a", "b", "c"]
        assert all(why for _, why in seen.left)


def test_a_pod_that_is_not_ready_for_a_while_stays(api: ApiServer) -> None:
    api.put("pod-a", "a")
    with Seen() as seen:
        api.put("pod-a", "a", ready=False)
        api.put("pod-b", "b")
        until(lambda: seen.nodes() == ["a", "b"])


def test_a_new_pod_on_a_node_takes_the_name_when_the_old_one_left(api: ApiServer) -> None:
    api.put("old", "a")
    with Seen() as seen:
        api.put("new", "a")
        until(lambda: seen.nodes() == ["a", "a/new"])
        api.delete("old")
        api.delete("new")
        api.put("newer", "a")
        until(lambda: seen.nodes() == ["a"])
        assert seen.members["a"].labels["pod"] == "newer"


def test_a_pod_of_the_same_name_is_another_one(api: ApiServer) -> None:
    api.put("pod-0", "a", uid="first")
    with Seen() as seen:
        first = seen.members["a"]
        api.delete("pod-0")
        api.put("pod-0", "a", uid="second")
        until(lambda: seen.members.get("a", first) is not first)
        assert seen.left[0][0] == "a"


def test_context_namespace_selector_and_nodes_choose(api: ApiServer) -> None:
    api.put("pod-a", "gpu-1", namespace="tools", labels={"app": "x"})
    api.put("pod-b", "cpu-1", namespace="tools", labels={"app": "x"})
    api.put("pod-c", "gpu-2")
    with Seen("k8s://test/tools?selector=app=x&node=gpu-*") as seen:
        assert seen.nodes() == ["gpu-1"]


def test_the_watch_goes_on_after_what_ends_it(api: ApiServer) -> None:
    api.put("pod-a", "a")
    with Seen() as seen:
        until(lambda: any("watch=1" in path for path in api.asked))
        api.cut()
        api.put("pod-b", "b")
        until(lambda: seen.nodes() == ["a", "b"])
        lists = [path for path in api.asked if "watch" not in path]
        assert len(lists) == 1, "it was to go on from where it was"


def test_after_410_the_pods_are_listed_anew(api: ApiServer) -> None:
    api.put("pod-a", "a")
    api.put("pod-b", "b")
    with Seen() as seen:
        until(lambda: any("watch=1" in path for path in api.asked))
        api.stop()
        api.delete("pod-a")
        api.put("pod-c", "c")
        api.forget()
        api.start()
        until(lambda: seen.nodes() == ["b", "c"])
        assert [name for name, _ in seen.left] == ["a"]


def test_members_stay_while_the_api_server_is_away(api: ApiServer) -> None:
    api.put("pod-a", "a")
    with Seen() as seen:
        api.stop()
        until(lambda: seen.membership.problem is not None)
        assert seen.nodes() == ["a"]
        api.start()
        api.put("pod-b", "b")
        until(lambda: seen.nodes() == ["a", "b"])
        until(lambda: seen.membership.problem is None)


def test_no_pods(api: ApiServer) -> None:
    error = refused(TargetUnavailable, "k8s:?node=gpu-1")
    assert "no pod k8s-app=gadget in the namespace gadget" in error.cause
    assert "gpu-1" in error.cause
    assert error.exit_code == 9


def test_no_pod_is_ready(api: ApiServer) -> None:
    api.put("pod-a", "a", ready=False, waiting="ImagePullBackOff")
    error = refused(TargetUnavailable)
    assert "pod-a on a: container gadget waits: ImagePullBackOff" in error.cause
    assert "describe" in error.remedy


def test_no_right_to_list(api: ApiServer) -> None:
    api.forbidden = {"list"}
    assert "weak" in refused(PermissionMissing).cause


def test_no_right_to_watch_leaves_those_there_are(api: ApiServer) -> None:
    api.put("pod-a", "a")
    api.forbidden = {"watch"}
    with Seen() as seen:
        until(lambda: isinstance(seen.membership.problem, PermissionMissing))
        assert seen.nodes() == ["a"]


def test_no_right_to_forward(api: ApiServer) -> None:
    api.put("pod-a", "a")
    api.forbidden = {"portforward"}
    with Seen() as seen, pytest.raises(PermissionMissing) as caught:
        seen.members["a"].connect()
    assert "forward a port of the pod pod-a" in caught.value.cause


def test_a_pod_that_is_gone_meanwhile(api: ApiServer) -> None:
    api.put("pod-a", "a")
    with Seen() as seen:
        member = seen.members["a"]
        api.delete("pod-a")
        with pytest.raises(TargetUnavailable, match="not found"):
            member.connect()


def test_a_port_where_nobody_listens(api: ApiServer, tmp_path: Path) -> None:
    api.put("pod-a", "a", tmp_path / "nobody")
    with Seen() as seen, pytest.raises(TargetUnavailable) as caught:
        seen.members["a"].connect()
    assert "Port 8080 of the pod gadget/pod-a on a" in caught.value.cause
    assert "error forwarding port" in caught.value.cause


def test_nothing_stays_of_a_membership(api: ApiServer, tmp_path: Path) -> None:
    with gadget_server(tmp_path / "a.sock"):
        api.put("pod-a", "a", tmp_path / "a.sock")
        before = {thread.name for thread in threading.enumerate()}
        with Seen() as seen:
            seen.membership.where.pod_of("pod-a-container", "")
            with seen.members["a"].connect() as daemon:
                assert daemon.version
        ours = {thread.name for thread in threading.enumerate()} - before
        assert not {name for name in ours if name.startswith("igsdk")}


def test_who_is_behind_a_container(api: ApiServer) -> None:
    api.put("pod-a", "a")
    labels = {"app": "vllm"}
    api.put("vllm-0", "a", namespace="ml", labels=labels, containers={"c0ffee": "server"})
    with Seen() as seen:
        where = seen.membership.where
        assert where.pod_of("c0ffee", "") == PodRef("ml", "vllm-0", "server", "a", labels)
        by_uid = where.pod_of("unknown yet", "uid-of-vllm-0")
        assert by_uid == PodRef("ml", "vllm-0", "", "a", labels)
        assert where.pod_of("nobody", "nothing") is None
        api.put("vllm-1", "a", namespace="ml", containers={"babe": "server"})
        until(lambda: where.pod_of("babe", "") is not None)
        api.delete("vllm-0")
        time.sleep(0.1)
        assert where.pod_of("c0ffee", ""), "profiles name what has ended too"
        assert not where.notes


def test_names_where_only_one_namespace_may_be_seen(api: ApiServer) -> None:
    api.put("pod-a", "a")
    api.put("job", "a", namespace="team", containers={"1": "one"})
    api.put("far", "a", namespace="ml", containers={"2": "two"})
    api.forbidden = {"list-all"}
    with Seen() as seen:
        where = seen.membership.where
        assert where.pod_of("1", "") == PodRef("team", "job", "one", "a", {"k8s-app": "gadget"})
        assert where.pod_of("2", "") is None
        assert len(where.notes) == 1
        assert "other namespaces" in where.notes[0]


# as a fleet


@pytest.fixture
def daemons(api: ApiServer, tmp_path: Path) -> Iterator[dict[str, GadgetServer]]:
    """Two nodes whose daemons count."""
    with gadget_server(tmp_path / "a.sock") as a, gadget_server(tmp_path / "b.sock") as b:
        a.run = b.run = counting
        api.put("pod-a", "a", tmp_path / "a.sock")
        api.put("pod-b", "b", tmp_path / "b.sock")
        yield {"a": a, "b": b}


def fleet() -> Fleet:
    return Fleet(KubernetesMembership("k8s:", 5, 20), "k8s:")


def test_rows_of_all_nodes_come_as_one(daemons: dict[str, GadgetServer]) -> None:
    with fleet() as ours, ours.run("counting") as run:
        seen: set[str] = set()
        for row in run.rows(timeout=10):
            seen.add(row.node)
            if seen == {"a", "b"}:
                break
        assert seen == {"a", "b"}
        assert run.losses()["packets"] == 0


def test_tunnels_that_are_cut_reopen_and_the_gap_is_told(
    api: ApiServer, daemons: dict[str, GadgetServer]
) -> None:
    with fleet() as ours, ours.run("counting") as run:
        begun = {"a": 0, "b": 0}  # the stand-in's gadget counts from 1 in each run
        for row in run.rows(timeout=10):
            begun[row.node] += row["pid"] == 1
            if row["pid"] == 10 and set(begun.values()) == {1}:
                api.cut()
            if set(begun.values()) == {2}:
                break
        assert set(begun.values()) == {2}
        assert run.losses()["gaps"] == 2
        assert {node.state for node in run.nodes()} == {"running"}


def test_the_api_server_restarts_and_pods_change_meanwhile(
    api: ApiServer, daemons: dict[str, GadgetServer], tmp_path: Path
) -> None:
    with fleet() as ours, ours.run("counting") as run:
        next(run.rows(timeout=10))
        api.stop()
        api.delete("pod-b")
        api.put("pod-c", "c", tmp_path / "b.sock")
        api.forget()
        api.start()
        seen: set[str] = set()
        for row in run.rows(timeout=20):
            seen.add(row.node)
            if "c" in seen:
                break
        states = {node.name: node.state for node in run.nodes()}
        assert states["c"] == "running"
        until(lambda: {n.name: n.state for n in run.nodes()}["b"] == "left")


def test_a_survey_of_nodes(
    api: ApiServer, daemons: dict[str, GadgetServer], tmp_path: Path
) -> None:
    api.put("pod-c", "c", ready=False, waiting="CrashLoopBackOff")
    api.put("pod-d", "d", tmp_path / "nobody")
    found = survey("k8s:")
    assert [(one.node, one.pod, one.state) for one in found] == [
        ("a", "pod-a", "ready"),
        ("b", "pod-b", "ready"),
        ("c", "pod-c", "not ready"),
        ("d", "pod-d", "unreachable"),
    ]
    assert [bool(one.version) for one in found] == [True, True, False, False]
    assert "CrashLoopBackOff" in found[2].why
    assert "error forwarding port" in found[3].why


def test_names_of_containers_go_with_their_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that crashes again and again has many."""
    monkeypatch.setattr(pod_names, "_MOST_ENDED", 1)
    names = pod_names.PodNames(cast(Any, None))
    monkeypatch.setattr(names, "_begin", list)
    crashes = [
        Pod("uid", "job", "ml", "a", "Running", "", containers={f"c{number}": "main"})
        for number in range(3)
    ]
    for before, now in pairwise((None, *crashes, None)):
        names._learn(before, now)
    assert [bool(names.pod_of(f"c{number}", "")) for number in range(3)] == [True] * 3
    names._learn(Pod("other", "b", "ml", "a", "Running", ""), None)
    assert [names.pod_of(f"c{number}", "uid") for number in range(3)] == [None] * 3
    assert not names._by_container
