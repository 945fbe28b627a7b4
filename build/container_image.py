# SPDX-License-Identifier: Apache-2.0
"""Parts of the agent's container image, for build/container.sh.

usage: container_image.py layer FOLDER TAR            a folder as a layer, owned by root
       container_image.py python TAR                  "3.11": the version of a layer's python3
       container_image.py image REFERENCE TAR LAYER…  the archive of an image of these layers
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import sys
import tarfile
from pathlib import Path

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_COMMAND = ["igsdk", "agent", "--listen", "tcp://127.0.0.1:8080"]


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def write_layer(folder: Path, archive: Path) -> None:
    with tarfile.open(archive, "w") as tar:
        tar.add(folder, arcname=".", filter=_of_root)


def python_version(archive: Path) -> str:
    """Where ``/usr/bin/python3`` leads."""
    with tarfile.open(archive) as tar:
        for entry in tar:
            if entry.name.removeprefix("./") == "usr/bin/python3":
                found = re.fullmatch(r"python(\d+\.\d+)", entry.linkname)
                if found:
                    return found[1]
    raise SystemExit(f"container_image: {archive} has no /usr/bin/python3")


def write_image(reference: str, archive: Path, layers: list[Path]) -> None:
    """The form of `docker save`: a manifest, a configuration, the layers as they are."""
    digests = [_digest(layer) for layer in layers]
    configuration = json.dumps(
        {
            "architecture": _ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {
                "Cmd": _COMMAND,
                "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8"],
                "Labels": {"org.opencontainers.image.title": "igsdk"},
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{each}" for each in digests]},
        }
    ).encode()
    name = f"{hashlib.sha256(configuration).hexdigest()}.json"
    names = [f"{digest}.tar" for digest in digests]
    manifest = [{"Config": name, "RepoTags": [reference], "Layers": names}]
    with tarfile.open(archive, "w") as tar:
        _add(tar, "manifest.json", json.dumps(manifest).encode())
        _add(tar, name, configuration)
        for layer, inside in zip(layers, names, strict=True):
            tar.add(layer, arcname=inside, filter=_of_root)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


def main(what: str, *words: str) -> None:
    if what == "layer":
        write_layer(Path(words[0]), Path(words[1]))
    elif what == "python":
        print(python_version(Path(words[0])))
    elif what == "image":
        write_image(words[0], Path(words[1]), [Path(each) for each in words[2:]])
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
