# SPDX-License-Identifier: Apache-2.0
"""Which code holds the memory of your GPU: the lines of Python that asked, and all that called.

>>> import igsdk
>>> with igsdk.connect("local:") as gpu:
...     with gpu.profile_cuda_memory(argv=["python", "train.py"]) as run:
...         run.command.wait()
>>> print(run.profile().shown().asked().top(10, by="line"))

Everything is imported at first use, so that importing the package costs next
to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ._version import __version__

if TYPE_CHECKING:
    from ._connect import connect
    from ._errors import (
        AnswerInvalid,
        CommandNotFound,
        ExtensionMissing,
        GadgetInvalid,
        IgsdkError,
        ImageUnreadable,
        KernelUnsupported,
        LibraryUnusable,
        ListenFailed,
        NotExecutable,
        OutputUnwritable,
        PermissionMissing,
        ProfileUnreadable,
        PushRefused,
        RegistryRefused,
        RunRefused,
        StartFailed,
        TargetUnavailable,
        UsageError,
    )
    from ._events import Event
    from .client.columns import Columns
    from .client.gadget import Gadget
    from .client.rows import Row
    from .client.tls import TLS
    from .profile import Profile
    from .sinks.pyroscope import Pyroscope

__all__ = [
    "TLS",
    "AnswerInvalid",
    "Columns",
    "CommandNotFound",
    "Event",
    "ExtensionMissing",
    "Gadget",
    "GadgetInvalid",
    "IgsdkError",
    "ImageUnreadable",
    "KernelUnsupported",
    "LibraryUnusable",
    "ListenFailed",
    "NotExecutable",
    "OutputUnwritable",
    "PermissionMissing",
    "Profile",
    "ProfileUnreadable",
    "PushRefused",
    "Pyroscope",
    "RegistryRefused",
    "Row",
    "RunRefused",
    "StartFailed",
    "TargetUnavailable",
    "UsageError",
    "__version__",
    "connect",
]

#: name -> module that has it; what is not here is an error and lives in _errors
_HOMES = {
    "Columns": ".client.columns",
    "Event": "._events",
    "Gadget": ".client.gadget",
    "Profile": ".profile",
    "Pyroscope": ".sinks.pyroscope",
    "Row": ".client.rows",
    "TLS": ".client.tls",
    "connect": "._connect",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_HOMES.get(name, "._errors"), __name__)
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
