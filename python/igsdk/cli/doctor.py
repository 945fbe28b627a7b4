# SPDX-License-Identifier: Apache-2.0
"""``igsdk doctor``: what works on this machine, what does not, and the remedy."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import click

from igsdk._errors import IgsdkError
from igsdk.cli import output

if TYPE_CHECKING:
    from igsdk.runtime.kernel import Check


@click.command(short_help="Check what tracing needs on this machine.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def doctor(as_json: bool) -> int:
    """Checks what tracing on this machine needs, with a remedy for what is missing.

    Ends with 0 if `local:` works, else with the code that `igsdk record` would give.
    """
    from igsdk.runtime.kernel import checks

    found, code = checks(), _code()
    if as_json:
        output.put_json({"local": code == 0, "checks": [_record(check) for check in found]})
        return code
    width = max(len(check.name) for check in found)
    for check in found:
        output.put("\n".join(_lines(check, width)))
    output.put("")
    output.put("local: works here." if code == 0 else "local: does not work here, see above.")
    return code


def _code() -> int:
    from igsdk.runtime.kernel import require

    try:
        require()
    except IgsdkError as error:
        return error.exit_code
    return 0


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
