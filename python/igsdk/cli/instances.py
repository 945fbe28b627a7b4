# SPDX-License-Identifier: Apache-2.0
"""``igsdk instances``: gadgets that run in a daemon without a client."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from igsdk._errors import UsageError
from igsdk.cli import output
from igsdk.cli.daemons import connect, daemon_option, param_option, say_errors, values_of
from igsdk.cli.rows import stream, stream_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from igsdk.cli.ending import Ending
    from igsdk.client.instances import Instance


@click.group(
    short_help="Gadgets that run in a daemon without a client.", invoke_without_command=True
)
@click.pass_context
def instances(context: click.Context) -> int:
    """Makes, lists, looks into and removes gadgets that run in a daemon without a client.

    \b
        igsdk instances create top_cuda_memory:latest --name memory -p host=true
        igsdk instances attach memory --json
        igsdk instances remove memory
    """
    if context.invoked_subcommand is None:
        output.say(context.get_help().rstrip(), prefix="")
        return UsageError.exit_code
    return 0


@instances.command("list", short_help="List them.")
@daemon_option()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_(targets: tuple[str, ...], as_json: bool) -> Ending:
    """Lists them."""
    with connect(targets) as host:
        known = host.instances()
        code = say_errors(host)
    if not as_json and known:
        output.put(
            _line("NAME", "ID", "STATE", "SINCE", "IMAGE", ("NODE",) if known[0].nodes else ())
        )
    for one in known:
        _put(one, as_json)
    return code


@instances.command(short_help="Make one of a gadget.")
@click.argument("image")
@daemon_option()
@param_option()
@click.option("--name", default="", metavar="NAME", help="1 to 32 of a-z, 0-9, - and _.")
@click.option("--tag", "tags", multiple=True, metavar="T", help="For people; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print it as a JSON object.")
def create(
    image: str,
    targets: tuple[str, ...],
    params: tuple[str, ...],
    name: str,
    tags: tuple[str, ...],
    as_json: bool,
) -> Ending:
    """Makes one of the gadget IMAGE; it runs until it is removed."""
    with connect(targets) as host:
        _put(host.create(image, values_of(params), name=name, tags=tags), as_json)
        return say_errors(host)


@instances.command(short_help="Print the rows of one.")
@click.argument("instance")
@daemon_option()
@stream_options()
def attach(
    instance: str,
    targets: tuple[str, ...],
    source: str | None,
    duration: float | None,
    as_json: bool,
) -> Ending:
    """Prints the rows of INSTANCE, an id or a name: those that were kept, then new ones."""
    from igsdk.cli.signals import Signals

    with Signals() as signals, connect(targets) as host, host.attach(instance) as run:
        signals.started = True
        stream(run, as_json, source, duration, signals)
    return 0


@instances.command(short_help="End one, and forget it.")
@click.argument("instance")
@daemon_option()
def remove(instance: str, targets: tuple[str, ...]) -> Ending:
    """Ends INSTANCE, an id or a name, and forgets it."""
    with connect(targets) as host:
        host.remove(instance)
        return say_errors(host)


def _put(one: Instance, as_json: bool) -> None:
    if as_json:
        output.put_json(asdict(one))
        return
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(one.created))
    output.put(_line(one.name, one.id, one.state, since, one.image, one.nodes))
    if one.message:
        output.put(f"  {one.message}")


def _line(
    name: str, number: str, state: str, since: str, image: str, nodes: Sequence[str] = ()
) -> str:
    cells = f"{name:<20} {number:<32} {state:<8} {since:<19}"
    return f"{cells} {image:<30} {', '.join(nodes)}".rstrip()
