# SPDX-License-Identifier: Apache-2.0
"""A real Inspektor Gadget daemon, where somebody has one: IGSDK_TEST_IG names the `ig` program.

It has processes, file systems, images and instances of its own; the kernel is this one's.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

VARIABLE = "IGSDK_TEST_IG"
IMAGES = "IGSDK_TEST_IG_IMAGES"
INSECURE = ("--tls-insecure",)
ANY_IMAGE = ("--verify-image=false",)
_SCRIPT = """
set -e
mkdir -p /var/lib/ig
mount --bind {folder}/state /var/lib/ig
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
export HOME={folder}
for image in {images}; do {ig} image import "$image"; done
exec {ig} daemon --host {address} {options}
"""


def ig_program() -> str:
    """The program; skips the test where none is named."""
    if not os.environ.get(VARIABLE):
        pytest.skip(f"no Inspektor Gadget here: {VARIABLE} would name its ig program")
    return os.environ[VARIABLE]


def gadgetctl_program() -> str:
    """The other client, beside `ig`; skips the test where there is none."""
    path = Path(ig_program()).with_name("gadgetctl")
    if not path.exists():
        pytest.skip(f"no gadgetctl beside {ig_program()}")
    return str(path)


def image_of_another(name: str) -> Path:
    """An image of Inspektor Gadget's own; skips the test where somebody has not brought it."""
    ig_program()
    if not os.environ.get(IMAGES):
        pytest.skip(f"no gadgets of Inspektor Gadget here: {IMAGES} would name a folder of images")
    path = Path(os.environ[IMAGES], f"{name}.tar")
    if not path.exists():
        pytest.skip(f"there is no {path}")
    return path


@dataclass(frozen=True)
class Inspektor:
    """A daemon that runs.

    Attributes:
        target: where it listens.
        log: the file of what it says.
        init: the first process of its PID namespace, in ours.
    """

    target: str
    log: Path
    init: int

    def inside(self, *argv: str) -> list[str]:
        """The command line that runs another one where the daemon sees its pid."""
        return ["nsenter", "--target", str(self.init), "--pid", *argv]


@contextlib.contextmanager
def inspektor_daemon(
    folder: Path,
    *images: Path,
    address: str = "",
    options: Sequence[str] = (*INSECURE, *ANY_IMAGE),
) -> Iterator[Inspektor]:
    """Runs it with these images in its store, on a socket of the folder or a TCP address."""
    (folder / "state").mkdir()
    words = {
        "folder": shlex.quote(str(folder)),
        "images": shlex.join(map(str, images)),
        "ig": shlex.quote(ig_program()),
        "address": shlex.quote(address or f"unix://{folder}/socket"),
        "options": shlex.join(options),
    }
    argv = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c"]
    log = folder / "log"
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [*argv, _SCRIPT.format(**words)], stdout=out, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            _wait_for(address or str(folder / "socket"), process, log)
            yield Inspektor(address or f"unix://{folder}/socket", log, _child(process.pid))
        finally:
            process.kill()


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def _connect(address: str) -> None:
    if address.startswith("tcp://"):
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        socket.create_connection((host, int(port))).close()
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(address)


def _wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError):
            _connect(address)
            return
        time.sleep(0.1)
    pytest.fail(f"the daemon did not start:\n{log.read_text()[-2000:]}")
