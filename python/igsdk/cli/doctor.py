# SPDX-License-Identifier: Apache-2.0
"""``igsdk doctor``: what works on this machine, what does not, and the remedy."""

from __future__ import annotations

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
    lines = [f"{check.state:<4}  {check.name:<{width}}  {check.detail}"]
    if check.remedy:
        lines.append(f"{'':<4}  {'':<{width}}  -> {check.remedy}")
    return lines


def _record(check: Check) -> dict[str, str]:
    return {
        "name": check.name,
        "state": check.state,
        "detail": check.detail,
        "remedy": check.remedy,
    }
