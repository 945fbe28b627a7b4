# SPDX-License-Identifier: Apache-2.0
"""An inspected image in words, for who has never seen one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from igsdk.image import oci
from igsdk.image.programs import DISABLED
from igsdk.image.tables import paragraph, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FILLED = {
    "events": "one row for each event, as it happens",
    "map": "all rows of a map at each interval, which takes them out of it",
    "iterator": "all rows of an iterator at each interval",
    "other": "made by the gadget's module, or by Inspektor Gadget itself",
}
#: beginnings of sections -> when a program there runs
_WHEN = {
    "kprobe": "when a function of the kernel starts",
    "kretprobe": "when a function of the kernel returns",
    "fentry": "when a function of the kernel starts",
    "fexit": "when a function of the kernel returns",
    "tracepoint": "at an event of the kernel",
    "raw_tracepoint": "at an event of the kernel",
    "tp_btf": "at an event of the kernel",
    "iter": "when rows are asked for",
    "lsm": "when the kernel asks for a permission",
    "socket": "when a packet comes or goes",
    "classifier": "when a packet comes or goes",
}
_PLAIN_KINDS = {"string": "text", "group": ""}
#: fields that Inspektor Gadget knows well -> what they are; those below them stay out
_FOLDED = {
    "k8s": "where in Kubernetes: node, namespace, podName, containerName, owner …",
    "runtime": "which container: containerName, containerId, containerImageName …",
}
_STACK = "a call stack; its texts are .addresses, .buildid and .symbols"
_WIDE = 100


def explain(record: dict[str, Any], columns: int | None = None) -> str:
    """The text that `igsdk gadget inspect` shows.

    Args:
        columns: of the terminal, None where there is none.
    """
    return "\n".join(
        [
            *_head(record, columns),
            *_parts(record, columns),
            *_programs(record, columns),
            *_parameters(record, columns),
            *(line for source in record["datasources"] for line in _source(source, columns)),
            *_problems(record["problems"], columns),
            *_run(record),
        ]
    )


def _head(record: dict[str, Any], columns: int | None) -> Iterator[str]:
    yield record["title"] or record["name"] or "A gadget without a name"
    if record["description"]:
        yield from table([(record["description"],)], columns)
    yield ""
    notes = record["annotations"]
    rows = [
        ("image", record["name"] or "(no name)"),
        ("created", notes.get(oci.CREATED, "unknown")),
        ("built by", notes.get(oci.BUILDER, "unknown")),
        ("license", record["license"] or "none in the program"),
        ("signed", _signed(record)),
        *(("more", link) for link in dict.fromkeys(record["links"].values())),
    ]
    yield from table(rows, columns)


def _is_signed(record: dict[str, Any]) -> bool:
    return any(one["of"] == record["digest"] for one in record["signatures"])


def _signed(record: dict[str, Any]) -> str:
    if _is_signed(record):
        return "yes; whether you trust the key is for `ig image verify` to say"
    return "no; Inspektor Gadget refuses it unless it is told not to verify images"


def _parts(record: dict[str, Any], columns: int | None) -> Iterator[str]:
    yield ""
    yield "Parts (each under the digest of its bytes, all of which are right)"
    count = len(record["architectures"])
    manifests = f"what a tag stands for; {count} manifest{'s' if count > 1 else ''}"
    rows = [("index", "", _short(record["digest"]), manifests)]
    for image in record["architectures"]:
        platform = f"for {image['os'] or 'any system'} on {image['architecture']}"
        rows.append(("  manifest", "", _short(image["digest"]), platform))
        layers = [image["config"], *image["layers"]]
        rows += [
            (f"    {name}", _bytes(one["size"]), _short(one["digest"]), one["meaning"])
            for name, one in zip(["config", *["layer"] * len(layers)], layers, strict=False)
        ]
    yield from table(rows, columns)
    yield "  the index's whole digest, which is the image's:"
    yield f"  {record['digest']}"


def _short(digest: str) -> str:
    return f"{digest[:19]}…"


def _programs(record: dict[str, Any], columns: int | None) -> Iterator[str]:
    """By when they run: there may be hundreds."""
    groups: dict[str, list[str]] = {}
    for one in record["programs"]:
        when, what = _when(one)
        groups.setdefault(when, []).append(what)
    if groups:
        yield ""
        yield "Programs in the kernel, and when they run"
        yield from table([(when, ", ".join(found)) for when, found in groups.items()], columns)


def _when(one: dict[str, str]) -> tuple[str, str]:
    kind, _, place = one["section"].partition("/")
    place = one["attach_to"] or place
    if place == DISABLED:
        return "when another one calls them", one["name"]
    if kind in ("uprobe", "uretprobe", "usdt"):
        file, _, symbol = place.partition(":")
        does = {"uprobe": "starts", "uretprobe": "returns"}.get(kind, "comes to a mark in it")
        return f"when a function of {file} {does}", symbol
    if kind == "perf_event":
        often = f"{one['frequency']} times a second" if one["frequency"] else "often"
        return f"{often} on each processor", one["name"]
    return _WHEN.get(re.sub("[0-9.].*", "", kind), kind), place or one["name"]


def _parameters(record: dict[str, Any], columns: int | None) -> Iterator[str]:
    yield ""
    yield "Parameters (--NAME VALUE when it is run)"
    rows = [
        (
            f"--{one['key']}",
            one["type"] or "?",
            one["default"] and f"default {one['default']}",
            one["description"],
        )
        for one in record["parameters"]
    ]
    yield from table(rows, columns) if rows else ["  none"]
    if record["defaults"]:
        yield "  and other defaults:"
        yield from table([(f"  {key}", text) for key, text in record["defaults"].items()], columns)


def _source(source: dict[str, Any], columns: int | None) -> Iterator[str]:
    yield ""
    yield from paragraph(f"Data source {source['name']}: {_FILLED[source['filled_by']]}", columns)
    notes = dict(source["annotations"])
    said = notes.pop("description", "")
    if said:
        yield from table([(said,)], columns)
    wide = columns is None or columns >= _WIDE
    rows = [("field", "type", "where", "")] if wide else [("field", "type", "")]
    for one in sorted(_unfolded(source["fields"]), key=lambda one: bool(one["hidden"])):
        place = (_place(one),) if wide else ()
        rows.append((one["name"], _kind(one), *place, _about(one)))
    if len(rows) > 1:
        yield from table(rows, columns)
    if notes:
        yield "  annotations:"
        yield from table([(f"  {key}", text) for key, text in notes.items()], columns)


def _unfolded(fields: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Those that say something to a reader; for some groups their first one stands for all."""
    folded = [f"{one['name']}." for one in fields if _fold(one)]
    for one in fields:
        noted = one["annotations"] and not one["hidden"]
        if noted or not one["name"].startswith(tuple(folded)):
            yield one


def _fold(one: dict[str, Any]) -> str:
    is_stack = "gadget_user_stack" in one["types"]
    return _STACK if is_stack else _FOLDED.get(one["name"], "") if one["part"] == "added" else ""


def _kind(one: dict[str, Any]) -> str:
    return "" if _fold(one) else _PLAIN_KINDS.get(one["kind"], one["kind"])


def _about(one: dict[str, Any]) -> str:
    """Its description, and what it is for elsewhere."""
    notes = one["annotations"]
    words = [
        "hidden" if one["hidden"] else "",
        f"metrics: {notes['metrics.type']}" if "metrics.type" in notes else "",
        "label in profiles" if notes.get("profiles.sample-attribute") == "true" else "",
    ]
    listed = ", ".join(filter(None, words))
    said = one["description"] or _fold(one)
    return f"{said} ({listed})".strip() if listed else said


def _place(one: dict[str, Any]) -> str:
    if one["offset"] is None:
        return "made when it runs"
    return f"{one['part']}+{one['offset']}, {one['size']} B"


def _problems(problems: Iterable[str], columns: int | None) -> Iterator[str]:
    if problems:
        yield ""
        yield "What Inspektor Gadget will not take"
        yield from table([(problem,) for problem in problems], columns)


def _run(record: dict[str, Any]) -> Iterator[str]:
    if record["name"]:
        yield ""
        yield "Run it"
        yield from _commands(record["name"], record["file"], _is_signed(record))


def _commands(name: str, file: str, signed: bool) -> Iterator[str]:
    """From where the image is: a file has to get to whoever runs it first."""
    yield "  on this machine (as root; without --host only containers are traced):"
    if file:
        yield f"    ig image import {file}"
    yield f"    ig run {name} --host"
    if not signed:
        yield "    and --verify-image=false, since it is not signed"
    yield "  in a cluster (with -A in all namespaces):"
    if file:
        yield f"    igsdk gadget push {file} REGISTRY/NAME:TAG"
    yield f"    kubectl gadget run {'REGISTRY/NAME:TAG' if file else name}"
    yield "    Whether it is taken, the configuration of Inspektor Gadget there decides, by"
    yield "    operator.oci: public-keys, verify-image, insecure-registries."


def _bytes(count: int) -> str:
    return f"{count} B" if count < 10_000 else f"{count / 1024:.1f} KiB"
