# SPDX-License-Identifier: Apache-2.0
"""``igsdk nodes``: where a target's daemons run, and which of them can be used."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from igsdk._errors import UsageError
from igsdk.cli import output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from igsdk.cli.ending import Ending
    from igsdk.client.k8s.nodes import NodeReport

_TITLES = ("NODE", "POD", "PHASE", "VERSION", "STATE")


@click.command(short_help="The nodes of a cluster, and which of them can be used.")
@click.option(
    "--target",
    default="k8s:",
    metavar="T",
    help="k8s:[//CONTEXT/NAMESPACE][?selector=LABELS&node=NAME] (default k8s:).",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def nodes(target: str, as_json: bool) -> Ending:
    """Lists the gadget pods of a cluster by node, with each daemon's version, or why it
    cannot be used.

    \b
        igsdk nodes
        igsdk nodes --target 'k8s://prod/gadget?node=gpu-*' --json

    Ends with 0 where any node can be used, else with the code of why the first one cannot.
    """
    if not target.startswith("k8s:"):
        raise UsageError(
            f"{target!r} is no cluster.", "Name one: k8s:, or k8s://CONTEXT/NAMESPACE."
        )
    from igsdk.client.k8s.nodes import survey

    found = survey(target)
    _put(found, as_json)
    return 0 if any(one.state == "ready" for one in found) else found[0].code


def _put(found: Sequence[NodeReport], as_json: bool) -> None:
    if as_json:
        for one in found:
            output.put_json(asdict(one))
        return
    rows = [(one.node or "-", one.pod, one.phase, one.version or "-", one.state) for one in found]
    widths = [max(map(len, column)) for column in zip(_TITLES, *rows, strict=True)]
    output.put(_line(_TITLES, widths))
    for row, one in zip(rows, found, strict=True):
        output.put(_line(row, widths))
        if one.why:
            output.put(f"  {one.why}")


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()
