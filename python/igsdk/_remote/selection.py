# SPDX-License-Identifier: Apache-2.0
"""Which processes a run over targets is about, and what a daemon is told of that."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from igsdk._events import ProcessInfo
    from igsdk.client.gadget import Gadget

_GLOB = frozenset("*?[")
_LONGEST_COMM = 15


@dataclass(frozen=True)
class RemoteSelection:
    """Which processes are meant; all where nothing is named.

    What a daemon can leave out itself it is asked to; everything is looked at here again,
    so the profile has the same processes whatever serves it.

    Attributes:
        pids: in the node's own PID namespace; their descendants are not among them.
        command: the process's name (at most 15 bytes, as the kernel keeps it).
        mount_ns: inode number of the mount namespace.
        namespace, pod, node: patterns (``*``, ``?``, ``[…]``) for what is in a cluster.
    """

    pids: tuple[int, ...] = ()
    command: str | None = None
    mount_ns: int | None = None
    namespace: str | None = None
    pod: str | None = None
    node: str | None = None

    def __bool__(self) -> bool:
        return self != RemoteSelection()

    def has(self, info: ProcessInfo) -> bool:
        """Whether this process is one of those that are meant."""
        globs = ((self.namespace, info.namespace), (self.pod, info.pod), (self.node, info.node))
        return (
            (not self.pids or info.pid in self.pids)
            and (self.command is None or info.comm == _comm_of(self.command))
            and (self.mount_ns is None or info.mntns_id == self.mount_ns)
            and all(glob is None or fnmatchcase(text or "", glob) for glob, text in globs)
        )

    def describe(self) -> str:
        """For the profile's header."""
        parts = [f"pid {pid}" for pid in self.pids]
        for name, value in (
            ("command", self.command),
            ("mount namespace", self.mount_ns),
            ("namespace", self.namespace),
            ("pod", self.pod),
            ("node", self.node),
        ):
            parts += [f"{name} {value}"] if value else []
        return ", ".join(parts)


def parameters(
    gadget: Gadget, selection: RemoteSelection, events: str, stacks: bool
) -> dict[str, Any]:
    """What one daemon is told, of the parameters that it has.

    Inspektor Gadget attaches to containers that it is told to see: all of them, and on a
    machine without a cluster the host too.
    """
    namespace, pod = selection.namespace, selection.pod
    wanted: dict[str, Any] = {
        "operator.oci.ebpf.events": events,
        "operator.oci.ebpf.collect-ustack": stacks,
        "operator.oci.ebpf.collect-build-id": stacks,
        "operator.LocalManager.host": True,
    }
    if len(selection.pids) == 1:
        wanted["operator.oci.ebpf.pid"] = selection.pids[0]
    if selection.command is not None:
        wanted["operator.oci.ebpf.comm"] = _comm_of(selection.command)
    if selection.mount_ns is not None:
        wanted["operator.oci.ebpf.mntns"] = selection.mount_ns
    if _is_plain(namespace):
        wanted["operator.KubeManager.namespace"] = namespace
    else:
        wanted["operator.KubeManager.all-namespaces"] = True
    if _is_plain(pod):
        wanted["operator.KubeManager.podname"] = pod
    there = {parameter.key for parameter in gadget.parameters}
    return {key: value for key, value in wanted.items() if key in there}


def _is_plain(pattern: str | None) -> bool:
    """Whether it is one name; a comma and an exclamation mark mean something to the daemon."""
    return bool(pattern) and not _GLOB & set(pattern or "") and not {",", "!"} & set(pattern or "")


def _comm_of(program: str) -> str:
    """What the kernel keeps of a program's name: 15 bytes."""
    raw = program.encode("utf-8", "surrogateescape")[:_LONGEST_COMM]
    return raw.decode("utf-8", "replace")
