# SPDX-License-Identifier: Apache-2.0
"""Keeps a test cluster until it is ended: for trying things by hand. See build/cluster-test.sh."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from tests.cluster.kube.cluster import USERS, cluster


def _end(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main(agent: Path | None = None) -> None:
    """Says where it is, then waits for Ctrl-C."""
    signal.signal(signal.SIGTERM, _end)
    start = time.monotonic()
    with cluster("up", agent=agent) as made:
        print(f"ready after {time.monotonic() - start:.0f} s; Ctrl-C ends it. In there:")
        print(f"  nsenter -t {os.getpid()} -n -m --wd=$PWD")
        for user in ("admin", *USERS):
            print(f"  export KUBECONFIG={made.plane.kubeconfig(user)}")
        print(f"logs: {made.folder / 'logs'}", flush=True)
        while True:
            signal.pause()


if __name__ == "__main__":
    try:
        main(*map(Path, sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
