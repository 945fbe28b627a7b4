# SPDX-License-Identifier: Apache-2.0
"""Reads the header WWW-Authenticate, which says how a registry wants us to log in."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_WORD = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
#: a scheme stands at the start or behind a comma, and words with values follow it
_SCHEME = re.compile(r"(?:^|,)\s*([A-Za-z][A-Za-z0-9-]*)\s+(?=[A-Za-z_]+\s*=)")
_KNOWN = ("bearer", "basic")


@dataclass(frozen=True)
class Challenge:
    """The scheme in lower case, and its words: realm, service, scope."""

    scheme: str = ""
    words: dict[str, str] = field(default_factory=dict)


def read_challenge(header: str) -> Challenge:
    """The first challenge of a header that we can meet, else the first; maybe an empty one."""
    starts = list(_SCHEME.finditer(header))
    if not starts:
        return Challenge(header.strip().partition(" ")[0].lower())
    ends = [one.start() for one in starts[1:]] + [len(header)]
    found = [
        Challenge(one[1].lower(), _words(header[one.end() : end]))
        for one, end in zip(starts, ends, strict=True)
    ]
    return next((one for one in found if one.scheme in _KNOWN), found[0])


def _words(text: str) -> dict[str, str]:
    words: dict[str, str] = {}
    for name, quoted, plain in _WORD.findall(text):
        words.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) if quoted else plain)
    return words
