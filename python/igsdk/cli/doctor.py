# SPDX-License-Identifier: Apache-2.0
"""``igsdk doctor``: what works, here or on a target, what does not, and the remedy."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from igsdk.cli import output
from igsdk.cli.options import target_option

if TYPE_CHECKING:
    from igsdk._check import Check
    from igsdk._doctor import Found


@click.command(short_help="Check what tracing needs, here or on a target.")
@target_option(
    "Look at this instead of this machine: unix:///PATH, tcp://HOST:PORT, k8s:; may be repeated."
)
@click.option(
    "--gadget",
    metavar="IMAGE",
    help="Of a daemon: whether it has this one (default profile_cuda_memory).",
)
@click.option("--run", is_flag=True, help="Of a daemon: also run the gadget for two seconds.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def doctor(targets: tuple[str, ...], gadget: str | None, run: bool, as_json: bool) -> int:
    """Checks what tracing needs, with a remedy for what is missing.

    \b
        igsdk doctor
        igsdk doctor --target unix:///var/run/ig/ig.socket --gadget trace_open:latest --run
        igsdk doctor --target k8s:

    Ends with 0 if the target works, else with the code that `igsdk record` would give: that
    of the first thing in the way.
    """
    from igsdk._doctor import LOCAL, look

    records, codes = [], []
    for number, target in enumerate(targets or (LOCAL,)):
        found = look(target, gadget, run=run)
        codes.append(found.code)
        records.append(_record_of(found))
        if not as_json:
            if targets:
                output.put(f"{'' if number == 0 else chr(10)}{target}")
            _put(found)
    if as_json:
        output.put_json({"targets": records} if targets else _as_local(records[0]))
    return next((code for code in codes if code), 0)


def _put(found: Found) -> None:
    width = max(len(check.name) for check in found.checks)
    for check in found.checks:
        output.put("\n".join(_lines(check, width)))
    output.put("")
    where = " here" if found.target == "local:" else ""
    verdict = f"does not work{where}, see above" if found.code else f"works{where}"
    output.put(f"{found.target} {verdict}.")


def _lines(check: Check, width: int) -> list[str]:
    """One check; folded on a terminal only, and never inside a path."""
    head = f"{check.state:<4}  {check.name:<{width}}  "
    lines = _folded(check.detail, head, " " * len(head))
    if check.remedy:
        lines += _folded(check.remedy, f"{'':<{len(head)}}-> ", " " * (len(head) + 3))
    return lines


def _folded(text: str, first: str, others: str) -> list[str]:
    columns = output.width()
    if columns is None:
        return [first + text]
    return textwrap.wrap(
        text,
        max(columns - 1, len(others) + 20),
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _record(check: Check) -> dict[str, str]:
    return {
        "name": check.name,
        "state": check.state,
        "detail": check.detail,
        "remedy": check.remedy,
    }


def _record_of(found: Found) -> dict[str, Any]:
    return {
        "target": found.target,
        "works": found.code == 0,
        "code": found.code,
        "checks": [_record(check) for check in found.checks],
    }


def _as_local(record: dict[str, Any]) -> dict[str, Any]:
    """Without a target: in the form that it always had."""
    return {"local": record["works"], "checks": record["checks"]}
