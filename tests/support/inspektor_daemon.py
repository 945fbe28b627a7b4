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
from collections.abc import Iterator
from pathlib import Path

import pytest

VARIABLE = "IGSDK_TEST_IG"
_SCRIPT = """
set -e
mkdir -p /var/lib/ig
mount --bind {folder}/state /var/lib/ig
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
export HOME={folder}
{ig} image import {image}
exec {ig} daemon --host unix://{folder}/socket --tls-insecure --verify-image=false
"""


def ig_program() -> str:
    """The program; skips the test where none is named."""
    if not os.environ.get(VARIABLE):
        pytest.skip(f"no Inspektor Gadget here: {VARIABLE} would name its ig program")
    return os.environ[VARIABLE]


@contextlib.contextmanager
def inspektor_daemon(folder: Path, image: Path) -> Iterator[str]:
    """Runs it with one image in its store; gives its target."""
    (folder / "state").mkdir()
    words = {"folder": folder, "image": image, "ig": ig_program()}
    script = _SCRIPT.format(**{name: shlex.quote(str(word)) for name, word in words.items()})
    argv = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c"]
    log = folder / "log"
    with (
        log.open("wb") as out,
        subprocess.Popen([*argv, script], stdout=out, stderr=subprocess.STDOUT) as process,
    ):
        try:
            _wait_for(folder / "socket", process, log)
            yield f"unix://{folder}/socket"
        finally:
            process.kill()


def _wait_for(path: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(str(path))
            return
        time.sleep(0.1)
    pytest.fail(f"the daemon did not start:\n{log.read_text()[-2000:]}")
