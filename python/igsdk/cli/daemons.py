# SPDX-License-Identifier: Apache-2.0
"""Daemons on a command line: which ones, what they are told, and what went wrong there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from igsdk._errors import TargetUnavailable, UsageError
from igsdk.cli import output
from igsdk.cli.options import target_option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from igsdk._errors import IgsdkError
    from igsdk.client.fleet import Fleet
    from igsdk.client.remote import RemoteRuntime

    Verb = TypeVar("Verb", bound=Callable[..., Any])

_DAEMON = "unix:///var/run/ig/ig.socket"


def daemon_option() -> Callable[[Verb], Verb]:
    """Adds `--target` for daemons; see `connect`."""
    return target_option(
        "A daemon, unix:///PATH, tcp://HOST:PORT or tcp+tls://HOST:PORT?ca=FILE…, or those "
        f"of a cluster, k8s:; may be repeated (default {_DAEMON})."
    )


def param_option() -> Callable[[Verb], Verb]:
    """Adds `-p KEY=VALUE`; see `values_of`."""
    return click.option(
        "-p",
        "--param",
        "params",
        multiple=True,
        metavar="KEY=VALUE",
        help="A parameter, by short or full name; may be repeated.",
    )


def connect(targets: Sequence[str]) -> RemoteRuntime | Fleet:
    """The daemon, or a fleet where several are named, or a cluster.

    Raises:
        TargetUnavailable: this machine is named without a daemon.
        IgsdkError: as `igsdk.connect`.
    """
    from igsdk._connect import connect as open_target

    if "local:" in targets:
        raise TargetUnavailable(
            "The target local: runs igsdk's own gadget only, with record, events and forward.",
            "Name a daemon: unix:///PATH, tcp://HOST:PORT, tcp+tls://HOST:PORT?ca=FILE… or k8s:.",
        )
    host: Any = open_target(targets[0] if len(targets) == 1 else list(targets) or _DAEMON)
    return host  # type: ignore[no-any-return]


def say_errors(host: RemoteRuntime | Fleet) -> int:
    """Says which nodes of a fleet did not do what was asked; returns the exit code for that."""
    errors: dict[str, IgsdkError] = getattr(host, "errors", {})
    for name, error in errors.items():
        output.say(f"{name}: {error}")
    return next((error.exit_code for error in errors.values()), 0)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"{text!r} is no parameter.", "Write KEY=VALUE.")
    return key, value


def values_of(params: Sequence[str]) -> dict[str, str]:
    """What `-p` was given.

    Raises:
        UsageError: it is not KEY=VALUE.
    """
    return dict(map(_pair, params))
