# SPDX-License-Identifier: Apache-2.0
"""Profiles over a cluster: per pod, and through what happens to clusters.

Both nodes have one kernel, so both agents see all processes of both, and say that they are
the same machine: every byte would be there twice if that were not taken into account.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from tests.cluster.kube.cluster import Cluster
from tests.cluster.kube.services import await_true
from tests.cluster.kube.workloads import GADGET, WORKLOADS, agents, reference, workload
from tests.support.remote_books import assert_booked

import igsdk
from igsdk._remote.run import RemoteRun
from igsdk._remote.runtime import FleetTarget

pytestmark = [pytest.mark.usefixtures("user"), pytest.mark.timeout(600)]

M = 1 << 20


@contextmanager
def profiling(pod: str | None = None) -> Iterator[RemoteRun]:
    gpu = cast("FleetTarget", igsdk.connect("k8s:"))
    with gpu, gpu.profile_cuda_memory(namespace=WORKLOADS, pod=pod) as run:
        yield run


def await_nodes(run: RemoteRun, *states: str) -> None:
    """Waits until the nodes that are not gone are all so."""

    def settled() -> bool:
        return sorted(each.state for each in run.nodes() if each.state != "left") == list(states)

    await_true(f"nodes are {states}: {run.nodes()}", settled, 60)


def await_in_use(run: RemoteRun, pod: str, wanted: int) -> None:
    """Waits until the profile has so many bytes of that pod."""
    until = time.monotonic() + 30
    while (found := run.profile().filter(pod=pod).total("inuse_space", "own")) != wanted:
        said = f"{pod}: {found} and not {wanted}; {run.profile().samples()}; {run.notes()}"
        assert time.monotonic() < until, said
        time.sleep(0.3)


def test_each_pod_has_what_its_driver_has_in_its_books(made: Cluster, tmp_path: Path) -> None:
    first = "use 0 = 0; alloc p 3M = 0; managed m 2M = 0; wait a; free p = 0; alloc q 900G = 2"
    second = "use 0 = 0; alloc p 7M = 0; alloc q 1M = 0; free q = 0; wait a"
    with (
        profiling() as run,
        workload(made, "trainer-a", "node-1", first, tmp_path / "a") as a,
        workload(made, "trainer-b", "node-2", second, tmp_path / "b") as b,
    ):
        for pod in (a, b):
            pod.await_file("a.ready")
        for pod in (a, b):
            (book,) = pod.books
            await_in_use(run, pod.name, book.in_use)
            pod.go("a")
        for pod in (a, b):
            pod.finish()
        assert_booked(run, a.books + b.books)
        await_true("they have names", lambda: pods_of(run) == {"trainer-a", "trainer-b"}, 20)
        run.stop()
        profile = run.profile()
    labels = {
        tuple(row[name] for name in ("node", "namespace", "pod", "container"))
        for row in profile.samples()
    }
    assert labels == {
        ("node-1", WORKLOADS, "trainer-a", "main"),
        ("node-2", WORKLOADS, "trainer-b", "main"),
    }
    assert profile.total("alloc_space", "own") == 11 * M
    assert profile.filter(pod="trainer-a").total("failed_space", "own") == 900 << 30
    assert profile.filter(node="node-2").total("alloc_space", "own") == 8 * M
    assert any("same machine" in note for note in profile.metadata.notes)


def pods_of(run: RemoteRun) -> set[str]:
    return {row["pod"] for row in run.profile().samples()}


def test_only_one_pod_is_chosen(made: Cluster, tmp_path: Path) -> None:
    script = "use 0 = 0; alloc p 1M = 0; wait a"
    with (
        profiling(pod="chosen-*") as run,
        workload(made, "chosen-1", "node-2", script, tmp_path / "a") as chosen,
        workload(made, "other-1", "node-2", script, tmp_path / "b") as other,
    ):
        for pod in (chosen, other):
            pod.await_file("a.ready")
        await_in_use(run, "chosen-1", M)
        time.sleep(1.2)  # an interval later the other one would be there too
        assert run.profile().total("alloc_space", "own") == M
        for pod in (chosen, other):
            pod.go("a")


def test_a_workload_pod_is_killed_and_comes_again(made: Cluster, tmp_path: Path) -> None:
    """Two processes in two pods of one name: both are there, the first as it was at its end."""
    script = "use 0 = 0; alloc p 4M = 0; wait a; alloc q 1M = 0"
    with profiling(pod="again") as run:
        with workload(made, "again", "node-1", script, tmp_path / "a") as killed:
            killed.await_file("a.ready")
            await_in_use(run, "again", 4 * M)
        with workload(made, "again", "node-2", script, tmp_path / "b") as second:
            second.await_file("a.ready")
            second.go("a")
            second.finish()
            assert_booked(run, killed.books + second.books)
        run.stop()
        profile = run.profile()
    assert profile.filter(pod="again").total("alloc_space", "own") == 9 * M
    assert profile.filter(pod="again", node="node-1").total("alloc_space", "own") == 4 * M


@pytest.mark.parametrize("node", ["node-1", "node-2"])
def test_an_agent_is_killed_and_comes_again(made: Cluster, node: str, tmp_path: Path) -> None:
    """While a workload goes on. The other one saw all of it, whichever was counted before."""
    script = "use 0 = 0; alloc p 3M = 0; wait a; alloc q 2M = 0; free p = 0; wait b; alloc r 1M = 0"
    api = made.plane.api
    with profiling() as run, workload(made, "steady", "node-1", script, tmp_path) as steady:
        steady.await_file("a.ready")
        await_in_use(run, "steady", 3 * M)
        before = agents(api)
        api.delete(reference(before[node], GADGET))
        steady.go("a")
        await_true("the agent is there again", lambda: len(agents(api)) == 2, 60)
        assert agents(api)[node] != before[node]
        await_nodes(run, "running", "running")
        await_in_use(run, "steady", 2 * M)
        steady.go("b")
        steady.finish()
        assert_booked(run, steady.books)


def test_the_api_server_is_killed_and_comes_again(made: Cluster, tmp_path: Path) -> None:
    """With it go all tunnels. They open again, and nothing that happened meanwhile is lost."""
    script = "use 0 = 0; alloc p 3M = 0; wait a; alloc q 2M = 0; free p = 0; wait b; alloc r 1M = 0"
    with profiling() as run, workload(made, "patient", "node-2", script, tmp_path) as patient:
        patient.await_file("a.ready")
        await_in_use(run, "patient", 3 * M)
        made.plane.stop_server()
        await_nodes(run, "broken", "broken")
        patient.go("a")
        patient.await_file("b.ready")
        made.plane.start_server()
        await_nodes(run, "running", "running")
        await_in_use(run, "patient", 2 * M)
        patient.go("b")
        patient.finish()
        assert_booked(run, patient.books)
        assert [len(node.gaps) >= 1 for node in run.nodes()] == [True, True]
        assert run.losses()["gaps"] >= 2


def test_the_command_line_records_a_pod(
    made: Cluster, igsdk_command: Callable[..., object], tmp_path: Path
) -> None:
    script = "use 0 = 0; alloc p 6M = 0; wait a"
    output = tmp_path / "pod.json"
    with workload(made, "recorded", "node-2", script, tmp_path / "books") as pod:
        pod.await_file("a.ready")
        words = ["--target", "k8s:", "--pod", "recorded", "--duration", "3", "-o", str(output)]
        done = igsdk_command("record", *words)
        pod.go("a")
    assert done.returncode == 0, done.stderr  # type: ignore[attr-defined]
    assert igsdk.Profile.read(output).filter(pod="recorded").total("inuse_space", "own") == 6 * M
