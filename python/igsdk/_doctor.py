# SPDX-License-Identifier: Apache-2.0
"""What a target of any kind depends on, for ``igsdk doctor``."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ._errors import IgsdkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ._check import Check
    from .client.member import Member

LOCAL = "local:"
_AT_ONCE = 16
_NAMED = 3
_TOOK = re.compile(r", after \d+ ms")


@dataclass(frozen=True)
class Found:
    """What was found of one target.

    Attributes:
        target: as given.
        checks: in the order in which things are needed.
        code: the exit code of the first thing in the way; 0: the target works.
    """

    target: str
    checks: Sequence[Check]
    code: int


def look(target: str, gadget: str | None = None, *, run: bool = False) -> Found:
    """Looks at a target.

    Args:
        target: ``local:``, ``unix:``, ``tcp:`` or ``k8s:``.
        gadget: of daemons, the image to ask for; igsdk's own if not given.
        run: of daemons, also run it for a moment.
    """
    if target == LOCAL:
        return _local()
    found = _cluster if target.startswith("k8s:") else _daemon
    checks = found(target, gadget, run)
    return Found(target, checks, next((one.code for one in checks if one.state == "fail"), 0))


def _local() -> Found:
    from .runtime.kernel import checks, require

    found = checks()
    try:
        require()
    except IgsdkError as error:
        return Found(LOCAL, found, error.exit_code)
    return Found(LOCAL, found, 0)


def _daemon(target: str, gadget: str | None, run: bool) -> list[Check]:
    from .client.checks import OURS, check_daemon
    from .client.remote import RemoteRuntime

    return check_daemon(lambda: RemoteRuntime(target), gadget or OURS, run=run)


def _cluster(target: str, gadget: str | None, run: bool) -> list[Check]:
    from .client.k8s.checks import check_cluster

    found, membership, members = check_cluster(target)
    if membership is None:
        return found
    with closing(membership):
        nodes = _each(members, gadget, run)
    # Tunnels are the API server's own TLS, which end in sockets of ours: nobody's question.
    asked = {n: [one for one in checks if one.name != "encryption"] for n, checks in nodes.items()}
    return found + merged(asked)


def _each(members: Sequence[Member], gadget: str | None, run: bool) -> dict[str, list[Check]]:
    from .client.checks import OURS, check_daemon

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        checks = pool.map(
            lambda member: check_daemon(member.connect, gadget or OURS, run=run), members
        )
        return dict(zip((member.name for member in members), checks, strict=True))


def merged(nodes: Mapping[str, Iterable[Check]]) -> list[Check]:
    """The checks of several nodes as one list: what is the same on some stands there once.

    What fails on some nodes and not on all is in nobody's way: the others go on without them.
    """
    alike: dict[str, dict[Check, list[str]]] = {}
    failing = {node for node, checks in nodes.items() if any(c.state == "fail" for c in checks)}
    for node, checks in nodes.items():
        for check in checks:
            plain = replace(check, detail=_TOOK.sub("", check.detail))
            if check.state == "fail" and len(failing) < len(nodes):
                plain = replace(plain, state="warn", code=0)
            alike.setdefault(check.name, {}).setdefault(plain, []).append(node)
    return [
        replace(check, detail=f"{check.detail} ({_on(names, len(nodes))})")
        for group in alike.values()
        for check, names in group.items()
    ]


def _on(names: Sequence[str], all_of_them: int) -> str:
    if len(names) == all_of_them > 1:
        return f"all {all_of_them} nodes"
    rest = len(names) - _NAMED
    more = f" and {rest} more" if rest > 0 else ""
    return f"on {', '.join(names[:_NAMED])}{more}"
