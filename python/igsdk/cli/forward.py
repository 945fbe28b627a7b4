# SPDX-License-Identifier: Apache-2.0
"""``igsdk forward``: what a target's processes hold, into a Pyroscope, again and again."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

import click

from igsdk._errors import IgsdkError, UsageError
from igsdk.cli import output
from igsdk.cli.options import Duration, Number, trace_target_option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from igsdk.cli.ending import Ending
    from igsdk.cli.signals import Signals
    from igsdk.sinks.forward import Forwarder
    from igsdk.sinks.http import Login
    from igsdk.sinks.pyroscope import Pyroscope

#: filters of a run that are passed on when they are given
_FILTERS = ("pid", "command", "mount_ns", "namespace", "pod", "node")
# How long the end of a target's run may go unnoticed, in seconds.
_IDLE = 1.0
_SETTINGS = ("name", "tenant", "ca", "timeout", "lines")


@click.command(short_help="Push what holds GPU memory to a Pyroscope, again and again.")
@trace_target_option()
@click.option(
    "--pyroscope", "url", required=True, metavar="URL", help="http://HOST:4040, https://…"
)
@click.option(
    "--interval", type=Duration(), default="15s", metavar="S", help="Between two pushes: 15s, 1m …"
)
@click.option("--once", is_flag=True, help="One interval, one push.")
@click.option("--duration", type=Duration(), metavar="S", help="Stop after 30, 30s, 5m or 2h.")
@click.option(
    "--pid", type=Number("process id"), multiple=True, metavar="P", help="Only this process."
)
@click.option("--command", metavar="NAME", help="Only processes of this name.")
@click.option("--mount-ns", type=Number("inode number"), metavar="N", help="Only this namespace.")
@click.option("--namespace", metavar="N", help="Only this namespace of a cluster.")
@click.option("--pod", metavar="P", help="Only pods of this name; * and ? stand for others.")
@click.option("--node", metavar="N", help="Only this node of a cluster.")
@click.option("--label", "labels", multiple=True, metavar="K=V", help="On all that is pushed.")
@click.option(
    "--name", default="gpu_memory", metavar="N", help="First part of the profile types' names."
)
@click.option("--lines", is_flag=True, help="Names of functions with file and line.")
@click.option("--tenant", metavar="T", help="For a server with several (X-Scope-OrgID).")
@click.option("--user", metavar="U", help="Name for the server's or a proxy's login.")
@click.option("--password-file", metavar="FILE", help="Has its password; read before each push.")
@click.option("--token-file", metavar="FILE", help="Has a bearer token instead; likewise.")
@click.option("--ca", metavar="FILE", help="PEM certificates to trust, instead of the system's.")
@click.option(
    "--timeout", type=Duration(), default="10s", metavar="S", help="For one request: 10s …"
)
@click.option("--no-verify", is_flag=True, help="Do not ask whether the first push is shown.")
def forward(
    targets: tuple[str, ...],
    url: str,
    interval: float,
    once: bool,
    duration: float | None,
    labels: tuple[str, ...],
    no_verify: bool,
    **options: Any,
) -> Ending:
    """Pushes what processes hold, and what they allocated, to a Pyroscope each interval.

    \b
        sudo igsdk forward --pyroscope http://127.0.0.1:4040
        sudo igsdk forward --pyroscope https://HOST/path --label env=prod --token-file /run/token

    Goes on while the server is down, and says then what it could not send. Ctrl-C ends it
    with a last push.
    """
    from igsdk.cli.signals import Signals
    from igsdk.sinks.pyroscope import Pyroscope

    login = _login(options)
    settings: dict[str, Any] = {name: options[name] for name in _SETTINGS}
    settings |= {"user": login.user, "password": login.password, "token": login.token}
    server = Pyroscope(url, labels=_labels(labels), **settings)
    _check(server)
    with Signals() as signals, contextlib.ExitStack() as stack:
        run = _start(stack, targets, {name: options[name] for name in _FILTERS})
        signals.started = True
        forwarder = _forwarder(run, server, math.inf if once else interval, not no_verify)
        when = f"once, after {interval:g} s" if once else f"every {interval:g} s; ctrl-C ends it"
        output.say(f"pushes to {server.host} {when}.")
        try:
            _loop(run, forwarder, server, signals, interval if once else duration, options)
        finally:
            _finish(run, forwarder)
        error = forwarder.error or _error(run)
    if error is not None:
        raise error
    return 0


def _check(server: Pyroscope) -> None:
    """Finds out before anything is traced whether the server refuses.

    Raises:
        PushRefused, AnswerInvalid: it does. One that is down may come back.
    """
    outcome = server.check()
    if outcome.what == "refused" and outcome.error is not None:
        raise outcome.error
    if outcome.error is not None:
        output.say(f"{outcome.error} Goes on, and pushes when it can.")


def _start(stack: contextlib.ExitStack, targets: Sequence[str], filters: Mapping[str, Any]) -> Any:
    from igsdk._connect import connect

    if filters["node"] and set(targets) <= {"local:"}:
        raise UsageError(
            "This machine alone has no nodes.", "Leave --node away, or name a cluster."
        )
    target: Any = targets[0] if len(targets) == 1 else list(targets) or "local:"
    runtime: Any = stack.enter_context(connect(target))
    chosen = {name: list(v) if name == "pid" else v for name, v in filters.items() if v}
    return stack.enter_context(runtime.profile_cuda_memory(events="none", **chosen))


def _forwarder(run: Any, server: Pyroscope, interval: float, verify: bool) -> Forwarder:
    from igsdk.sinks.forward import Forwarder

    return Forwarder(run.profile, server, interval, output.say, verify)


def _error(run: Any) -> IgsdkError | None:
    """Why a target's run has ended by itself; None: it goes on."""
    error: IgsdkError | None = getattr(run, "error", None)
    return error


def _loop(
    run: Any,
    forwarder: Forwarder,
    server: Pyroscope,
    signals: Signals,
    duration: float | None,
    options: Mapping[str, Any],
) -> None:
    """Pushes until it is over, and then once more."""
    from igsdk.cli.tracing import Watch

    def push() -> None:
        if options["password_file"] or options["token_file"]:
            _renew(server, options)
        forwarder.push()

    watch = Watch(None, signals, duration)
    while not watch.over() and _error(run) is None:
        left = [wait for wait in (forwarder.left(), watch.left()) if wait is not None]
        signals.wait([], min(_IDLE, *left))
        if forwarder.left() == 0.0 and not watch.over():
            push()
    if not signals.urgent:
        push()


def _finish(run: Any, forwarder: Forwarder) -> None:
    """Says how it went; what could not be pushed goes into a file."""
    lost = {cause: count for cause, count in run.losses().items() if count}
    if lost:
        output.say("lost: " + ", ".join(f"{cause} {count}" for cause, count in lost.items()))
    output.say(forwarder.summary())
    if forwarder.error is not None:
        _rescue(run)


def _rescue(run: Any) -> None:
    import tempfile
    from pathlib import Path

    from igsdk.profile.store import write_or_rescue

    folder = Path(tempfile.mkdtemp(prefix="igsdk-"))
    place, _ = write_or_rescue(run.profile(), folder / "forward.pb.gz")
    output.say(f"all that was collected is in {place}.")


def _labels(given: Sequence[str]) -> dict[str, str]:
    """Labels from NAME=VALUE."""
    pairs = [text.partition("=") for text in given]
    for text, (name, equals, _) in zip(given, pairs, strict=True):
        if not equals or not name:
            raise UsageError(f"--label {text!r} is no label.", "Write --label NAME=VALUE.")
    return {name: value for name, _, value in pairs}


def _login(options: Mapping[str, Any]) -> Login:
    """Name, password and token from options and files.

    Raises:
        UsageError: they exclude one another, or a file can't be read.
    """
    from igsdk.sinks.http import Login

    user, password_file = options["user"], options["password_file"]
    if bool(user) != bool(password_file):
        raise UsageError("--user and --password-file go together.", "Give both or neither.")
    password = _secret(password_file) if password_file else None
    token = _secret(options["token_file"]) if options["token_file"] else None
    return Login(user, password, token, options["tenant"])


def _secret(path: str) -> str:
    from pathlib import Path

    try:
        text = Path(path).read_text().strip()
    except (OSError, UnicodeError) as error:
        words = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"{path} cannot be read: {words}.", "Check the path.") from error
    if not text:
        raise UsageError(f"{path} is empty.", "Write the secret into it.")
    return text


def _renew(server: Pyroscope, options: Mapping[str, Any]) -> None:
    """Secrets may be changed under us; one that can't be read now stays as it was."""
    with contextlib.suppress(IgsdkError):
        server.set_login(_login(options))
