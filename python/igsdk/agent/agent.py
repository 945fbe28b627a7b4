# SPDX-License-Identifier: Apache-2.0
"""The agent as a whole: listens, traces, serves, ends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from igsdk._errors import UsageError
from igsdk.agent.hub import Hub
from igsdk.agent.listen import TLS, Access, Socket, listen_tcp, port_of
from igsdk.agent.runs import MOST_RUNS
from igsdk.runtime import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import grpc

_MORE_THREADS = 8  # for calls that are answered at once
_LAST_PACKETS = 10.0  # seconds for runs to send them


@dataclass(frozen=True)
class Settings:
    """How to serve.

    Attributes:
        listen: ``unix:PATH`` and ``tcp://HOST:PORT`` targets, at least one.
        access: whose the unix sockets are.
        tls: for the ``tcp:`` ones; without it only this machine may reach them.
        stacks: whether to take stacks.
        live_entries: how many live allocations can be told apart.
        most_runs: how many streams there may be at once; each takes two threads.
    """

    listen: tuple[str, ...]
    access: Access = Access()  # noqa: RUF009 - it is frozen
    tls: TLS | None = None
    stacks: bool = True
    live_entries: int | None = None
    most_runs: int = MOST_RUNS


class Agent:
    """To be used as a context manager: it serves from the beginning to the end of it.

    Attributes:
        targets: where clients reach it.
        notes: what a person should know of it, in sentences.

    Raises:
        UsageError, ListenFailed: an address is not usable.
        KernelUnsupported, PermissionMissing, ExtensionMissing: nothing can be traced here.
    """

    def __init__(self, settings: Settings) -> None:
        if not settings.listen:
            raise UsageError("The agent has to listen somewhere.", "Give --listen unix:PATH.")
        self._settings = settings
        self._resources = ExitStack()
        self.targets: tuple[str, ...] = ()
        self.notes: list[str] = []

    def __enter__(self) -> Agent:
        try:
            self._start()
        except BaseException:
            self._resources.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def _start(self) -> None:
        settings = self._settings
        for target in settings.listen:
            if not target.startswith("unix:"):
                port_of(target, settings.tls)
        self.hub = Hub(settings.stacks, settings.live_entries)
        server = _server(settings.most_runs)
        self.targets = self._listen(server, settings.listen)
        self._resources.callback(self.hub.close)
        self.hub.start()
        self._serve(server)
        if not kernel.is_initial_pid_namespace():
            self.notes.append(
                "This is a PID namespace of its own: names and containers of processes outside "
                "it are not known here. Run the agent in the host's (hostPID: true, --pid=host)."
            )

    def _listen(self, server: grpc.Server, listen: Sequence[str]) -> tuple[str, ...]:
        targets = []
        for target in listen:
            if target.startswith("unix:"):
                socket = Socket(target, self._settings.access)
                self._resources.callback(socket.close)
                targets.append(socket.listen(server))
            else:
                targets.append(listen_tcp(server, target, self._settings.tls))
        return tuple(targets)

    def _serve(self, server: grpc.Server) -> None:
        from igsdk.agent.service import Service

        service = Service(self.hub, self._settings.most_runs)
        server.add_generic_rpc_handlers(tuple(service.handlers()))
        server.start()
        self._resources.callback(lambda: server.stop(grace=1).wait())
        self._resources.callback(service.runs.close, _LAST_PACKETS)


def _server(most_runs: int) -> grpc.Server:
    import grpc

    threads = most_runs + _MORE_THREADS
    return grpc.server(
        ThreadPoolExecutor(threads, thread_name_prefix="igsdk-call"),
        options=[
            ("grpc.so_reuseport", 0),  # or two agents would share a port, and clients
            ("grpc.max_send_message_length", -1),
        ],
    )
