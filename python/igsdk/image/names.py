# SPDX-License-Identifier: Apache-2.0
"""Names of images, completed as Inspektor Gadget completes them.

`trace_open` is `ghcr.io/inspektor-gadget/gadget/trace_open:latest` there, `me/mine` is
`ghcr.io/me/mine:latest`. A name that is completed in another way would not be found
again in its store.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from igsdk._errors import UsageError

DOMAIN = "ghcr.io"
PREFIX = "inspektor-gadget/gadget/"
#: Docker's own registry, where names without a path have one too
_HUB = "docker.io"

_HOST = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?|\[[0-9a-fA-F:]+\](:[0-9]{1,5})?"
)
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST = 255


@dataclass(frozen=True)
class Reference:
    """Where an image is: `domain/repository:tag`, or `@digest`, or both."""

    domain: str
    repository: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}{'@' if self.digest else ''}{self.digest}"

    @property
    def name(self) -> str:
        """Without tag and digest."""
        return f"{self.domain}/{self.repository}"

    @property
    def wanted(self) -> str:
        """What a registry is asked for: the digest where there is one, else the tag."""
        return self.digest or self.tag


def parse(text: str) -> Reference:
    """Completes a name.

    Raises:
        UsageError: it is none.
    """
    rest, at, digest = text.partition("@")
    domain, rest = _domain(rest)
    repository, colon, tag = rest.partition(":")
    whole = Reference(domain, repository, tag or ("" if at else "latest"), digest)
    if (colon and not tag) or (at and not digest) or not _is_sound(whole):
        raise UsageError(
            f"{text!r} is no image name.",
            "Write it as REGISTRY/PATH:TAG, in lower case: registry.example.com/team/gadget:v1.",
        )
    return whole


def _domain(text: str) -> tuple[str, str]:
    """Splits the registry off, or adds the one that is meant."""
    first, slash, rest = text.partition("/")
    is_host = any(mark in first for mark in ".:") or first == "localhost" or first != first.lower()
    domain, rest = (first, rest) if slash and is_host else (DOMAIN, text)
    domain = _HUB if domain == f"index.{_HUB}" else domain
    usual = {DOMAIN: PREFIX, _HUB: "library/"}.get(domain, "")
    return domain, rest if "/" in rest else usual + rest


def _is_sound(name: Reference) -> bool:
    return bool(
        _HOST.fullmatch(name.domain)
        and len(name.repository) <= _LONGEST
        and _REPOSITORY.fullmatch(name.repository)
        and (not name.tag or _TAG.fullmatch(name.tag))
        and (not name.digest or _DIGEST.fullmatch(name.digest))
    )
