# SPDX-License-Identifier: Apache-2.0
"""``igsdk report FILE``: who holds the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from igsdk._errors import UsageError
from igsdk.cli import output

if TYPE_CHECKING:
    from igsdk.profile import Profile
    from igsdk.profile.shown import View
    from igsdk.profile.top import By, TopRow

_VALUES = {
    "inuse": "inuse_space",
    "alloc": "alloc_space",
    "peak": "peak_space",
    "failed": "failed_space",
}
_FILTERS = (
    *("process", "pid", "kind", "device", "host", "function"),
    *("node", "namespace", "pod", "container"),
)
#: filters that leave lines of the process table
_OF_PROCESSES = ("process", "pid", "node", "namespace", "pod", "container")


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
    type=click.Choice(["function", "line", "stack"]),
    help="Only the holders, one function, line or stack each, by what it asked for itself.",
)
@click.option("--value", type=click.Choice(list(_VALUES)), help="What to rank by.")
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="KEY=GLOB",
    help="Only what matches, by process, pid, kind, device, host, function, node, namespace, "
    "pod or container; may be repeated.",
)
@click.option("--python", "views", flag_value="python", multiple=True, help="Only Python frames.")
@click.option(
    "--native",
    "views",
    flag_value="native",
    multiple=True,
    help="Native frames, with the interpreter's own and without Python's.",
)
@click.option("--full", "views", flag_value="full", multiple=True, help="All frames.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with exact integers.")
def report(
    file: str,
    count: int,
    by: By | None,
    value: str | None,
    filters: tuple[str, ...],
    views: tuple[View, ...],
    as_json: bool,
) -> None:
    """Shows the largest holders in a profile, its processes, failures and losses.

    \b
        igsdk report
        igsdk report service.pb.gz --value peak --by line
        igsdk report service.pb.gz --filter process='python*' --filter kind=device

    FILE is igsdk.pb.gz when it is not given; - is standard input. A heap profile of
    another tool in pprof format is read too. Stacks show Python frames and native ones of
    programs and extensions; files have the interpreter's own too, see --full.
    """
    from igsdk.profile import Profile

    view = _view(views)
    profile = _filtered(Profile.read("/dev/stdin" if file == "-" else file), filters).shown(view)
    if value:
        profile.default_value = _VALUES[value]
    if as_json:
        output.put_json(_record(profile, by, count))
    elif filters and _is_empty(profile, filters):
        output.put(f"Nothing in this profile matches {' and '.join(filters)}.")
    elif by:
        output.put("\n".join(_table(profile, by, count)))
    else:
        from igsdk.views import report_text

        output.put(report_text(profile, count, output.width()).rstrip("\n"))


def _view(views: tuple[View, ...]) -> View:
    """The one view that was asked for.

    Raises:
        UsageError: several were.
    """
    chosen = list(dict.fromkeys(views))
    if len(chosen) > 1:
        words = " and ".join(f"--{view}" for view in chosen)
        raise UsageError(f"{words} are different views.", "Ask for one of them.")
    return chosen[0] if chosen else "default"


def _filtered(profile: Profile, filters: tuple[str, ...]) -> Profile:
    """The rows that match all filters.

    Raises:
        UsageError: a filter is not KEY=GLOB, or there is no such key.
    """
    for text in filters:
        key, equals, pattern = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{text!r} is no filter.", "Write it as KEY=GLOB: kind=device.")
        if key not in _FILTERS:
            raise UsageError(f"There is no filter {key!r}.", f"Use one of {', '.join(_FILTERS)}.")
        if key == "pid":
            profile = profile.filter(pid=_pid(pattern))
        else:
            wanted: dict[str, Any] = {key: pattern}
            profile = profile.filter(**wanted)
    return profile


def _is_empty(profile: Profile, filters: tuple[str, ...]) -> bool:
    """Whether nothing is left to show; a process that holds nothing is something."""
    about = profile.metadata
    of_processes = all(text.split("=")[0] in _OF_PROCESSES for text in filters)
    return not (len(profile) or about.failures or (of_processes and about.processes))


def _pid(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"{text!r} is no process id.", "Write a number: pid=4711.")
    return int(text)


def _table(profile: Profile, by: By, count: int) -> list[str]:
    """Only the holders, ranked as asked for."""
    from igsdk.views.holders import WORDS, function_lines, line_lines, shown_value, stack_lines
    from igsdk.views.text import fitted_width

    width = fitted_width(output.width())
    if by == "stack":
        lines = stack_lines(profile, count, width)
    elif by == "function":
        lines = function_lines(profile, count, width)
    else:
        lines = line_lines(profile, count, width)
    return lines or [f"This profile has no memory {WORDS[shown_value(profile)]}."]


def _record(profile: Profile, by: By | None, count: int) -> dict[str, Any]:
    """What `--json` prints; the keys are stable."""
    from igsdk.views import report_record
    from igsdk.views.holders import holder_rows

    record = report_record(profile, count)
    if by:
        rows = holder_rows(profile, count, record["value"], by)
        record |= {"by": by, "top": [_row(row) for row in rows]}
    return record


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
