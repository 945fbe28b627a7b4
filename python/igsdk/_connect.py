# SPDX-License-Identifier: Apache-2.0
"""From a target's URL to the runtime that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._errors import TargetUnavailable, UsageError

if TYPE_CHECKING:
    from ._run import LocalRuntime

_LATER = ("unix", "tcp", "k8s")


def connect(target: str = "local:") -> LocalRuntime:
    """Opens a runtime, to be used as a context manager.

    Args:
        target: ``local:`` traces on this machine, in this process, as root.

    Raises:
        UsageError: the target is not a URL of a kind that igsdk knows.
        TargetUnavailable: the kind is known and not built yet.
        ExtensionMissing: ``local:``, and the native extension is not installed.
    """
    scheme, colon, rest = target.partition(":")
    if colon and scheme in _LATER:
        raise TargetUnavailable(
            f"This version of igsdk cannot reach {target} yet.",
            "Run it on the machine itself, with the target local:.",
        )
    if scheme != "local" or not colon or rest:
        raise UsageError(f"{target!r} is not a target.", "Use local:, which is this machine.")
    from ._run import LocalRuntime

    return LocalRuntime()
