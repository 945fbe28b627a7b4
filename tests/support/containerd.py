# SPDX-License-Identifier: Apache-2.0
"""A containerd of our own: its images and snapshots in a folder that goes with it.

It is started from nothing and ends with the test; the machine's own, if there is one,
is left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .containers import missing as runc_missing

#: As the kubelet's containers are in; the cgroup is called so too.
NAMESPACE = "k8s.io"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_CONFIGURATION = """
version = 2
root = "{0}/root"
state = "{0}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{0}/socket"
[plugins."io.containerd.internal.v1.opt"]
  path = "{0}/opt"
"""


def missing() -> str:
    """Why there can be no containerd here; "" where there can."""
    if not (shutil.which("containerd") and shutil.which("ctr")):
        return "containerd is not installed: apt-get install containerd"
    return runc_missing()


@dataclass
class Containerd:
    folder: Path

    def ctr(self, *words: str) -> list[str]:
        """The command line of a client of ours."""
        return ["ctr", "-a", str(self.folder / "socket"), "-n", NAMESPACE, *words]

    def load(self, root: Path, name: str) -> None:
        """Makes an image of one layer of a folder."""
        archive = self.folder / "image.tar"
        write_archive(root, name, archive)
        subprocess.run(self.ctr("images", "import", str(archive)), check=True, capture_output=True)
        archive.unlink()

    def run(
        self, image: str, name: str, *argv: str, books: Path, variables: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Runs a container to its end."""
        mount = f"type=bind,src={books},dst=/books,options=rbind:rw"
        settings = [word for each in variables.items() for word in ("--env", "=".join(each))]
        words = self.ctr("run", "--rm", "--mount", mount, *settings, image, name, *argv)
        return subprocess.run(words, capture_output=True, text=True, timeout=60)


@contextlib.contextmanager
def containerd() -> Iterator[Containerd]:
    """A containerd that serves, and is gone with all its files at the end."""
    folder = Path(tempfile.mkdtemp(prefix="igsdk-ctrd-"))  # a socket's path has to be short
    configuration = folder / "config.toml"
    configuration.write_text(_CONFIGURATION.format(folder))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(["containerd", "-c", configuration], stderr=log)
    served = Containerd(folder)
    try:
        _await(served, process)
        yield served
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


def _await(served: Containerd, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while subprocess.run(served.ctr("version"), capture_output=True).returncode:
        log = (served.folder / "log").read_text()
        assert process.poll() is None, log
        assert time.monotonic() < until, log
        time.sleep(0.05)


def write_archive(root: Path, name: str, archive: Path, command: Sequence[str] = ()) -> None:
    """The form that `docker save` writes: a manifest, a configuration, a layer."""
    layer = archive.with_name("layer.tar")
    with tarfile.open(layer, "w") as tar:
        tar.add(root, arcname=".")
    digest = hashlib.sha256(layer.read_bytes()).hexdigest()
    configuration = {
        "architecture": _ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Cmd": list(command)},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    text = json.dumps(configuration).encode()
    config_name = f"{hashlib.sha256(text).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        _add(tar, config_name, text)
        _add(tar, "manifest.json", json.dumps(manifest).encode())
        tar.add(layer, arcname="layer.tar")
    layer.unlink()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))
