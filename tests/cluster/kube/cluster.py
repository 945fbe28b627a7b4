# SPDX-License-Identifier: Apache-2.0
"""The whole of it: a control plane and two nodes in the network namespace that we are in.

``build/cluster-test.sh`` makes the namespaces (network, mounts) and calls; nothing here is
to run outside of them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import images
from .api import is_ready
from .control_plane import ControlPlane, Places
from .groups import ROOT, Groups
from .node import RUN, Node
from .services import Service, await_true

WORK = ROOT / ".work" / "cluster"
SERVER = "192.0.2.1"
#: name, address of the kubelet, network of its pods
NODES = (("node-1", "192.0.2.11", "198.51.100"), ("node-2", "192.0.2.12", "203.0.113"))
#: Who may reach the gadget's pods (deploy/rbac.yaml), who may only see them, who nothing.
USERS = {"user": "igsdk-users", "looker": "", "nobody": ""}


def private() -> bool:
    """Are we where the script put us, and not in the machine's own network and mounts?"""
    outside = os.environ.get("IGSDK_CLUSTER_OUTSIDE", "").split()
    ours = [str(Path("/proc/self/ns", name).readlink()) for name in ("net", "mnt")]
    return len(outside) == 2 and not set(ours) & set(outside)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _make_network() -> None:
    """Addresses that are not the loopback's: nodes may not have those."""
    _ip("link", "set", "lo", "up")
    _ip("link", "add", "nodes", "type", "veth", "peer", "name", "nodes-peer")
    for address in (SERVER, *(each[1] for each in NODES)):
        _ip("address", "add", f"{address}/24", "dev", "nodes")
    for name in ("nodes", "nodes-peer"):
        _ip("link", "set", name, "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _hide_folders() -> None:
    """What kubelets write at fixed places goes with us, and the machine's own is not seen."""
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    for folder in ("/run", "/var/lib", "/var/log"):
        subprocess.run(["mount", "-t", "tmpfs", "igsdk-cluster", folder], check=True)
    RUN.mkdir()


@dataclass
class Cluster:
    """A cluster that runs.

    Attributes:
        folder: its state and logs.
        plane: the API server and what belongs to it.
    """

    folder: Path
    plane: ControlPlane
    nodes: list[Node]

    @property
    def services(self) -> list[Service]:
        return [*self.plane.services, *(one for node in self.nodes for one in node.services)]

    def start(self, archives: list[Path]) -> None:
        """Starts all at once, and waits until the nodes are ready."""
        with ThreadPoolExecutor() as pool:
            pending = [pool.submit(self.plane.start)]
            pending += [pool.submit(node.start, archives) for node in self.nodes]
            for each in pending:
                each.result()
        await_true("the nodes are ready", self._nodes_ready, 120, self.services)

    def _nodes_ready(self) -> bool:
        return sum(is_ready(node) for node in self.plane.api.nodes()) == len(self.nodes)


@contextmanager
def cluster(instance: str = "test", *, agent: Path | None = None) -> Iterator[Cluster]:
    """A cluster with its images, ended with all that it started.

    Args:
        instance: several may be there at a time under different names.
        agent: the archive of the agent's image.
    """
    assert private(), "call build/cluster-test.sh, which makes the namespaces"
    groups = Groups(instance)
    groups.end()
    services: list[Service] = []
    try:
        made = _make(groups, WORK / "run" / instance)
        services = made.services
        archives = [images.pause(), images.workload(), *([agent] if agent else [])]
        made.start(archives)
        yield made
    finally:
        groups.end()
        for service in services:
            service.reap()


def _make(groups: Groups, folder: Path) -> Cluster:
    _hide_folders()
    _make_network()
    for each in ("logs", "state"):
        (folder / each).mkdir(parents=True)
    system = WORK / "system"
    places = Places(
        WORK / "bin", system, folder / "state", folder / "logs", groups.make("services")
    )
    kubelets = {f"system:node:{name}": "system:nodes" for name, _, _ in NODES}
    plane = ControlPlane(places, SERVER, {**kubelets, **USERS})
    nodes = []
    for name, address, pods in NODES:
        groups.make(name)
        nodes.append(
            Node(
                places,
                name,
                address,
                pods,
                group=f"{groups.name}/{name}",
                kubeconfig=plane.kubeconfig(f"system:node:{name}"),
                authority=plane.authority.certificate,
            )
        )
    return Cluster(folder, plane, nodes)
