# SPDX-License-Identifier: Apache-2.0
"""Containers' and pods' ids in the paths of control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from igsdk.runtime.cgroups import ROOT, find_container, find_pod, owners_of_id, path_of_id

OUTER, INNER = "0123456789abcdef" * 4, "fedcba9876543210" * 4
POD = "kubepods-burstable-pod0f3b2c5e_1111_2222_3333_444455556666.slice"

PATHS = {
    "host": ("0::/user.slice/user-0.slice/session-1.scope", None),
    "root": ("0::/", None),
    "nothing": ("", None),
    "docker": (f"0::/docker/{INNER}", INNER),
    "docker by systemd": (f"0::/system.slice/docker-{INNER}.scope", INNER),
    "containerd by kubelet": (f"0::/kubepods.slice/{POD}/cri-containerd-{INNER}.scope", INNER),
    "cri-o": (f"0::/kubepods.slice/{POD}/crio-{INNER}.scope/container", INNER),
    "podman": (f"0::/machine.slice/libpod-{INNER}.scope/init", INNER),
    "a node in a container": (f"0::/docker/{OUTER}/kubelet/kubepods/pod1/{INNER}", INNER),
    "seen from beside": (f"0::/../../pod2/{INNER}", INNER),
    "version 1, one hierarchy": (f"5:pids:/\n4:memory:/docker/{INNER}\n0::/", INNER),
    "version 1, deeper in one": (f"2:cpu:/a/{OUTER}\n1:pids:/a/{OUTER}/b/{INNER}\n", INNER),
    "longer digests are no ids": (f"0::/{INNER}{INNER[:32]}", None),
    "shorter ones neither": (f"0::/{INNER[:63]}", None),
}


@pytest.mark.parametrize("name", PATHS)
def test_the_id_in_a_path(name: str) -> None:
    text, wanted = PATHS[name]
    assert find_container(text) == wanted


UID = "0f3b2c5e-1111-2222-3333-444455556666"
UNDER = UID.replace("-", "_")
KIND = "kubelet-kubepods"
PODS = {
    "host": ("0::/system.slice/sshd.service", None),
    "a user's process called podman": ("0::/user.slice/podman-1234.scope", None),
    "cgroupfs, guaranteed": (f"0::/kubepods/pod{UID}/{INNER}", UID),
    "cgroupfs, burstable": (f"0::/kubepods/burstable/pod{UID}/{INNER}", UID),
    "cgroupfs, version 1": (
        (
            f"12:memory:/kubepods/besteffort/pod{UID}/{INNER}\n"
            f"11:cpu,cpuacct:/kubepods/besteffort/pod{UID}/{INNER}\n1:name=systemd:/\n0::/"
        ),
        UID,
    ),
    "systemd, guaranteed": (
        f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/cri-containerd-{INNER}.scope",
        UID,
    ),
    "systemd, burstable": (f"0::/kubepods.slice/{POD}/crio-{INNER}.scope/container", UID),
    "systemd, version 1": (
        (
            "9:devices:/kubepods.slice/kubepods-besteffort.slice/"
            f"kubepods-besteffort-pod{UNDER}.slice/cri-containerd-{INNER}.scope\n0::/"
        ),
        UID,
    ),
    "systemd, version 1, containerd's own names": (
        (
            f"3:cpuset:/system.slice/containerd.service/kubepods-burstable-pod{UNDER}.slice:"
            f"cri-containerd:{INNER}"
        ),
        UID,
    ),
    "the pod itself": (f"0::/kubepods/burstable/pod{UID}", UID),
    "kind": (
        (
            f"0::/docker/{OUTER}/kubelet.slice/{KIND}.slice/{KIND}-burstable.slice/"
            f"{KIND}-burstable-pod{UNDER}.slice/cri-containerd-{INNER}.scope"
        ),
        UID,
    ),
    "a static pod": (f"0::/kubepods/burstable/pod{OUTER[:32]}/{INNER}", OUTER[:32]),
    "seen from another pod": (f"0::/../../pod{UID}/{INNER}", UID),
    "seen from the same pod": (f"0::/../{INNER}", None),
    "a node that is a pod": (
        f"0::/kubepods/pod{UID.replace('0', '9')}/{OUTER}/kubepods/pod{UID}/{INNER}",
        UID,
    ),
    "too short": (f"0::/kubepods/pod{UID[:-1]}/{INNER}", None),
}


@pytest.mark.parametrize("name", PODS)
def test_the_pod_in_a_path(name: str) -> None:
    text, wanted = PODS[name]
    assert find_pod(text) == wanted


@pytest.mark.skipif(os.geteuid() != 0, reason="making a control group needs root")
def test_the_path_of_an_id() -> None:
    """The id of a group is the number of its folder's inode."""
    mounts = [Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")]
    mounts = [mount for mount in mounts if (mount / "cgroup.controllers").exists()]
    if not mounts:
        pytest.skip("no cgroup version 2 is mounted")
    folder = mounts[0] / f"igsdk-test-{os.getpid()}" / INNER
    folder.mkdir(parents=True)
    number = folder.stat().st_ino
    try:
        assert path_of_id(number) == str(folder)
        assert owners_of_id(number) == (INNER, None)
        assert owners_of_id(folder.parent.stat().st_ino) == (None, None)
    finally:
        folder.rmdir()
        folder.parent.rmdir()
    assert path_of_id(number) == ""
    assert path_of_id(ROOT) == path_of_id(0) == ""
