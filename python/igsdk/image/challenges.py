# SPDX-License-Identifier: Apache-2.0
"""Reads the header WWW-Authenticate, which says how a registry wants us to log in."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_WORD = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')


@dataclass(frozen=True)
class Challenge:
    """The scheme in lower case, and its words: realm, service, scope."""

    scheme: str = ""
    words: dict[str, str] = field(default_factory=dict)


def read_challenge(header: str) -> Challenge:
    """The first challenge of a header; an empty one for what is none."""
    scheme, _, rest = header.strip().partition(" ")
    words: dict[str, str] = {}
    for name, quoted, plain in _WORD.findall(rest):
        words.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) if quoted else plain)
    return Challenge(scheme.lower(), words)
