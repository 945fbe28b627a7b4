# SPDX-License-Identifier: Apache-2.0
"""Runs on another kernel, as root of a virtual machine that sees this one's files.

    guest.py FOLDER RESULT PYTHON...

Appends one line a check to RESULT, since the console is the kernel's too: `ok` or `FAILED`,
the kernel, what was looked at; the last one is `end`. FOLDER is what prepare.py made.

What is traced lies on a tmpfs: files on 9p, as which the machine sees ours, have no uprobes.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.kernels import prepared
from tests.kernels.image import check_image, check_rules
from tests.kernels.machine import (
    MODES,
    RELEASE,
    Checks,
    attempt,
    check_balance,
    expected_modes,
    mount,
    own_driver,
    recording,
)
from tests.kernels.python_stacks import check_python, name_of
from tests.support import simdriver
from tests.support.loadings import refusals

import igsdk
from igsdk import _native

OBJECT = Path(igsdk.__file__).parent / "_bpf" / "local.amd64.bpf.o"


def check_automatic() -> str:
    tracer = _native.Tracer(OBJECT.read_bytes(), {}, {})
    mode = tracer.mode
    tracer.close()
    assert mode == expected_modes()[0], f"{mode} was chosen, not {expected_modes()[0]}"
    return f"{mode} links are chosen, the best that this kernel has"


def check_refused(mode: str, driver: simdriver.Driver) -> str:
    """A mode that the kernel lacks must be refused in words, at loading or at attaching."""
    try:
        with recording(mode, driver) as run:
            sites = sum(len(library.sites) for library in run.attached)
            refusals = [note for note in run.notes() if str(driver.libcuda) in note]
    except (OSError, igsdk.IgsdkError) as error:
        return f"not in this kernel, and refused: {str(error).splitlines()[0]}"
    assert not sites, f"the kernel has no {mode} links, and {sites} probes are said to be on"
    assert refusals, "nothing is attached, and no note says why"
    return f"not in this kernel, and refused: {refusals[0].splitlines()[0]}"


def check_mode(
    checks: Checks, mode: str, driver: simdriver.Driver, scripts: list[str], pythons: list[str]
) -> None:
    start = time.monotonic()
    with recording(mode, driver) as run:
        libraries = run.attached

        def attached() -> str:
            assert [library.how for library in libraries] == [f"uprobe-{mode}"], libraries
            sites = sum(len(library.sites) for library in libraries)
            return f"loaded and attached in {time.monotonic() - start:.0f} s, {sites} functions"

        checks.do(f"{mode} links", attached)
        checks.do(f"{mode} links, bytes", lambda: check_balance(run, driver, scripts, mode))
        for python in pythons:
            what = f"{mode} links, {name_of(python)}"
            checks.do(what, partial(check_python, run, driver, python))


def check_verifier(one: prepared.Verification) -> str:
    """Whether the kernel takes an object, whatever is set; of a refusal the end is enough."""
    refused = refusals(one.data, one.ways)
    for text in refused:
        print(text, flush=True)
    ends = ["\n".join(text.splitlines()[:1] + text.splitlines()[-20:]) for text in refused]
    assert not refused, f"{len(refused)} of {len(one.ways)} are refused: {ends[0]}"
    return f"all {len(one.ways)} combinations are verified"


def check_verifiers(checks: Checks, verifications: list[prepared.Verification]) -> None:
    """One on each processor: verifying is all that they do, and nothing in it waits."""
    possible = [
        one for one in verifications if "session" not in one.user or "session" in expected_modes()
    ]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(partial(tell_verified, checks), possible))


def tell_verified(checks: Checks, one: prepared.Verification) -> None:
    checks.do(one.name, partial(check_verifier, one))


def check_modes(
    checks: Checks, driver: simdriver.Driver, scripts: list[str], pythons: list[str]
) -> None:
    """All of the best mode, and less of one that the kernel has besides."""
    best = expected_modes()[0]
    for mode in MODES:
        if mode not in expected_modes():
            checks.do(f"{mode} links", partial(check_refused, mode, driver))
        elif mode == best:
            attempt(checks, mode, partial(check_mode, checks, mode, driver, scripts, pythons))
        else:
            attempt(checks, mode, partial(check_mode, checks, mode, driver, scripts[-10:], []))


def main() -> None:
    folder, result, *pythons = sys.argv[1:]
    checks = Checks(Path(result))
    mount()
    driver = own_driver()
    given = prepared.read(Path(folder))
    os.environ["PATH"] = given.path  # the machine has one of its own
    check_verifiers(checks, given.verifications)
    checks.do("automatic", check_automatic)
    check_modes(checks, driver, given.scripts, pythons)
    attempt(checks, "image", partial(check_image, checks, driver, given, pythons[0]))
    if given.gadget:
        work = partial(check_rules, checks, driver, given.scripts, given.gadget)
        attempt(checks, "image by Inspektor Gadget's rules", work)
    else:
        checks.tell(f"SKIPPED {RELEASE} image by Inspektor Gadget's rules: {given.no_host}")
    checks.tell("end")


if __name__ == "__main__":
    main()
