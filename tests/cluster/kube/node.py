# SPDX-License-Identifier: Apache-2.0
"""One node: a containerd of its own with the images, and a kubelet."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from .control_plane import Places
from .images import PAUSE
from .services import Service, await_true

#: The machine's, for all nodes' sockets: paths of sockets have to be short.
RUN = Path("/run/igsdk-cluster")

_CONTAINERD = """
version = 2
root = "{state}/containerd"
state = "{run}/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{run}/socket"
[plugins."io.containerd.internal.v1.opt"]
  path = "{state}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Without CAP_SYS_RESOURCE nobody may be given a lower score than ours.
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{system}/usr/lib/cni"
    conf_dir = "{state}/cni"
"""


class Node:
    """A node of the cluster.

    Args:
        name: how it is called there.
        address: of its kubelet, on an interface of this network namespace.
        pods: the first three numbers of its pods' addresses.
    """

    def __init__(
        self,
        places: Places,
        name: str,
        address: str,
        pods: str,
        *,
        group: str,
        kubeconfig: Path,
        authority: Path,
    ) -> None:
        self.name = name
        self._places = places
        self._group = group
        self._address = address
        self._state = places.state / name
        self._run = RUN / name
        for folder in (self._state / "cni", self._state / "kubelet", self._run):
            folder.mkdir(parents=True, exist_ok=True)
        self._write_network(pods)
        self._write_configuration(authority)
        self.containerd = self._containerd()
        self.kubelet = self._kubelet(kubeconfig)

    @property
    def services(self) -> list[Service]:
        return [self.containerd, self.kubelet]

    def start(self, archives: list[Path]) -> None:
        """Starts both; images are loaded before the kubelet asks for them."""
        self.containerd.start()
        await_true(
            f"containerd of {self.name} serves", self._serves, 60, [self.containerd], pause=0.05
        )
        for archive in archives:
            self.load(archive)
        self.kubelet.start()

    def load(self, archive: Path) -> None:
        done = subprocess.run(
            self.ctr("images", "import", str(archive)), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def ctr(self, *words: str) -> list[str]:
        """A command line of containerd's own client."""
        program = self._places.system / "usr/bin/ctr"
        return [str(program), "-a", f"{self._run}/socket", "-n", "k8s.io", *words]

    def _serves(self) -> bool:
        return not subprocess.run(self.ctr("version"), capture_output=True).returncode

    def _write_network(self, pods: str) -> None:
        address = {
            "type": "host-local",
            "dataDir": str(self._run / "addresses"),
            "ranges": [[{"subnet": f"{pods}.0/24"}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        plugins = [{"type": "ptp", "ipam": address}]
        text = {"cniVersion": "0.4.0", "name": self.name, "plugins": plugins}
        (self._state / "cni" / "10-pods.conflist").write_text(json.dumps(text))

    def _write_configuration(self, authority: Path) -> None:
        text = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self._address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(authority)},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._group}",
            "containerRuntimeEndpoint": f"unix://{self._run}/socket",
            "enforceNodeAllocatable": [],
            "enableControllerAttachDetach": False,
            "evictionHard": {"memory.available": "0%", "nodefs.available": "0%"},
            "failCgroupV1": False,
            "failSwapOn": False,
            "healthzPort": 0,
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            "maxPods": 30,
            "oomScoreAdj": int(Path("/proc/self/oom_score_adj").read_text()),
            "podLogsDir": str(self._state / "logs"),
            "registerWithTaints": [],
            "resolvConf": "",
            "volumePluginDir": str(self._state / "plugins"),
        }
        (self._state / "kubelet.json").write_text(json.dumps(text))

    def _containerd(self) -> Service:
        configuration = self._state / "containerd.toml"
        configuration.write_text(
            _CONTAINERD.format(
                state=self._state, run=self._run, system=self._places.system, pause=PAUSE
            )
        )
        system = self._places.system
        service = self._places.service(
            f"{self.name}.containerd", system / "usr/bin/containerd", "-c", configuration
        )
        paths = [str(system / each) for each in ("usr/bin", "usr/sbin")]
        service.environment = {"PATH": ":".join([*paths, os.environ["PATH"], "/usr/sbin", "/sbin"])}
        return service

    def _kubelet(self, kubeconfig: Path) -> Service:
        service = self._places.service(
            f"{self.name}.kubelet",
            self._places.programs / "kubelet",
            f"--config={self._state}/kubelet.json",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={self._state}/kubelet",
            f"--cert-dir={self._state}/kubelet/pki",
            f"--hostname-override={self.name}",
            f"--node-ip={self._address}",
        )
        service.environment = {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        return service
