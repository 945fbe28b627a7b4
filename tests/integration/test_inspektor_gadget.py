# SPDX-License-Identifier: Apache-2.0
"""Our image in a real Inspektor Gadget, in a virtual machine (tests/kernels/inspektor.py).

    IGSDK_TEST_IG=/path/to/ig make test PYTEST_ARGS="tests/integration/test_inspektor_gadget.py"

IGSDK_TEST_IG_CHECKS="import profile" does some of its checks.

Inspektor Gadget finds libraries by kprobes, which not every kernel has; those that
`make kernel-test` keeps in .work/kernels do.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kernels.inspektor import FEW, NAME, SYMBOLS, UNSIGNED
from tests.support import simdriver

from igsdk import _abi

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / ".work" / "kernels"
WORK = ROOT / ".work" / "inspektor"
IG = os.environ.get("IGSDK_TEST_IG", "")
#: An emulated processor; on a busy machine it takes most of this.
LIMIT_S = 3000


def why_not() -> str:
    if not IG:
        return "IGSDK_TEST_IG names no `ig` binary; nothing of Inspektor Gadget is kept here"
    if not os.access(IG, os.X_OK):
        return f"IGSDK_TEST_IG names {IG}, which cannot be run"
    if os.getuid():
        return "virtual machines with a root of this file system take root"
    if not (KERNELS / "venv/bin/virtme-ng").exists():
        return "no virtual machines here: `make kernel-test` sets them up"
    return ""


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


def igsdk(*words: str) -> None:
    command = [str(Path(sys.executable).parent / "igsdk"), "gadget", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def make_key(name: str) -> None:
    key, public = WORK / f"{name}.pem", WORK / f"{name}.pub"
    kind = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
    for words in (("genpkey", *kind, "-out", key), ("pkey", "-in", key, "-pubout", "-out", public)):
        subprocess.run(["openssl", *words], check=True, capture_output=True)


def short_folder() -> Path:
    """The gadget with most programs disabled, beside our headers."""
    folder = WORK / "source" / "gadget"
    shutil.copytree(ROOT / "gadget", folder)
    shutil.copytree(ROOT / "bpf", WORK / "source" / "bpf")
    left_out = [symbol for symbol in _abi.sites() if symbol not in SYMBOLS]
    disabled = "".join(
        f"  {end}_{symbol}:\n    attach_to: gadget_program_disabled\n"
        for symbol in left_out
        for end in ("enter", "leave")
    )
    path = folder / "gadget.yaml"
    text, count = re.subn(r"^programs:\n", f"programs:\n{disabled}", path.read_text(), flags=re.M)
    assert count == 1, "gadget.yaml has no `programs:` to add to"
    path.write_text(text)
    return folder


@pytest.fixture(scope="module")
def prepared() -> Path:
    """What the machines are given: they see no /tmp of ours."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    shutil.copy(IG, WORK / "ig")
    for name in ("key", "other"):
        make_key(name)
    for name, source, tag in (
        ("image", ROOT / "gadget", NAME),
        ("unsigned", ROOT / "gadget", UNSIGNED),
        ("few", short_folder(), FEW),
    ):
        igsdk("build", str(source), "-o", str(WORK / f"{name}.tar"), "--tag", tag)
        if name != "unsigned":
            igsdk("sign", str(WORK / f"{name}.tar"), "--key", str(WORK / "key.pem"))
    simdriver.build()
    return WORK


def boot(kernel: Path, result: Path, console: Path) -> None:
    """Runs the checks in a machine."""
    release = kernel.name.removeprefix("linux-image-")
    only = os.environ.get("IGSDK_TEST_IG_CHECKS", "").split()
    script = ["tests/kernels/inspektor.py", str(WORK), str(result), *only]
    paths = f"PYTHONPATH={ROOT}/python:{ROOT}"
    inside = shlex.join(["env", "PYTHONDONTWRITEBYTECODE=1", paths, sys.executable, *script])
    command = [str(KERNELS / "venv/bin/virtme-ng"), "--verbose"]
    command += ["-r", str(kernel / "boot" / f"vmlinuz-{release}"), "--disable-kvm", "--force-9p"]
    command += [f"--rwdir={ROOT}", f"--cwd={ROOT}", "--qemu-opts=-cpu Nehalem"]
    command += ["--cpus", "2", "--memory", "4G", "--user", "root", "--", inside]
    path = f"{KERNELS}/venv/bin:{os.environ['PATH']}:/usr/sbin:/sbin"
    with console.open("w") as said:
        subprocess.run(
            ["timeout", str(LIMIT_S), *command],
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )


@pytest.mark.parametrize("version", ["6.12.", "6.1."])
def test_a_real_inspektor_gadget(version: str, prepared: Path) -> None:
    kernels = sorted(KERNELS.glob(f"linux-image-{version}*"))
    if not kernels:
        pytest.skip(f"no kernel {version}x in {KERNELS}: `make kernel-test` fetches it")
    result = prepared / f"result.{version}txt"
    result.unlink(missing_ok=True)
    console = prepared / f"console.{version}txt"
    boot(kernels[-1], result, console)
    lines = result.read_text().splitlines() if result.exists() else []
    print("\n".join(lines))
    assert not [line for line in lines if line.startswith("FAILED")], "\n".join(lines)
    end = console.read_text(errors="replace")[-3000:]
    assert lines[-1:] == ["end"], f"the machine ended before its checks:\n{end}"
