# SPDX-License-Identifier: Apache-2.0
"""From a target's URL, or several, to the runtime that they name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, overload

from ._errors import UsageError

if TYPE_CHECKING:
    from typing import Literal, TypeAlias

    from ._remote.runtime import DaemonTarget, FleetTarget
    from ._run import LocalRuntime
    from .client.member import Membership
    from .client.tls import TLS

    Targets: TypeAlias = "list[str] | tuple[str, ...]"

_CONNECT_TIMEOUT, _CALL_TIMEOUT = 5.0, 120.0
_DAEMONS = ("unix", "tcp", "tcp+tls")


@overload
def connect(target: Literal["local:"] = ...) -> LocalRuntime: ...


@overload
def connect(
    target: Targets,
    *,
    connect_timeout: float = ...,
    call_timeout: float = ...,
    tls: TLS | bool | None = ...,
) -> FleetTarget: ...


@overload
def connect(
    target: str,
    *,
    connect_timeout: float = ...,
    call_timeout: float = ...,
    tls: TLS | bool | None = ...,
) -> LocalRuntime | DaemonTarget | FleetTarget: ...


def connect(
    target: str | Targets = "local:",
    *,
    connect_timeout: float = _CONNECT_TIMEOUT,
    call_timeout: float = _CALL_TIMEOUT,
    tls: TLS | bool | None = None,
) -> LocalRuntime | DaemonTarget | FleetTarget:
    """Opens a runtime, to be used as a context manager.

    Args:
        target: ``local:`` traces on this machine, in this process, as root.
            ``unix:///PATH`` and ``tcp://HOST:PORT`` are daemons of the gadget service, such
            as Inspektor Gadget's, which run any gadget;
            ``tcp+tls://HOST:PORT?ca=FILE&cert=FILE&key=FILE&server_name=NAME`` over TLS.
            ``k8s:``, ``k8s://CONTEXT/NAMESPACE?selector=…&node=…`` are the gadget pods of a
            cluster. A list of daemons and clusters is one runtime: what is asked of it is
            asked of each, and what fails stops no other.
        connect_timeout: seconds to wait for a daemon's connection.
        call_timeout: seconds to wait for a daemon's answer, and for a run to start there:
            it may have an image to fetch.
        tls: the same for ``tcp:`` without a URL; True: the authorities of this system.

    Raises:
        UsageError: the target is not a URL of a kind that igsdk knows.
        TargetUnavailable: it cannot be reached.
        PermissionMissing: a daemon's socket or a cluster is not for us.
        AnswerInvalid: what answers is no gadget daemon.
        ExtensionMissing: ``local:``, and the native extension is not installed; or a
            daemon, and grpcio is not; or a cluster, and kubernetes is not.
    """
    timeouts = connect_timeout, call_timeout
    if not isinstance(target, str):
        return _fleet(tuple(target), timeouts, tls)
    scheme = _scheme(target)
    if scheme == "k8s":
        return _fleet((target,), timeouts, tls)
    if scheme in _DAEMONS:
        from ._remote.runtime import DaemonTarget

        return DaemonTarget(target, *timeouts, tls)
    from ._run import LocalRuntime

    return LocalRuntime()


def _scheme(target: str) -> str:
    """Raises UsageError where it is none that igsdk knows."""
    scheme, colon, rest = target.partition(":")
    known = scheme in (*_DAEMONS, "k8s") or (scheme == "local" and not rest)
    if not colon or not known:
        raise UsageError(
            f"{target!r} is not a target.",
            "Use local:, which is this machine, unix:///PATH, tcp://HOST:PORT, tcp+tls://… "
            "or k8s:.",
        )
    return scheme


def _fleet(
    targets: tuple[str, ...], timeouts: tuple[float, float], tls: TLS | bool | None
) -> FleetTarget:
    from ._remote.runtime import FleetTarget
    from .client.fleet import ListedMembers
    from .client.memberships import together
    from .client.remote import RemoteRuntime

    schemes = [_scheme(target) for target in targets]
    if "local" in schemes:
        raise UsageError(
            "local: is traced in this process, and cannot be one of several targets.",
            "Name it alone, or start `igsdk agent` on this machine and name its socket.",
        )
    connect_timeout, call_timeout = timeouts
    remote = partial(
        RemoteRuntime, connect_timeout=connect_timeout, call_timeout=call_timeout, tls=tls
    )
    daemons = [one for one, scheme in zip(targets, schemes, strict=True) if scheme != "k8s"]
    parts: list[Membership] = [ListedMembers(daemons, remote)] if daemons or not targets else []
    for target in dict.fromkeys(one for one in targets if one not in daemons):
        from .client.k8s.membership import KubernetesMembership

        parts.append(KubernetesMembership(target, connect_timeout, call_timeout))
    return FleetTarget(together(parts), ", ".join(targets))
