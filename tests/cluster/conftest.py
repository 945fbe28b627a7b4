# SPDX-License-Identifier: Apache-2.0
"""One cluster for all of these tests, and who asks it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kube.cluster import Cluster, cluster, private
from tests.cluster.kube.workloads import deploy

Told = subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def made() -> Iterator[Cluster]:
    """A cluster with an agent on each of its nodes."""
    if not private():
        pytest.skip("these tests run in namespaces of their own: make cluster-test")
    with cluster(agent=Path(os.environ["IGSDK_CLUSTER_AGENT"])) as running:
        deploy(running)
        yield running


@pytest.fixture
def user(made: Cluster, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes this process somebody else to the cluster."""

    def become(name: str) -> None:
        monkeypatch.setenv("KUBECONFIG", str(made.plane.kubeconfig(name)))

    become("user")
    return become


@pytest.fixture
def igsdk_command(user: Callable[[str], None]) -> Callable[..., Told]:
    """Calls the command line as a person who may use the agents."""

    def call(*words: str, **environment: str) -> Told:
        return subprocess.run(
            [str(Path(sys.executable).with_name("igsdk")), *words],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return call


def rows(done: Told) -> list[dict[str, Any]]:
    """What a command said with ``--json``."""
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
