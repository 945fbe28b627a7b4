# SPDX-License-Identifier: Apache-2.0
"""``igsdk agent``: the node's daemon, which clients without root read."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import click

from igsdk._errors import ExtensionMissing, UsageError
from igsdk.cli import output

if TYPE_CHECKING:
    from igsdk.agent.agent import Settings
    from igsdk.agent.listen import TLS
    from igsdk.cli.ending import Ending
    from igsdk.cli.signals import Signals

_MOST_RUNS = 256


@click.command(short_help="The node's daemon: traces always, and serves many clients.")
@click.option(
    "--listen",
    "listen",
    multiple=True,
    required=True,
    metavar="URL",
    help="unix:PATH or tcp://HOST:PORT; may be repeated.",
)
@click.option("--group", metavar="G", help="The group that may use the unix sockets.")
@click.option("--mode", default="0660", metavar="M", help="Their file mode (default 0660).")
@click.option("--tls-cert", metavar="FILE", help="Certificate (PEM) for tcp.")
@click.option("--tls-key", metavar="FILE", help="Its key.")
@click.option("--tls-client-ca", metavar="FILE", help="Whose certificates clients must have.")
@click.option("--max-runs", default=32, metavar="N", help="Streams at once (default 32).")
@click.option("--stacks/--no-stacks", default=True, help="Whether to take stacks.")
@click.option("--live-entries", type=int, metavar="N", help="Live allocations told apart.")
@click.option("--check", is_flag=True, help="Only ask whether an agent serves there.")
def agent(
    listen: tuple[str, ...],
    group: str | None,
    mode: str,
    tls_cert: str | None,
    tls_key: str | None,
    tls_client_ca: str | None,
    max_runs: int,
    stacks: bool,
    live_entries: int | None,
    check: bool,
) -> Ending:
    """Traces the CUDA memory of this machine, all the time, for clients of its sockets.

    \b
        sudo igsdk agent --listen unix:/run/igsdk.sock --group gpu
        igsdk run profile_cuda_memory --target unix:///run/igsdk.sock

    It speaks as Inspektor Gadget's daemon does, for the one gadget profile_cuda_memory.
    Ctrl-C or SIGTERM ends it: clients get their last rows, programs notice nothing.
    """
    from igsdk.cli.signals import Signals

    if check:
        return _check(listen)
    settings = _settings(
        listen, group, mode, (tls_cert, tls_key, tls_client_ca), max_runs, stacks, live_entries
    )
    with Signals() as signals:
        signals.started = True
        _serve(settings, signals)
    return 0


def _check(targets: tuple[str, ...]) -> Ending:
    """For a health check: raises unless an agent answers at each one."""
    from igsdk.client.remote import RemoteRuntime

    for target in targets:
        with RemoteRuntime(target, call_timeout=5.0) as daemon:
            output.say(f"igsdk agent {daemon.version} serves {target}.")
    return 0


def _serve(settings: Settings, signals: Signals) -> None:
    from igsdk.agent.agent import Agent

    with Agent(settings) as agent:
        for note in agent.notes:
            output.say(note)
        group = f" for group {settings.access.group}" if settings.access.group else ""
        for target in agent.targets:
            output.say(f"Listening at {target}{group if target.startswith('unix:') else ''}.")
        while not signals.requested:
            signals.wait([], None)
        output.say("Ending: clients get their last rows.")


def _settings(
    listen: tuple[str, ...],
    group: str | None,
    mode: str,
    tls: tuple[str | None, str | None, str | None],
    max_runs: int,
    stacks: bool,
    live_entries: int | None,
) -> Settings:
    if importlib.util.find_spec("grpc") is None:
        raise ExtensionMissing(
            "The agent needs grpcio, which is not installed.",
            "Install what it needs: pip install 'igsdk[remote]'.",
        )
    from igsdk import _abi
    from igsdk.agent.agent import Settings
    from igsdk.agent.listen import Access

    if not 1 <= max_runs <= _MOST_RUNS:
        raise UsageError(f"--max-runs {max_runs} makes no sense.", f"Give 1 to {_MOST_RUNS}.")
    if live_entries is not None and not 1 <= live_entries <= _abi.MOST_LIVE_ENTRIES:
        raise UsageError(
            f"The table of live allocations can't have {live_entries} entries.",
            f"Use 1 to {_abi.MOST_LIVE_ENTRIES}.",
        )
    access = Access(group, _mode(mode))
    return Settings(listen, access, _tls(*tls), stacks, live_entries, max_runs)


def _mode(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o777:
        raise UsageError(f"--mode {text} is no file mode.", "Give one in octal, such as 0660.")
    return mode


def _tls(cert: str | None, key: str | None, client_ca: str | None) -> TLS | None:
    from igsdk.agent.listen import TLS

    if cert and key and client_ca:
        return TLS(cert, key, client_ca)
    if cert or key or client_ca:
        raise UsageError(
            "--tls-cert, --tls-key and --tls-client-ca belong together.",
            "Give all three: who has no certificate must not read what the agent sees.",
        )
    return None
