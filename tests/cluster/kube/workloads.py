# SPDX-License-Identifier: Apache-2.0
"""Pods that play a script on the simulated driver, and the manifests of ``deploy/``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.support.containers import BIN, BOOKS, environment
from tests.support.simdriver import Books, all_books

from . import images
from .api import Api, Object, is_ready
from .cluster import Cluster
from .groups import ROOT
from .services import await_true

#: where the agents are, and where the workload is
GADGET, WORKLOADS = "gadget", "ml"
#: As long as a driver takes to start: its file is found and has its probes before the first call.
_SLOW = {"SIMCUDA_LATENCY": "cuInit:1500000"}


def manifests(name: str) -> list[Object]:
    """What ``deploy/`` has, with the image that was made here."""
    things = [each for each in yaml.safe_load_all((ROOT / "deploy" / name).read_text()) if each]
    for thing in things:
        if thing["kind"] == "DaemonSet":
            (container,) = thing["spec"]["template"]["spec"]["containers"]
            container["image"] = images.AGENT
    return things


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def agents(api: Api) -> dict[str, str]:
    """Node -> name of the agent's pod there, of those that are ready."""
    return {
        pod["spec"]["nodeName"]: pod["metadata"]["name"]
        for pod in api.pods(GADGET, "k8s-app=gadget")
        if is_ready(pod) and not pod["metadata"].get("deletionTimestamp")
    }


def deploy(made: Cluster) -> None:
    """Puts agents on all nodes, gives people their rights, and waits until all is ready."""
    api = made.plane.api
    api.apply([*manifests("agent.yaml"), *manifests("rbac.yaml"), namespace(WORKLOADS)])
    await_true("an agent on each node", lambda: len(agents(api)) == len(made.nodes), 120)


def reference(name: str, namespace: str = WORKLOADS) -> Object:
    """Names a pod."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


@dataclass
class Workload:
    """One pod that plays a script, and its books."""

    api: Api
    pod: Object
    folder: Path

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def books(self) -> list[Books]:
        return all_books(self.folder)

    def phase(self) -> str:
        (found,) = [
            each for each in self.api.pods(WORKLOADS) if each["metadata"]["name"] == self.name
        ]
        return str(found["status"]["phase"])

    def await_file(self, name: str) -> None:
        """Waits until the script has come to this file."""
        await_true(f"{self.name} comes to {name}", (self.folder / name).exists, 60, pause=0.02)

    def go(self, name: str) -> None:
        (self.folder / name).touch()

    def finish(self) -> None:
        """Waits for its good end."""
        await_true(f"{self.name} ends", lambda: self.phase() in ("Succeeded", "Failed"), 60)
        assert self.phase() == "Succeeded", self.api.logs(WORKLOADS, self.name)


@contextmanager
def workload(
    made: Cluster, name: str, node: str, script: str, folder: Path, **more: Any
) -> Iterator[Workload]:
    """A pod on that node, removed at the end. Its folder is its ``/books``.

    In a script, ``wait NAME`` tells that it has come there and waits for ``go(NAME)``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pod = _pod(name, node, ["play", "-e", _with_waits(script)], folder)
    pod["spec"].update(more)
    started = Workload(made.plane.api, pod, folder)
    time.sleep(0.02)  # the harness tells processes apart by pid and start, and all are process 1
    made.plane.api.apply([pod])
    try:
        yield started
    finally:
        made.plane.api.delete(pod)


def _with_waits(script: str) -> str:
    words = []
    for step in (each.strip() for each in script.split(";")):
        verb, _, name = step.partition(" ")
        if verb == "wait":
            words += [f"touch {BOOKS}/{name}.ready", f"await {BOOKS}/{name}"]
        else:
            words.append(step)
    return "; ".join(words)


def _pod(name: str, node: str, command: list[str], folder: Path) -> Object:
    variables = [{"name": key, "value": value} for key, value in environment(_SLOW).items()]
    container = {
        "name": "main",
        "image": images.WORKLOAD,
        "imagePullPolicy": "Never",
        "command": [f"{BIN}/{command[0]}", *command[1:]],
        "env": variables,
        "volumeMounts": [{"name": "books", "mountPath": BOOKS}],
    }
    spec = {
        "nodeName": node,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "dnsPolicy": "Default",
        "containers": [container],
        "volumes": [{"name": "books", "hostPath": {"path": str(folder), "type": "Directory"}}],
    }
    return {**reference(name), "spec": spec}
