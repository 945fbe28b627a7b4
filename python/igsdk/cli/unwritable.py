# SPDX-License-Identifier: Apache-2.0
"""Why a profile can't be written, with the remedy that fits."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

from igsdk._errors import OutputUnwritable

if TYPE_CHECKING:
    from igsdk._errors import IgsdkError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def explained(error: IgsdkError, path: str) -> IgsdkError:
    """The same error with the remedy that its cause asks for; others as they are."""
    system = error.__cause__
    if not isinstance(error, OutputUnwritable) or not isinstance(system, OSError):
        return error
    if system.errno == errno.ENOENT:
        return _without_place(error, Path(path).parent)
    remedy = "Make room there, or name another file with -o."
    if system.errno not in _FULL:
        remedy = "Name a file elsewhere with -o."
    if system.errno in (errno.EACCES, errno.EPERM):
        remedy = "Name a file with -o in a folder that you may write to."
    return OutputUnwritable(error.cause, remedy)


def _without_place(error: IgsdkError, folder: Path) -> IgsdkError:
    """The folders of /proc and /sys say of a new file that it does not exist."""
    if not folder.exists():
        return error
    return OutputUnwritable(f"The folder {folder} takes no files.", "Name another with -o.")
