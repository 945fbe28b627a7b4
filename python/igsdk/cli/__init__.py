# SPDX-License-Identifier: Apache-2.0
"""The command line: each verb is a few lines over the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and ends this process; the entry point of `igsdk`.

    The imports stand in here, so that a ctrl-C among them ends us without a traceback.
    """
    try:
        from igsdk.cli import app

        app.main(arguments)
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None
