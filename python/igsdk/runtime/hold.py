# SPDX-License-Identifier: Apache-2.0
"""Lets a command go on from its open of a libcuda when the probes are on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._errors import StartFailed
from .libraries import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from .libraries import Libraries, Library

DEADLINE = 2.0  # seconds that an open waits at most


class Gate:
    """Holds each open of a libcuda in a process's mount namespace until we are ready for it.

    Ready is: the file is attached, and the process that opens it is known. So each process
    waits, though the file may be known from the one before.

    Args:
        pid: a process that has a mount namespace of its own; its opens, and those of its
            descendants there, are held.
        libraries: attaches.
        meet: is told of each process that waits, before it goes on.

    Raises:
        StartFailed: the kernel has no permission events, or we may not ask for them.
    """

    def __init__(
        self,
        pid: int,
        libraries: Libraries,
        deadline: float = DEADLINE,
        meet: Callable[[int], None] | None = None,
    ) -> None:
        from .._native import OpenHold

        self._libraries = libraries
        self._meet = meet
        try:
            self._hold = OpenHold(pid, [PREFIX], deadline)
        except OSError as error:
            raise StartFailed(
                f"The command's opens can't be held: {error.strerror}.",
                "Run igsdk as root with the capability SYS_ADMIN, on a kernel with fanotify "
                "permission events.",
            ) from error

    def fileno(self) -> int:
        """A descriptor that becomes readable when an open waits."""
        return self._hold.fileno()

    def serve(self) -> list[Library]:
        """Attaches to what waits and lets it go on; returns those libraries."""
        libraries = []
        for held in self._hold.take():
            try:
                library = self._libraries.admit_open(held)
                if self._meet:
                    self._meet(held.pid)
            finally:
                self._hold.release(held.token)
            if library is not None:
                libraries.append(library)
        return libraries

    @property
    def late(self) -> int:
        """Opens that went on before their library was attached."""
        counts = self._hold.counts()
        return counts["late"] + counts["full"]

    @property
    def unmarked(self) -> list[tuple[str, str]]:
        """(mount point, file system or error) of the mounts whose opens are not held."""
        return self._hold.unmarked()

    def close(self) -> None:
        """Lets everything go on and stops holding."""
        self._hold.close()
