# SPDX-License-Identifier: Apache-2.0
"""``igsdk record``: traces, then writes a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from igsdk.cli.options import Duration, run_settings, selection, target_of

if TYPE_CHECKING:
    from igsdk.cli.ending import Ending


@click.command(
    short_help="Trace a command or running processes into a profile.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "-o",
    "--output",
    "path",
    show_default="igsdk.pb.gz",
    metavar="FILE",
    help="The profile; .pb.gz is pprof, .folded and .json are there too.",
)
@click.option(
    "--duration", type=Duration(), metavar="S", help="Stop after 30, 30s, 5m, 2h or 500ms."
)
@selection(no_stacks="Totals only, which costs the least.")
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON.")
def record(
    path: str | None,
    targets: tuple[str, ...],
    duration: float | None,
    as_json: bool,
    **options: Any,
) -> Ending:
    """Traces until CMD ends, or until ctrl-C, and writes a profile.

    \b
        igsdk record -- python train.py
        igsdk record --duration 30 --pid 4711 -o service.pb.gz
        igsdk record --duration 5m --target k8s: --namespace ml --pod 'vllm-*'

    With CMD: igsdk ends as CMD ends, and all that it says goes to standard error.
    The first ctrl-C reaches CMD, and igsdk waits for it; the second one writes the
    profile at once and leaves. Without CMD the first one writes the profile.
    """
    from igsdk.cli.recording import Recording
    from igsdk.cli.tracing import trace

    # Failures are kept for the report; nobody here reads the stream.
    settings = {**run_settings(options, targets), "events": "failures"}
    recording = Recording(path, duration, as_json)
    return trace(target_of(targets), settings, recording.work, before=recording.check)
