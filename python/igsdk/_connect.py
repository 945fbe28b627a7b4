# SPDX-License-Identifier: Apache-2.0
"""From a target's URL to the runtime that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from ._errors import TargetUnavailable, UsageError

if TYPE_CHECKING:
    from typing import Literal

    from ._remote.runtime import DaemonTarget
    from ._run import LocalRuntime

_CONNECT_TIMEOUT, _CALL_TIMEOUT = 5.0, 120.0


@overload
def connect(target: Literal["local:"] = ...) -> LocalRuntime: ...


@overload
def connect(
    target: str, *, connect_timeout: float = ..., call_timeout: float = ...
) -> LocalRuntime | DaemonTarget: ...


def connect(
    target: str = "local:",
    *,
    connect_timeout: float = _CONNECT_TIMEOUT,
    call_timeout: float = _CALL_TIMEOUT,
) -> LocalRuntime | DaemonTarget:
    """Opens a runtime, to be used as a context manager.

    Args:
        target: ``local:`` traces on this machine, in this process, as root.
            ``unix:///PATH`` and ``tcp://HOST:PORT`` are daemons of the gadget service, such
            as Inspektor Gadget's, which run any gadget.
        connect_timeout: seconds to wait for a daemon's connection.
        call_timeout: seconds to wait for a daemon's answer, and for a run to start there:
            it may have an image to fetch.

    Raises:
        UsageError: the target is not a URL of a kind that igsdk knows.
        TargetUnavailable: it cannot be reached, or its kind is not built yet.
        PermissionMissing: a daemon's socket is not for us.
        AnswerInvalid: what answers is no gadget daemon.
        ExtensionMissing: ``local:``, and the native extension is not installed; or a
            daemon, and grpcio is not.
    """
    scheme, colon, rest = target.partition(":")
    if colon and scheme in ("unix", "tcp"):
        from ._remote.runtime import DaemonTarget

        return DaemonTarget(target, connect_timeout, call_timeout)
    if colon and scheme == "k8s":
        raise TargetUnavailable(
            f"This version of igsdk cannot reach {target} yet.",
            "Run it on the machine itself, with the target local:.",
        )
    if scheme != "local" or not colon or rest:
        raise UsageError(
            f"{target!r} is not a target.",
            "Use local:, which is this machine, unix:///PATH or tcp://HOST:PORT.",
        )
    from ._run import LocalRuntime

    return LocalRuntime()
