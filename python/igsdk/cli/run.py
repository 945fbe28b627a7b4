# SPDX-License-Identifier: Apache-2.0
"""``igsdk run``: any gadget on a daemon, its rows as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from igsdk._units import plural
from igsdk.cli import output
from igsdk.cli.daemons import connect, daemon_option, param_option, values_of
from igsdk.cli.rows import stream, stream_options

if TYPE_CHECKING:
    from igsdk.cli.ending import Ending
    from igsdk.client.gadget import Gadget


@click.command(short_help="Run any gadget on a daemon, and print its rows.")
@click.argument("image")
@daemon_option()
@param_option()
@stream_options()
@click.option("--log-level", default="warning", metavar="L", help="error, warning, info, debug …")
@click.option("--describe", is_flag=True, help="Print what it takes and gives; run nothing.")
def run(
    image: str,
    targets: tuple[str, ...],
    params: tuple[str, ...],
    source: str | None,
    duration: float | None,
    log_level: str,
    describe: bool,
    as_json: bool,
) -> Ending:
    """Runs the gadget IMAGE on a daemon, such as Inspektor Gadget's, and prints its rows.

    \b
        igsdk run trace_open:latest --describe
        igsdk run trace_open:latest -p pid=4711 --json | jq .row.fname
        igsdk run trace_open:latest --target k8s: --duration 10s

    With several daemons, or a cluster, each row says its node; a node that fails is told of
    and stops no other, and one whose rows break off is tried again.

    Ctrl-C ends it. Rows go to standard output, the daemon's log to standard error.
    """
    from igsdk.cli.signals import Signals

    values = values_of(params)
    with Signals() as signals, connect(targets) as host:
        if describe:
            _describe(host.describe(image, values), as_json)
            return 0
        with host.run(image, values, log_level=log_level) as ours:
            signals.started = True
            stream(ours, as_json, source, duration, signals)
    return 0


def _describe(gadget: Gadget, as_json: bool) -> None:
    if as_json:
        output.put_json(_as_record(gadget))
        return
    for source in gadget.sources.values():
        shape = "rows each interval" if source.array else "a row for each event"
        output.put(f"{source.name}: {shape}, {plural(len(source.fields), 'field')}")
        for field in source.fields:
            mark = "  (hidden)" if field.hidden else ""
            output.put(f"  {field.name:<32} {field.kind!s:<10} {field.description}{mark}".rstrip())
    output.put("parameters:")
    for one in gadget.parameters:
        allowed = f" [{', '.join(one.allowed)}]" if one.allowed else ""
        default = f" = {one.default}" if one.default else ""
        head = f"  {one.name}{default}  ({one.type or 'text'}{allowed})"
        output.put(f"{head}\n      {one.key}")
        if one.description:
            output.put(f"      {' '.join(one.description.split())}")


def _as_record(gadget: Gadget) -> dict[str, Any]:
    sources = {
        source.name: {
            "array": source.array,
            "fields": [
                {
                    "name": field.name,
                    "kind": str(field.kind),
                    "hidden": field.hidden,
                    "description": field.description,
                }
                for field in source.fields
            ],
        }
        for source in gadget.sources.values()
    }
    parameters = [
        {
            "key": one.key,
            "name": one.name,
            "type": one.type,
            "default": one.default,
            "allowed": list(one.allowed),
            "required": one.required,
            "description": one.description,
        }
        for one in gadget.parameters
    ]
    return {"image": gadget.image, "sources": sources, "parameters": parameters}
