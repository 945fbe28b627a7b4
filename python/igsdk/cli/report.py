# SPDX-License-Identifier: Apache-2.0
"""``igsdk report FILE``: who holds the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from igsdk._errors import UsageError
from igsdk.cli import output

if TYPE_CHECKING:
    from igsdk.profile import Profile
    from igsdk.profile.top import By, TopRow

_VALUES = {
    "inuse": "inuse_space",
    "alloc": "alloc_space",
    "peak": "peak_space",
    "failed": "failed_space",
}


@click.command(short_help="Show who holds the memory in a profile.")
@click.argument("file", default="igsdk.pb.gz")
@click.option(
    "--top",
    "count",
    default=10,
    show_default=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="How many holders.",
)
@click.option(
    "--by",
    default="function",
    show_default=True,
    type=click.Choice(["function", "line", "stack"]),
    help="What a holder is.",
)
@click.option(
    "--value", type=click.Choice(list(_VALUES)), help="What to rank by.  [default: inuse]"
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="KEY=GLOB",
    help="Only process, pid, kind, device, function, … that match; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with exact integers.")
def report(
    file: str, count: int, by: By, value: str | None, filters: tuple[str, ...], as_json: bool
) -> None:
    """Shows the largest holders in a profile, its processes, failures and losses.

    \b
        igsdk report
        igsdk report service.pb.gz --value peak --by line
        igsdk report service.pb.gz --filter process='python*' --filter kind=device

    FILE is igsdk.pb.gz when it is not given; - is standard input. A heap profile of
    another tool in pprof format is read too.
    """
    from igsdk.profile import Profile

    profile = _filtered(Profile.read("/dev/stdin" if file == "-" else file), filters)
    name = _VALUES[value] if value else profile.default_value
    if as_json:
        output.put_json(_record(profile, name, by, count))
        return
    from igsdk.views.report import report_text

    output.put(report_text(profile, value=name, by=by, top=count))


def _filtered(profile: Profile, filters: tuple[str, ...]) -> Profile:
    """The rows that match all filters.

    Raises:
        UsageError: a filter is not KEY=GLOB, or there is no such key.
    """
    for text in filters:
        key, equals, pattern = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{text!r} is no filter.", "Write it as KEY=GLOB: kind=device.")
        if key == "pid":
            profile = profile.filter(pid=_pid(pattern))
        else:
            wanted: dict[str, Any] = {key: pattern}
            profile = profile.filter(**wanted)
    return profile


def _pid(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"{text!r} is no process id.", "Write a number: pid=4711.")
    return int(text)


def _record(profile: Profile, value: str, by: By, count: int) -> dict[str, Any]:
    """What `--json` prints; the keys are stable."""
    return {
        "value": value,
        "by": by,
        "total": profile.total(value),
        "totals": profile.totals(value),
        "top": [_row(row) for row in profile.top(count, value, by)],
        **profile.metadata.to_json(),
    }


def _row(row: TopRow) -> dict[str, Any]:
    from igsdk._events import frame_record

    return {
        "name": row.name,
        "file": row.file,
        "line": row.line,
        "self": row.self,
        "total": row.total,
        "frames": [frame_record(frame) for frame in row.frames],
    }
