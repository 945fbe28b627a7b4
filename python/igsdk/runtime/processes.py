# SPDX-License-Identifier: Apache-2.0
"""Who the traced processes are: the kernel's rows, and what /proc adds while they live."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._events import ProcessInfo

if TYPE_CHECKING:
    from collections.abc import Callable

_CONTAINER_ID = re.compile(r"([0-9a-f]{64})")
_DEVICE_FILE = re.compile(r"/dev/nvidia\d+")
_MAX_KNOWN = 65536


class ProcessTable:
    """Process rows as :class:`ProcessInfo`, with the command lines seen in time."""

    def __init__(self, node: str, started: tuple[int, str] | None = None) -> None:
        """``started``: pid and command line of the command that we start ourselves."""
        self._node = node
        self._started = started
        self._cmdlines: dict[int, str | None] = {}
        self._containers: dict[int, str | None] = {}
        self.device_files: dict[int, frozenset[str]] = {}

    def see(self, pid: int, instance: int) -> None:
        """Reads what only /proc knows, once per instance and while it may still be there."""
        if instance in self._cmdlines or len(self._cmdlines) >= _MAX_KNOWN:
            return
        self._cmdlines[instance] = _read_cmdline(pid)
        self._containers[instance] = _read_container(pid)
        self.device_files[instance] = _read_device_files(pid)

    def _started_as(self, pid: int, comm: str) -> str | None:
        """Our own command's line, unless the process has become another program since."""
        if self._started is None or pid != self._started[0]:
            return None
        program = self._started[1].split(" ")[0].rsplit("/", 1)[-1]
        return self._started[1] if _comm_of(program) == comm else None

    def info(
        self,
        row: Any,
        late_ns: Callable[[int], int],
        nvml_bytes: Callable[[int], int | None],
    ) -> ProcessInfo:
        """One process row, dtype ``process``, as an object."""
        instance = int(row["instance"])
        pid = int(row["pid"])
        comm = bytes(row["comm"]).decode("utf-8", "replace")
        if not row["ended"]:
            self.see(pid, instance)  # later its pid may be another's
        return ProcessInfo(
            instance=instance,
            pid=pid,
            ns_pid=int(row["ns_pid"]),
            start_ns=int(row["start_ns"]),
            exec_id=int(row["exec_id"]),
            comm=comm,
            cmdline=self._cmdlines.get(instance) or self._started_as(pid, comm),
            uid=int(row["uid"]),
            gid=int(row["gid"]),
            mntns_id=int(row["mntns_id"]),
            cgroup_id=int(row["cgroup_id"]),
            container=self._containers.get(instance),
            node=self._node,
            peak=int(row["peak"]),
            unknown_frees=int(row["unknown_frees"]),
            ended_ns=int(row["ended_at"]) if row["ended"] else None,
            before_us=bool(row["late"]),
            late_ns=late_ns(pid) if row["late"] else 0,
            nvml_bytes=nvml_bytes(pid) if row["late"] and not row["ended"] else None,
        )


def _comm_of(program: str) -> str:
    """What the kernel keeps of a program's name: 15 bytes."""
    return program.encode("utf-8", "surrogateescape")[:15].decode("utf-8", "replace")


def _read_cmdline(pid: int) -> str | None:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0")
        return words.replace(b"\0", b" ").decode("utf-8", "replace") or None
    return None


def _read_container(pid: int) -> str | None:
    """The container's id from the cgroup path, as all runtimes name it; None on the host."""
    with suppress(OSError):
        found = _CONTAINER_ID.search(Path(f"/proc/{pid}/cgroup").read_text("utf-8", "replace"))
        return found[1] if found else None
    return None


def _read_device_files(pid: int) -> frozenset[str]:
    """The GPUs whose device file a process has open, by the file's path."""
    found = set()
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(entry.readlink())
                if _DEVICE_FILE.fullmatch(target):
                    found.add(target)
    return frozenset(found)


def read_comm(pid: int) -> str:
    """The name that the kernel has for a process; "" if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").rstrip("\n")
    return ""
