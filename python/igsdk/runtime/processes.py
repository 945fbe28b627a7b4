# SPDX-License-Identifier: Apache-2.0
"""Who the traced processes are: the kernel's rows, and what /proc adds while they live."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._events import ProcessInfo
from . import cgroups

if TYPE_CHECKING:
    from collections.abc import Callable

_DEVICE_FILE = re.compile(r"/dev/nvidia\d+")
_MAX_KNOWN = 65536
_MANY_MET = 4096  # from which on it is looked who of them is gone
_NS_PER_TICK = 10_000_000  # of the clock in /proc/PID/stat, which is 100 Hz everywhere


@dataclass(frozen=True)
class _Facts:
    """What only /proc knows of a process, and only while it lives."""

    comm: str
    cmdline: str | None
    container: str | None
    pod: str | None
    device_files: frozenset[str]


class ProcessTable:
    """Process rows as :class:`ProcessInfo`, with the command lines seen in time."""

    def __init__(self, node: str, started: tuple[int, str] | None = None) -> None:
        """``started``: pid and command line of the command that we start ourselves."""
        self._node = node
        self._started = started
        self._seen: dict[int, _Facts] = {}
        self._met: dict[tuple[int, int], _Facts] = {}  # by pid and start
        self._by_cgroup: dict[int, tuple[str | None, str | None]] = {}

    @property
    def device_files(self) -> dict[int, frozenset[str]]:
        """Process instance -> the GPUs whose device files it had open when it was seen."""
        return {instance: facts.device_files for instance, facts in list(self._seen.items())}

    def meet(self, pid: int) -> None:
        """Reads it of a process that has just mapped a driver library.

        Its first call, which tells its instance, comes later, and may be its last.
        """
        start = _read_start(pid)
        facts = _read_facts(pid)
        if start is not None and facts is not None and len(self._met) < _MAX_KNOWN:
            self._met[pid, start] = facts

    def met_as(self, comm: str) -> set[int]:
        """The pids of those that had this name (its first 15 bytes) when they were met."""
        wanted = _comm_of(comm)
        return {pid for (pid, _), facts in list(self._met.items()) if facts.comm == wanted}

    def see(self, pid: int, instance: int) -> None:
        """Reads it once per instance and while it may still be there."""
        if instance not in self._seen and len(self._seen) < _MAX_KNOWN:
            facts = _read_facts(pid)
            if facts is not None:
                self._seen[instance] = facts

    def forget(self, instances: list[int]) -> None:
        """Lets go of processes that nobody asks for any more, and of those met and gone."""
        for instance in instances:
            self._seen.pop(instance, None)
        if instances and len(self._met) > _MANY_MET:
            gone = [(pid, start) for pid, start in list(self._met) if _read_start(pid) != start]
            for key in gone:
                self._met.pop(key, None)

    def _started_as(self, pid: int, comm: str) -> str | None:
        """Our own command's line, unless the process has become another program since."""
        if self._started is None or pid != self._started[0]:
            return None
        program = self._started[1].split(" ")[0].rsplit("/", 1)[-1]
        return self._started[1] if _comm_of(program) == comm else None

    def _facts_of(self, row: Any, comm: str) -> _Facts | None:
        """What was read of a row's process; of one that was only met, if its name is the same:
        it may have become another program since."""
        pid, instance = int(row["pid"]), int(row["instance"])
        if not row["ended"]:
            self.see(pid, instance)  # later its pid may be another's
        seen = self._seen.get(instance)
        if seen is not None and seen.cmdline is not None:  # else it was about to be gone
            return seen
        met = self._met.get((pid, int(row["start_ns"]) // _NS_PER_TICK))
        return met if met is not None and met.comm == comm else seen

    def _owners_of(self, row: Any, facts: _Facts | None) -> tuple[str | None, str | None]:
        """Container and pod: what one process of a control group told holds for all of them,
        and for ever."""
        cgroup = int(row["cgroup_id"])
        if facts is None and cgroup in self._by_cgroup:
            return self._by_cgroup[cgroup]
        found = (facts.container, facts.pod) if facts else cgroups.owners_of_id(cgroup)
        if any(found) and cgroup > cgroups.ROOT and len(self._by_cgroup) < _MAX_KNOWN:
            self._by_cgroup[cgroup] = found
        return found

    def info(
        self,
        row: Any,
        late_ns: Callable[[int], int],
        nvml_bytes: Callable[[int], int | None],
    ) -> ProcessInfo:
        """One process row, dtype ``process``, as an object."""
        pid = int(row["pid"])
        comm = bytes(row["comm"]).decode("utf-8", "replace")
        facts = self._facts_of(row, comm)
        container, pod_uid = self._owners_of(row, facts)
        return ProcessInfo(
            instance=int(row["instance"]),
            pid=pid,
            ns_pid=int(row["ns_pid"]),
            start_ns=int(row["start_ns"]),
            exec_id=int(row["exec_id"]),
            comm=comm,
            cmdline=(facts and facts.cmdline) or self._started_as(pid, comm),
            uid=int(row["uid"]),
            gid=int(row["gid"]),
            mntns_id=int(row["mntns_id"]),
            cgroup_id=int(row["cgroup_id"]),
            container=container,
            pod_uid=pod_uid,
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


def _read_facts(pid: int) -> _Facts | None:
    """None where the process is gone."""
    comm = read_comm(pid)
    if not comm:
        return None
    container, pod = _read_owners(pid)
    return _Facts(comm, _read_cmdline(pid), container, pod, _read_device_files(pid))


def _read_start(pid: int) -> int | None:
    """When its leader started: boot clock, in ticks."""
    with suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        return int(text.rpartition(")")[2].split()[19])
    return None


def _read_cmdline(pid: int) -> str | None:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0")
        return words.replace(b"\0", b" ").decode("utf-8", "replace") or None
    return None


def _read_owners(pid: int) -> tuple[str | None, str | None]:
    """The container and the pod, by their IDs."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/cgroup").read_text("utf-8", "replace")
        return cgroups.find_container(text), cgroups.find_pod(text)
    return None, None


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
