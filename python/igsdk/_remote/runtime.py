# SPDX-License-Identifier: Apache-2.0
"""Targets that are reached over a daemon, with what profiles CUDA memory there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from igsdk import _abi
from igsdk._errors import UsageError
from igsdk._remote.selection import RemoteSelection, parameters
from igsdk.client.fleet import Fleet, ListedMembers
from igsdk.client.remote import RemoteRuntime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from igsdk._remote.run import RemoteRun, Stream
    from igsdk.client.gadget import Gadget
    from igsdk.client.member import Where

GADGET = "profile_cuda_memory"


class _Profiling:
    """Adds `profile_cuda_memory` to what runs gadgets."""

    target: str

    def profile_cuda_memory(
        self,
        *,
        pid: int | Sequence[int] | None = None,
        command: str | None = None,
        mount_ns: int | None = None,
        namespace: str | None = None,
        pod: str | None = None,
        node: str | None = None,
        events: str = "failures",
        stacks: bool = True,
        gadget: str | None = None,
        **local: object,
    ) -> RemoteRun:
        """Makes a run, to be used as a context manager; nothing is asked before it is entered.

        The daemon leaves out what it can; all of the filters hold whatever it can.

        Args:
            pid: one or several processes, by their ids on their node; without descendants.
            command: only processes of this name (15 bytes, as the kernel keeps it).
            mount_ns: only processes in this mount namespace (inode number).
            namespace, pod, node: only what runs there; patterns such as ``vllm-*``.
            events: which of them :meth:`RemoteRun.events` gives: "all", "failures" or "none".
            stacks: whether to take stacks, where the daemon takes them for us.
            gadget: the image to run; profile_cuda_memory if not given, the agent's only one.
            local: what `local:` takes beside these; only its defaults are taken here.

        Raises:
            UsageError: ``events`` is none of its words, or something is asked for that
                only `local:` can do.
        """
        from igsdk._remote.run import RemoteRun  # numpy, which only profiles need

        if events not in _abi.EVENTS:
            raise UsageError(f"{events!r} is no choice of events.", "Use all, failures or none.")
        _only_here(self.target, local)
        pids = (pid,) if isinstance(pid, int) else tuple(pid or ())
        selection = RemoteSelection(pids, command, mount_ns, namespace, pod, node)

        image = gadget or GADGET

        def wanted(of: Gadget) -> Mapping[str, Any]:
            return parameters(of, selection, events, stacks)

        return RemoteRun(
            lambda: self._rows(image, wanted),
            selection,
            events,
            self.target,
            image,
            self._where(),
            isinstance(self, DaemonTarget),
        )

    def _rows(self, image: str, wanted: Any) -> Stream:
        raise NotImplementedError

    def _where(self) -> Where | None:
        return None


class DaemonTarget(_Profiling, RemoteRuntime):
    """One daemon: Inspektor Gadget's, or `igsdk agent`; takes what `RemoteRuntime` takes."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._again = partial(RemoteRuntime, *arguments, **settings)

    def _rows(self, image: str, wanted: Any) -> Stream:
        """Through a fleet of one, which connects again where a stream breaks."""
        alone = Fleet(ListedMembers([self.target], lambda _: self._again()), self.target)
        return alone.run(image, wanted, endless=True)


class FleetTarget(_Profiling, Fleet):
    """Many daemons as one: a list of targets, or a cluster; takes what `Fleet` takes."""

    def _rows(self, image: str, wanted: Any) -> Stream:
        return self.run(image, wanted, endless=True)

    def _where(self) -> Where | None:
        return self.where


def _only_here(target: str, local: Mapping[str, object]) -> None:
    for name, value in local.items():
        if name not in _LOCAL:
            raise UsageError(f"profile_cuda_memory takes no {name!r}.", "Correct the name.")
        if value:
            raise UsageError(f"{_LOCAL[name][0]} {target}.", _LOCAL[name][1])


_LOCAL = {
    "argv": (
        "A command can be started with the target local: only, and not over",
        "Start it yourself, and choose it with --pid or --command.",
    ),
    "user": ("There is no command to run as somebody over", "Leave the user away."),
    "live_entries": (
        "The size of the table of live allocations is the daemon's affair, and not to be set over",
        "Set it where the daemon is started.",
    ),
    "plain_http": ("The daemon fetches the image itself, so TLS is its affair over", "Leave it."),
    "settings": ("The program's own numbers cannot be set over", "Leave them away."),
}
