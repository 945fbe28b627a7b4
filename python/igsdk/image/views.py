# SPDX-License-Identifier: Apache-2.0
"""What users see first: columns, order and limits that gadget.yaml names in `paramDefaults`.

They name data sources and fields in texts like `heap:-in_use_raw,comm;events:time`.
kubectl's joint copy of a data source of several nodes is called `combined-NAME`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from igsdk.image import findings, vocabulary
from igsdk.image.document import flat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from igsdk.image.fields import Field
    from igsdk.image.findings import Checked

    Sources = Mapping[str, Mapping[str, Field]]

_OF_FIELDS = ("operator.cli.fields", "operator.sort.sort")
_OF_SOURCES = (
    *("operator.limiter.max-entries", "operator.oci.ebpf.map-fetch-interval"),
    "operator.oci.ebpf.map-fetch-count",
)
_JOINT = "combined-"


def check_said(about: Checked, known: Sources) -> None:
    """Names in these texts that stand for nothing.

    Args:
        known: the fields of each data source by their names in lower case.
    """
    for name, value in flat(about.document.root.get("paramDefaults")):
        wrong: Iterator[str] = iter(())
        if name.lower() in _OF_FIELDS:
            wrong = _wrong_fields(value.text(), known)
        elif name.lower() in _OF_SOURCES:
            parts = (part.partition(":") for part in value.text().split(","))
            wrong = _wrong_sources((one for one, colon, _ in parts if colon), known)
        for text in wrong:
            about.tell(value, f"{name}: {text}")


def _wrong_fields(text: str, known: Sources) -> Iterator[str]:
    for part in filter(None, text.split(";")):
        source, colon, listed = part.rpartition(":")
        if not colon and len(known) != 1:
            yield f"{part!r} does not say of which data source"
            continue
        name = source.removeprefix(_JOINT) if colon else next(iter(known))
        yield from _wrong_sources([name], known)
        for one in filter(None, listed.split(",")):
            wrong = vocabulary.field_named(one.lstrip("+-"), known.get(name))
            if wrong:
                yield wrong


def _wrong_sources(names: Iterator[str] | list[str], known: Sources) -> Iterator[str]:
    for name in names:
        if name.removeprefix(_JOINT) not in known:
            yield findings.no("data source", name, known)
