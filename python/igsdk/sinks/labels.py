# SPDX-License-Identifier: Apache-2.0
"""Names and labels of series, within what every Pyroscope takes.

Servers before 2.0 turn dots into underscores and refuse dashes, later ones keep both; so only
names that all of them leave alone are sent. Limits are those that servers have unless told
otherwise.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from igsdk._errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

Labels = tuple[tuple[str, str], ...]

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_RESERVED = ("profile_id", "span_id", "trace_id")
_MOST = 30
#: the metric's name and ``__delta__``, which count too
_PRIVATE = 2
_LONGEST_NAME, _LONGEST_VALUE = 1024, 2048
_LONGEST_TENANT = 150
_TENANT = re.compile(r"[a-zA-Z0-9!\-_.*'()]+")


def check_name(name: str) -> str:
    """The name of a profile type's first part.

    Raises:
        UsageError: servers would change or refuse it.
    """
    if not _NAME.fullmatch(name) or name.startswith("__") or len(name) > _LONGEST_NAME:
        raise UsageError(
            f"{name!r} is no name for profiles.",
            "Use letters, digits and underscores, such as gpu_memory.",
        )
    return name


def check_labels(given: Mapping[str, str]) -> dict[str, str]:
    """Labels that a user wants on every series.

    Raises:
        UsageError: a name that servers would change, hide or refuse, or an empty value.
    """
    for name, value in given.items():
        if not _NAME.fullmatch(name) or name.startswith("__") or name in _RESERVED:
            raise UsageError(
                f"{name!r} is no name for a label of a profile.",
                "Use letters, digits and underscores, and no two underscores at the start.",
            )
        if len(name) > _LONGEST_NAME or not value or len(value.encode()) > _LONGEST_VALUE:
            raise UsageError(
                f"The label {name[:40]!r} is empty or too long.",
                f"A name has up to {_LONGEST_NAME} bytes, a value 1 to {_LONGEST_VALUE}.",
            )
    return dict(given)


def check_tenant(tenant: str | None) -> str | None:
    """The tenant's name.

    Raises:
        UsageError: servers would refuse it.
    """
    if tenant and (len(tenant) > _LONGEST_TENANT or not _TENANT.fullmatch(tenant)):
        raise UsageError(
            f"{tenant[:40]!r} is no name of a tenant.",
            f"Use up to {_LONGEST_TENANT} letters, digits and ! - _ . * ' ( ).",
        )
    return tenant


def finished(labels: Mapping[str, str]) -> Labels:
    """Labels in order, without empty ones, values cut to what servers take.

    Raises:
        UsageError: there are more than servers take.
    """
    kept = tuple(sorted((name, _short(value)) for name, value in labels.items() if value))
    if len(kept) > _MOST - _PRIVATE:
        raise UsageError(
            f"A series would have {len(kept)} labels.",
            f"Servers take {_MOST - _PRIVATE} beside the profile's name: leave some away.",
        )
    return kept


def _short(value: str) -> str:
    """A value as UTF-8 that is short enough."""
    return value.encode("utf-8", "replace")[:_LONGEST_VALUE].decode("utf-8", "ignore")
