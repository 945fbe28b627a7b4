# SPDX-License-Identifier: Apache-2.0
"""Which container and pod a control group belongs to: from its path, also when only its id is
known."""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from pathlib import Path

ROOT = 1  # the id of the topmost group, which is also what a machine without version 2 shows

_CONTAINER_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
# A UID, in names of systemd's slices with _ for -, or a static pod's hash.
_POD_UID = re.compile(
    r"(?:^|[/-])pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=\.slice|[/:]|$)"
)
# Version 2 alone, or beside version 1.
_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
_KERNFS_ID = 0xFE  # the handle type of file systems that find an inode by its 64-bit id


class _Handle(ctypes.Structure):
    """``struct file_handle``, name_to_handle_at(2), with eight bytes of handle."""

    _fields_ = (("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("id", ctypes.c_uint64))


def find_container(cgroups: str) -> str | None:
    """The container's id in the text of ``/proc/PID/cgroup`` or in one path; None on the host.

    All runtimes name the group by 64 hexadecimal digits (``docker-ID.scope`` and so on).
    A container inside another one (a node that is itself a container) has both ids in its
    path, the inner one last; on cgroup version 1 not every hierarchy needs to have it.
    """
    nests = [_CONTAINER_ID.findall(line) for line in cgroups.splitlines()]
    longest = max(nests, key=len, default=[])
    return str(longest[-1]) if longest else None


def find_pod(cgroups: str) -> str | None:
    """The pod's UID in the text of ``/proc/PID/cgroup`` or in one path; None without a pod.

    The kubelet names the group by it with both of its drivers (cgroupfs and systemd). A pod
    of a node that is itself a pod is the inner one, last in the path.
    """
    nests = [_POD_UID.findall(line) for line in cgroups.splitlines()]
    longest = max(nests, key=len, default=[])
    return str(longest[-1]).replace("_", "-") if longest else None


def owners_of_id(cgroup: int) -> tuple[str | None, str | None]:
    """The container and the pod that a group of version 2 belongs to, as long as it is there."""
    path = path_of_id(cgroup)
    return find_container(path), find_pod(path)


def path_of_id(cgroup: int) -> str:
    """The folder of a group; "" for the root, and where it is gone or we may not look."""
    if cgroup <= ROOT:
        return ""
    with suppress(OSError):
        mount = os.open(_mount(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return _open_path(mount, cgroup)
        finally:
            os.close(mount)
    return ""


def _mount() -> str:
    for path in _MOUNTS:
        if Path(path, "cgroup.controllers").exists():
            return path
    raise FileNotFoundError(2, os.strerror(2), _MOUNTS[0])


def _open_path(mount: int, cgroup: int) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    handle = _Handle(8, _KERNFS_ID, cgroup)
    fd = libc.open_by_handle_at(mount, ctypes.byref(handle), os.O_PATH | os.O_CLOEXEC)
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    finally:
        os.close(fd)
