# SPDX-License-Identifier: Apache-2.0
"""An inspected image in words, for who has never seen one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from igsdk.image import oci

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FILLED = {
    "events": "one row for each event, as it happens",
    "map": "all rows of a map at each interval; the map is emptied by it",
    "iterator": "all rows of an iterator at each interval",
}


def explain(record: dict[str, Any]) -> str:
    """The text that `igsdk gadget inspect` shows."""
    return "\n".join(
        [
            *_head(record),
            *_images(record),
            *_parameters(record["parameters"]),
            *(line for source in record["datasources"] for line in _source(source)),
            *_problems(record["problems"]),
            *_run(record),
        ]
    )


def _head(record: dict[str, Any]) -> Iterator[str]:
    yield record["title"] or record["name"] or "A gadget without a name"
    if record["description"]:
        yield f"  {record['description']}"
    yield ""
    yield from _table(
        [
            ("image", record["name"] or "(no name)"),
            ("digest", record["digest"]),
            ("created", record["annotations"].get(oci.CREATED, "unknown")),
            ("built by", record["annotations"].get(oci.BUILDER, "unknown")),
            ("license", record["license"] or "none in the program"),
            ("signed", _signed(record)),
        ]
    )


def _signed(record: dict[str, Any]) -> str:
    if any(one["of"] == record["digest"] for one in record["signatures"]):
        return "yes; whether you trust the key is for `ig image verify` to say"
    return "no; Inspektor Gadget refuses it unless it is told not to verify images"


def _images(record: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield "Architectures (one manifest each; a machine takes its own)"
    rows = [
        (one["architecture"], layer["meaning"], _bytes(layer["size"]), layer["digest"])
        for one in record["architectures"]
        for layer in one["layers"]
    ]
    yield from _table(rows)
    yield ""
    yield "Programs (what runs in the kernel, and when)"
    yield from _table([(one["name"], one["section"]) for one in record["programs"]])


def _parameters(parameters: list[dict[str, str]]) -> Iterator[str]:
    yield ""
    yield "Parameters (--NAME VALUE when it is run)"
    rows = [
        (
            f"--{one['key']}",
            one["type"] or "?",
            f"default {one['default']}" if one["default"] else "",
            one["description"],
        )
        for one in parameters
    ]
    yield from _table(rows) if rows else ["  none"]


def _source(source: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield f"Data source {source['name']}: {_FILLED[source['filled_by']]}"
    yield from _table(
        [
            (
                one["name"],
                one["kind"],
                _place(one),
                "hidden" if one["hidden"] else "",
                one["description"],
            )
            for one in source["fields"]
        ],
        head=("field", "type", "where", "", ""),
    )
    if source["annotations"]:
        yield "  annotations"
        yield from _table([(f"  {key}", text) for key, text in source["annotations"].items()])


def _place(one: dict[str, Any]) -> str:
    if one["offset"] is None:
        return "added"
    return f"{one['part']}+{one['offset']}, {one['size']} B"


def _problems(problems: list[str]) -> Iterator[str]:
    if problems:
        yield ""
        yield "What Inspektor Gadget will not take"
        yield from (f"  {problem}" for problem in problems)


def _run(record: dict[str, Any]) -> Iterator[str]:
    if record["name"]:
        yield ""
        yield f"Run it: kubectl gadget run {record['name']}"


def _bytes(count: int) -> str:
    return f"{count} B" if count < 10_000 else f"{count / 1024:.1f} KiB"


def _table(rows: Iterable[tuple[str, ...]], head: tuple[str, ...] = ()) -> Iterator[str]:
    lines = [head, *rows] if head else list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()
