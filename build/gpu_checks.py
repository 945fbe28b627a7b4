# SPDX-License-Identifier: Apache-2.0
"""Compares what igsdk believes of a CUDA driver with the driver of this machine.

Prints a Markdown section for docs/gpu-checks.md; progress goes to standard error. Takes
under five minutes on one GPU and needs no network; called by build/gpu-checks.sh.

Exit codes: 0 nothing differs, 1 a check failed itself, 2 wrong arguments, 24 not root,
36 the driver does not start, 37 no NVIDIA GPU, 38 something differs.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import gpu_beliefs  # noqa: F401  (fills CHECKS)
from gpu_world import CHECKS, ROOT, ChildEnded, Finding, NotPossible, World, make_world

BUDGET = 270  # seconds after which no further check begins
OK, FAILED, USAGE, NOT_ROOT, NO_START, NO_GPU, DIFFERS = 0, 1, 2, 24, 36, 37, 38
DEVICE_FILES = ("/dev/nvidiactl", "/dev/dxg")


def stop(code: int, cause: str, remedy: str) -> None:
    print(f"igsdk: {cause}\nigsdk: {remedy}", file=sys.stderr)
    raise SystemExit(code)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--simulated", action="store_true", help="ask the simulated driver instead")
    parser.add_argument(
        "--list", action="store_true", help="print names and beliefs, check nothing"
    )
    parser.add_argument("--torch-python", metavar="PATH", help="a Python that has PyTorch")
    parser.add_argument(
        "checks", nargs="*", metavar="CHECK", help="only these; all if none is named"
    )
    options = parser.parse_args()
    unknown = set(options.checks) - {check.name for check in CHECKS}
    if unknown:
        names = ", ".join(check.name for check in CHECKS)
        stop(USAGE, f"There is no check {', '.join(sorted(unknown))}.", f"Name some of: {names}.")
    return options


def beliefs() -> str:
    """The table of docs/gpu-checks.md."""
    rows = [f"| {c.belief} | `make gpu-checks CHECKS={c.name}` |" for c in CHECKS]
    return "\n".join(
        ["| believed until then | the command that shows it |", "| --- | --- |", *rows]
    )


def require_gpu() -> None:
    """A machine with an NVIDIA driver, before anything is compiled or asked."""
    if not any(Path(path).exists() for path in DEVICE_FILES):
        stop(
            NO_GPU,
            f"This machine has no NVIDIA GPU that a program could use: no {DEVICE_FILES[0]}.",
            "Run this on one that has, or see the checks work: make gpu-checks CHECKS=--simulated",
        )
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        stop(
            NO_GPU,
            f"There is a GPU and no driver library: {error}.",
            "Install the NVIDIA driver's libcuda.so.1; in a container, start it with --gpus all.",
        )


def run_checks(world: World, names: list[str]) -> dict[str, Finding]:
    """Findings by name; what does not begin in time says so."""
    findings, began = {}, time.monotonic()
    for check in CHECKS:
        if names and check.name not in names:
            continue
        started = time.monotonic()
        if started - began > BUDGET:
            finding = Finding(check.belief, "", "not possible here", f"{BUDGET} s were over")
        else:
            finding = check.find(world)
        findings[check.name] = finding
        took = time.monotonic() - started
        print(f"igsdk: {check.name}: {finding.state}, {took:.1f} s", file=sys.stderr, flush=True)
    return findings


def markdown(world: World, findings: dict[str, Finding], seconds: float) -> str:
    """A section that can be committed as it is."""
    facts = world.facts or {}
    kind = "simulated driver" if world.simulated else f"{facts['name']}, driver {facts['driver']}"
    cuda = f"CUDA {facts['cuda'] // 1000}.{facts['cuda'] % 1000 // 10}"
    counted = Counter(finding.state for finding in findings.values())
    states = ", ".join(f"{n} {state}" for state, n in counted.items())
    title = f"### {time.strftime('%Y-%m-%d', time.gmtime())}: {kind}, {cuda}"
    place = f"igsdk at {_commit()}, Linux {platform.release()}, {platform.machine()}"
    devices = f"{facts['devices']} devices, the first with {facts['total'] / (1 << 30):.1f} GiB"
    head = ["| check | believed | observed | verdict |", "| --- | --- | --- | --- |"]
    rows = [_row(name, finding) for name, finding in findings.items()]
    return "\n".join([title, f"{place}; {devices}; {seconds:.0f} s. {states}.", "", *head, *rows])


def _row(name: str, finding: Finding) -> str:
    seen = finding.observed or finding.reason
    cells = (name, finding.belief, seen, finding.state)
    return "| " + " | ".join(" ".join(text.split()).replace("|", "\\|") for text in cells) + " |"


def _commit() -> str:
    done = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip() or "an unknown commit"


def exit_code(findings: dict[str, Finding]) -> int:
    states = {finding.state for finding in findings.values()}
    if "failed" in states:
        return FAILED
    return DIFFERS if "differs" in states else OK


def main() -> int:
    options = arguments()
    if options.list:
        print(beliefs())
        return OK
    if not options.simulated:
        require_gpu()
    if os.geteuid():
        stop(NOT_ROOT, "Tracing takes root.", "Run it again as root: sudo make gpu-checks")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="igsdk-gpu-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # under sudo the recorded clients run as the caller
        try:
            world = make_world(options.simulated, folder, options.torch_python)
        except (NotPossible, ChildEnded) as error:
            stop(
                NO_START,
                f"The CUDA driver does not start: {error}.",
                "Look at nvidia-smi and dmesg.",
            )
        findings = run_checks(world, options.checks)
        print(markdown(world, findings, time.monotonic() - began))
    return exit_code(findings)


if __name__ == "__main__":
    sys.exit(main())
