# SPDX-License-Identifier: Apache-2.0
"""``igsdk events``: what happens, as it happens."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from igsdk.cli import output
from igsdk.cli.nodes_news import NodeNews, is_remote, named
from igsdk.cli.options import Duration, run_settings, selection, target_of

if TYPE_CHECKING:
    from igsdk._events import Event
    from igsdk._run import Run
    from igsdk.cli.ending import Ending
    from igsdk.cli.signals import Signals

# How long an idle stream may keep us from seeing ctrl-C or the command's end, in seconds.
_IDLE = 0.1

# How many libraries and processes are named at the start.
_NAMED = 3
# Of the note that the start has given already.
_EARLIER = "had the driver mapped"


@click.command(
    short_help="Print failed allocations, or all events, as they happen.",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--all", "everything", is_flag=True, help="Allocations and frees too.")
@click.option(
    "--duration", type=Duration(), metavar="S", help="Stop after 30, 30s, 5m, 2h or 500ms."
)
@selection(no_stacks="Lines without the calling function, which costs less.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def events(
    everything: bool,
    targets: tuple[str, ...],
    duration: float | None,
    as_json: bool,
    **options: Any,
) -> Ending:
    """Prints failed allocations as they happen, one a line.

    \b
        igsdk events
        igsdk events --all --json --pid 4711 | jq .bytes

    With CMD the lines go to standard error, since standard output is CMD's.
    """
    from igsdk.cli.tracing import trace

    settings = {
        **run_settings(options, targets),
        "events": "all" if everything else "failures",
    }

    def work(run: Run, signals: Signals) -> None:
        _say_start(run)
        _stream(run, signals, duration, as_json)
        run.stop()
        _emit_rest(run, as_json)
        _say_losses(run)

    return trace(target_of(targets), settings, work)


def _say_start(run: Run) -> None:
    """What the probes are on; with a command the terminal is the command's."""
    if run.command is not None:
        return
    if is_remote(run):
        output.say(f"watching {named(run)}; ctrl-C ends it.")
        return
    paths = [library.path for library in run.attached]
    if paths:
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        libraries = "1 driver library" if len(paths) == 1 else f"{len(paths)} driver libraries"
        watched = f"watching {libraries} ({', '.join(paths[:_NAMED])}{more})"
    else:
        watched = "no process has a CUDA driver library yet; watching for the first one"
    output.say(f"{watched}; ctrl-C ends it.")
    earlier = [f"{pid} ({name})" if name else str(pid) for pid, name in run.earlier]
    if earlier:
        more = f" and {len(earlier) - _NAMED} more" if len(earlier) > _NAMED else ""
        names = ", ".join(earlier[:_NAMED])
        output.say(
            f"started after these processes had the driver mapped: {names}{more}. "
            "What they allocated before is not seen."
        )


def _stream(run: Run, signals: Signals, duration: float | None, as_json: bool) -> None:
    """Prints until it is over."""
    from igsdk.cli.tracing import Watch

    watch = Watch(run.command, signals, duration)
    news = NodeNews(run)
    while not watch.over():
        watch.pass_on()
        news.tick()
        output.check(error=run.command is not None)
        for event in run.events(timeout=_IDLE):
            _emit(run, event, as_json)
            if watch.over():
                break


def _emit_rest(run: Run, as_json: bool) -> None:
    for event in run.events(timeout=0):
        _emit(run, event, as_json)


def _emit(run: Run, event: Event, as_json: bool) -> None:
    with_command = run.command is not None
    if as_json:
        from igsdk._events import event_record

        output.put_json(event_record(event), error=with_command)
    else:
        from igsdk.views import event_line

        output.put(event_line(event, _wall_ns(run, event)), error=with_command)


def _wall_ns(run: Any, event: Event) -> int | None:
    """The same of the event's own machine; None where nobody knows it."""
    if not is_remote(run):
        return _boot_time()
    wall: int | None = run.wall_minus_boot(event)
    return wall


def _boot_time() -> int:
    """The wall clock at the boot clock's zero, in ns; both may be set while we look."""
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _say_losses(run: Run) -> None:
    lost = {cause: count for cause, count in run.losses().items() if count}
    if lost:
        output.say("lost: " + ", ".join(f"{cause} {count}" for cause, count in lost.items()))
    said = run.command is None and bool(run.earlier)
    for note in run.notes():
        if not (said and _EARLIER in note):
            output.say(note)
