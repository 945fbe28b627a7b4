# SPDX-License-Identifier: Apache-2.0
"""Builds and runs ``tests/igoperators``: a gadget's image under Inspektor Gadget's operators.

They are Inspektor Gadget's own, of the version that the Go module proxy serves; the newest
one is not served, and `ig` itself needs forks of modules that are not served either. The
program is built once into ``.work/igoperators/`` (120 MB of modules, minutes of CPU the
first time) and is statically linked.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .gadgethost import ROOT, TESTS, fingerprint, why_not
from .simdriver import made_once

SOURCE = TESTS / "igoperators"
CACHE = ROOT / ".work" / "igoperators"
#: What the operators look for on a host; mounted in a namespace of the program's own.
MOUNTS = {
    "/sys/kernel/tracing": "tracefs",
    "/sys/kernel/debug": "debugfs",
    "/sys/fs/bpf": "bpf",
    "/var/lib": "tmpfs",  # its store of images
}
OUT_OF_REACH = ("dial tcp", "no such host", "i/o timeout", "connection refused", "Forbidden")


class OutOfReach(Exception):
    """The modules can't be had here."""


def _build_into(folder: Path) -> None:
    command = ["nice", "go", "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w"]
    command += ["-o", str(folder / "igoperators"), "."]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    done = subprocess.run(command, cwd=SOURCE, env=environment, capture_output=True, text=True)
    if done.returncode and any(word in done.stderr for word in OUT_OF_REACH):
        raise OutOfReach(done.stderr.strip().splitlines()[-1])
    if done.returncode:
        raise RuntimeError(f"Inspektor Gadget's operators do not build:\n{done.stderr}")


@functools.cache
def build() -> Path:
    """The program; skips the test that asks where it can't be built."""
    reason = "Inspektor Gadget takes root" if os.getuid() else why_not()
    if reason:
        pytest.skip(reason)
    try:
        return made_once(CACHE / fingerprint(SOURCE), _build_into) / "igoperators"
    except OutOfReach as error:
        pytest.skip(f"modules of Inspektor Gadget can't be had here: {error}")


def run(tar: Path, image: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Runs an image of a tar to the end; a flag ``-timeout`` says when that is.

    For the host, so that it runs without the collection of containers too, which takes
    kprobes. It sees no other processes than its own.
    """
    mounts = " && ".join(f"mount -t {kind} none {place}" for place, kind in MOUNTS.items())
    command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    command += ["sh", "-c", f'{mounts} && exec "$@"', "sh"]
    command += [str(build()), "-param=operator.LocalManager.host=true", *flags, str(tar), image]
    environment = {**os.environ, "HOME": str(tar.parent)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """What the program said."""
    return [json.loads(line) for line in done.stdout.splitlines()]
