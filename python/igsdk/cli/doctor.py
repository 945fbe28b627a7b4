# SPDX-License-Identifier: Apache-2.0
"""``igsdk doctor``: what works, here or on a target, what does not, and the remedy."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from igsdk._errors import IgsdkError
from igsdk.cli import output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from igsdk._check import Check

_LOCAL = "local:"


@click.command(short_help="Check what tracing needs, here or on a target.")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="T",
    help="Look at this daemon instead: unix:///PATH or tcp://HOST:PORT; may be repeated.",
)
@click.option(
    "--gadget",
    metavar="IMAGE",
    help="Of a daemon: whether it runs this one (default profile_cuda_memory).",
)
@click.option("--run", is_flag=True, help="Of a daemon: also run the gadget for two seconds.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def doctor(targets: tuple[str, ...], gadget: str | None, run: bool, as_json: bool) -> int:
    """Checks what tracing needs, with a remedy for what is missing.

    Ends with 0 if the target works, else with the code that `igsdk record` would give: that
    of the first thing in the way.
    """
    if not targets:
        found, code = _local()
        if as_json:
            output.put_json({"local": code == 0, "checks": [_record(check) for check in found]})
        else:
            _put(_LOCAL, found, code)
        return code
    codes, records = [], []
    for number, target in enumerate(targets):
        found, code = _local() if target == _LOCAL else _remote(target, gadget, run)
        codes.append(code)
        records.append(_target_record(target, found, code))
        if not as_json:
            output.put(("\n" if number else "") + target)
            _put(target, found, code)
    if as_json:
        output.put_json({"targets": records})
    return next((code for code in codes if code), 0)


def _local() -> tuple[list[Check], int]:
    from igsdk.runtime.kernel import checks, require

    found = checks()
    try:
        require()
    except IgsdkError as error:
        return found, error.exit_code
    return found, 0


def _remote(target: str, gadget: str | None, run: bool) -> tuple[list[Check], int]:
    from igsdk.client.checks import OURS, check_daemon
    from igsdk.client.remote import RemoteRuntime

    found = check_daemon(lambda: RemoteRuntime(target), gadget or OURS, run=run)
    return found, next((check.code for check in found if check.state == "fail"), 0)


def _put(target: str, found: Sequence[Check], code: int) -> None:
    width = max(len(check.name) for check in found)
    for check in found:
        output.put("\n".join(_lines(check, width)))
    output.put("")
    where = " here" if target == _LOCAL else ""
    output.put(
        f"{target} works{where}." if code == 0 else f"{target} does not work{where}, see above."
    )


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


def _target_record(target: str, found: Sequence[Check], code: int) -> dict[str, Any]:
    return {
        "target": target,
        "works": code == 0,
        "code": code,
        "checks": [_record(check) for check in found],
    }
