# SPDX-License-Identifier: Apache-2.0
"""build/preflight.sh on machines that lack one thing each: cause, remedy, exit code."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "build/preflight.sh"
ALL_CAPABILITIES = "000001ffffffffff"
NO_SYS_ADMIN = "00000000a80425fb"  # what a container's root has by default
BPF_AND_PERFMON = "000000c000000000"


class Machine:
    """A machine as preflight.sh sees it: stub commands in PATH, own /proc and /sys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("bin", "proc/self", "proc/1", "sys/kernel/btf", "sys/kernel/security"):
            (folder / name).mkdir(parents=True)
        self.command("id", 'case "$1" in -u) echo 0 ;; *) echo root ;; esac')
        self.uname()
        self.capabilities(ALL_CAPABILITIES)
        self.write("sys/kernel/btf/vmlinux", "types")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def command(self, name: str, body: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def uname(
        self, system: str = "Linux", release: str = "6.8.0-31-generic", machine: str = "x86_64"
    ) -> None:
        self.command(
            "uname",
            f"case $1 in -s) echo {system};; -r) echo {release};; -m) echo {machine};; esac",
        )

    def capabilities(self, mask: str) -> None:
        self.write("proc/self/status", f"Name:\tsh\nCapEff:\t{mask}\nSeccomp:\t0\n")

    def check(self, *checks: str) -> tuple[int, str]:
        """Runs the script; returns its exit code and what it said."""
        environment = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "IGSDK_PREFLIGHT_PROC": str(self.folder / "proc"),
            "IGSDK_PREFLIGHT_SYS": str(self.folder / "sys"),
        }
        done = subprocess.run(
            ["sh", SCRIPT, *checks], env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_good_machine_passes_in_silence(machine: Machine) -> None:
    assert machine.check("machine") == (0, "")


@pytest.mark.parametrize(
    ("release", "code"),
    [("5.15.0-101-generic", 23), ("6.0.19", 23), ("6.1.0-18-amd64", 0), ("7.0-rc1", 0)],
)
def test_kernel_version(machine: Machine, release: str, code: int) -> None:
    machine.uname(release=release)
    found, said = machine.check("machine")
    assert found == code
    assert ("Boot a newer kernel" in said) == (code == 23)


def test_old_detach_is_said(machine: Machine) -> None:
    machine.uname(release="6.1.0-18-amd64")
    assert "taken off one by one" in machine.check("machine")[1]


@pytest.mark.parametrize(
    ("uname", "code", "cause", "remedy"),
    [
        ({"system": "Darwin"}, 20, "This is Darwin", "Run it on a Linux machine"),
        ({"machine": "riscv64"}, 21, "The processor is riscv64", "Run it on a machine"),
        ({"release": "4.4.0-19041-Microsoft"}, 22, "WSL 1", "WSL 2"),
    ],
)
def test_wrong_system(
    machine: Machine, uname: dict[str, str], code: int, cause: str, remedy: str
) -> None:
    machine.uname(**uname)
    found, said = machine.check("machine")
    assert found == code
    assert cause in said
    assert remedy in said


def test_wsl_2_is_noted(machine: Machine) -> None:
    machine.uname(release="6.6.87.2-microsoft-standard-WSL2")
    code, said = machine.check("machine")
    assert code == 0
    assert "WSL 2" in said


def test_not_root(machine: Machine) -> None:
    machine.command("id", 'case "$1" in -u) echo 1000 ;; *) echo ada ;; esac')
    code, said = machine.check("machine")
    assert code == 24
    assert "as the user ada" in said
    assert "sudo make run" in said


def test_no_btf(machine: Machine) -> None:
    (machine.folder / "sys/kernel/btf/vmlinux").unlink()
    code, said = machine.check("machine")
    assert code == 25
    assert "CONFIG_DEBUG_INFO_BTF" in said


@pytest.mark.parametrize(("mask", "code"), [(NO_SYS_ADMIN, 26), (BPF_AND_PERFMON, 0)])
def test_capabilities(machine: Machine, mask: str, code: int) -> None:
    machine.capabilities(mask)
    assert machine.check("machine")[0] == code


def test_a_container_is_told_how_to_be_started(machine: Machine) -> None:
    machine.capabilities(NO_SYS_ADMIN)
    machine.write("proc/1/environ", "PATH=/bin\0container=podman\0")
    code, said = machine.check("machine")
    assert code == 26
    assert "--privileged --pid=host" in said


def test_lockdown(machine: Machine) -> None:
    machine.write("sys/kernel/security/lockdown", "none integrity [confidentiality]")
    code, said = machine.check("machine")
    assert code == 27
    assert "lockdown=integrity" in said


def test_no_room(machine: Machine) -> None:
    machine.command("df", "echo head; echo dev 100 90 10240 90% /")
    code, said = machine.check("disk")
    assert code == 28
    assert "has 10 MB free" in said


def test_apt_cannot_reach_its_sources(machine: Machine) -> None:
    machine.command("df", "echo head; echo dev 100 90 99999999 90% /")
    machine.command("apt-get", "echo 'E: Failed to fetch the index'; exit 100")
    code, said = machine.check("apt")
    assert code == 29
    assert "Failed to fetch the index" in said


def test_apt_waits_for_another_one(machine: Machine) -> None:
    machine.command("df", "echo head; echo dev 100 90 99999999 90% /")
    machine.command("sleep", ":")
    machine.command(
        "apt-get",
        f"cd {machine.folder}; echo >>tries; [ $(wc -l <tries) -gt 2 ] && exit 0\n"
        "echo 'E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1'; exit 100",
    )
    code, said = machine.check("apt")
    assert code == 0
    assert said.count("another apt is at work") == 1


def test_pip_cannot_reach_its_index(machine: Machine) -> None:
    python = machine.folder / "bin/python"
    machine.command("python", '[ "$3" = --version ] && exit 0; echo "ERROR: no route"; exit 1')
    environment = {
        "PATH": f"{machine.folder}/bin:{os.environ['PATH']}",
        "IGSDK_PYTHON": str(python),
    }
    copy = machine.folder / "build"
    copy.mkdir()
    (copy / "preflight.sh").write_text(SCRIPT.read_text())
    done = subprocess.run(
        ["sh", copy / "preflight.sh", "pip"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 30
    assert "no route" in done.stderr


def test_unknown_check(machine: Machine) -> None:
    assert machine.check("weather")[0] == 2
