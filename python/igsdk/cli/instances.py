# SPDX-License-Identifier: Apache-2.0
"""``igsdk instances``: gadgets that run in a daemon without a client."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from igsdk._errors import UsageError
from igsdk.cli import output
from igsdk.cli.rows import (
    connect,
    param_option,
    stream,
    stream_options,
    target_option,
    values_of,
)

if TYPE_CHECKING:
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
@target_option()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_(target: str, as_json: bool) -> Ending:
    """Lists them."""
    with connect(target) as host:
        known = host.instances()
    if not as_json and known:
        output.put(_line("NAME", "ID", "STATE", "SINCE", "IMAGE"))
    for one in known:
        _put(one, as_json)
    return 0


@instances.command(short_help="Make one of a gadget.")
@click.argument("image")
@target_option()
@param_option()
@click.option("--name", default="", metavar="NAME", help="1 to 32 of a-z, 0-9, - and _.")
@click.option("--tag", "tags", multiple=True, metavar="T", help="For people; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print it as a JSON object.")
def create(
    image: str,
    target: str,
    params: tuple[str, ...],
    name: str,
    tags: tuple[str, ...],
    as_json: bool,
) -> Ending:
    """Makes one of the gadget IMAGE; it runs until it is removed."""
    with connect(target) as host:
        _put(host.create(image, values_of(params), name=name, tags=tags), as_json)
    return 0


@instances.command(short_help="Print the rows of one.")
@click.argument("instance")
@target_option()
@stream_options()
def attach(
    instance: str, target: str, source: str | None, duration: float | None, as_json: bool
) -> Ending:
    """Prints the rows of INSTANCE, an id or a name: those that were kept, then new ones."""
    from igsdk.cli.signals import Signals

    with Signals() as signals, connect(target) as host, host.attach(instance) as run:
        signals.started = True
        stream(run, as_json, source, duration, signals)
    return 0


@instances.command(short_help="End one, and forget it.")
@click.argument("instance")
@target_option()
def remove(instance: str, target: str) -> Ending:
    """Ends INSTANCE, an id or a name, and forgets it."""
    with connect(target) as host:
        host.remove(instance)
    return 0


def _put(one: Instance, as_json: bool) -> None:
    if as_json:
        output.put_json(asdict(one))
        return
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(one.created))
    output.put(_line(one.name, one.id, one.state, since, one.image))
    if one.message:
        output.put(f"  {one.message}")


def _line(name: str, number: str, state: str, since: str, image: str) -> str:
    return f"{name:<20} {number:<32} {state:<8} {since:<19} {image}".rstrip()
