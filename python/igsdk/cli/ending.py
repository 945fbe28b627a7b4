# SPDX-License-Identifier: Apache-2.0
"""Ends this process, as the user's command ended where there was one."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, NoReturn, Union

from igsdk.runtime.launch import Exit

if TYPE_CHECKING:
    from typing import TypeAlias

Ending: TypeAlias = Union[int, Exit]  # noqa: UP007 - evaluated by CPython 3.10 too


def killed_by(number: int) -> Exit:
    """The ending of a process that dies by this signal."""
    return Exit(None, number)


def leave(ending: Ending) -> NoReturn:
    """Ends this process; by the same signal where a signal ended the command."""
    if isinstance(ending, Exit) and ending.signal:
        _die(ending.signal)
    sys.exit(ending.status if isinstance(ending, Exit) else ending)


def _die(number: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    _forbid_core_dump()
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(OSError, ValueError):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    # The first process of a PID namespace cannot die by its own signals.
    os._exit(128 + number)


def _forbid_core_dump() -> None:
    """The command has left its core already; ours would overwrite it and says nothing."""
    import ctypes

    set_dumpable = 4
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(set_dumpable, 0, 0, 0, 0)
