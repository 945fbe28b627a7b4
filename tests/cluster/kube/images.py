# SPDX-License-Identifier: Apache-2.0
"""Images that are made here: nothing is pulled."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from tests.support import containers
from tests.support.containerd import write_archive
from tests.support.simdriver import TESTS, build, made_once

PAUSE = "igsdk.test/pause:1"
WORKLOAD = "igsdk.test/workload:1"
AGENT = "igsdk.test/agent:1"

CACHE = TESTS.parent / ".work" / "cluster" / "images"

# What holds a pod's namespaces. It is process 1 there: a signal without a handler is lost
# on it, and what is left behind becomes its child.
_PAUSE = """
#include <signal.h>
#include <unistd.h>
#include <sys/wait.h>
static void end(int number) { _exit(number == SIGTERM ? 0 : 1); }
static void reap(int number) { while (waitpid(-1, 0, WNOHANG) > 0) { } }
int main(void)
{ signal(SIGTERM, end); signal(SIGINT, end); signal(SIGCHLD, reap); for (;;) pause(); }
"""


def _make_pause(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root, source = Path(temporary, "root"), Path(temporary, "pause.c")
        root.mkdir()
        source.write_text(_PAUSE)
        command = ["cc", "-static", "-O2", "-o", str(root / "pause"), str(source)]
        subprocess.run(command, check=True)
        write_archive(root, PAUSE, folder / "image.tar", command=["/pause"])


def pause() -> Path:
    """The archive of the image that every pod begins with."""
    return made_once(CACHE / "pause-1", _make_pause) / "image.tar"


def workload() -> Path:
    """The archive of the image with the simulated driver, the player and a Python."""
    root = containers.image(build())
    made = made_once(
        CACHE / f"workload-{root.name}",
        lambda folder: write_archive(root, WORKLOAD, folder / "image.tar"),
    )
    return made / "image.tar"
