# SPDX-License-Identifier: Apache-2.0
"""Runs the command of ``igsdk record -- CMD``: held at its start, then left alone."""

from __future__ import annotations

import errno
import os
import select
import signal
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .._errors import CommandNotFound, ExtensionMissing, NotExecutable, StartFailed
from .identity import find_caller

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .identity import Identity

_REPORT = struct.Struct("=ii")  # stage, errno: struct Report of native/launch.cpp
_NAMESPACE, _IDENTITY, _EXEC = 1, 2, 3
# Python ignores these two for itself; a command starts with them at their default.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Exit:
    """How a command ended: with a code, or by a signal (then `code` is None)."""

    code: int | None
    signal: int | None = None
    core_dumped: bool = False

    @property
    def status(self) -> int:
        """What a shell would show: the code, or 128 + the signal's number."""
        return self.code if self.code is not None else 128 + (self.signal or 0)

    @classmethod
    def from_wait(cls, status: int) -> Exit:
        """Takes apart what waitpid returned."""
        if os.WIFSIGNALED(status):
            return cls(None, os.WTERMSIG(status), os.WCOREDUMP(status))
        return cls(os.WEXITSTATUS(status))


class Command:
    """One command that starts held and, once told to go, is as if nobody watched it.

    It keeps our process group, terminal, folder, umask, signal mask and inheritable
    descriptors, and gets a mount namespace of its own, with propagation unchanged, so
    that its opens can be told from everybody else's.

    Args:
        argv: the command's name, looked up in its PATH, and its arguments.
        user: name or number of the user to run as; None: under sudo the caller, else us.
        environment: instead of ours, as the one to start from.

    Raises:
        UsageError: `user` does not exist.
        StartFailed: `user` can't be taken on by us.
    """

    def __init__(
        self,
        argv: Sequence[str],
        user: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if not argv:
            raise StartFailed("There is no command to run.", "Write it behind `--`.")
        self.argv = list(argv)
        caller = find_caller(user, os.environ if environment is None else environment)
        self._identity = caller.identity
        self._environment = caller.environment
        self._pid: int | None = None
        self._pidfd = self._go = self._status = -1
        self._exit: Exit | None = None
        self._wait_lock = threading.Lock()

    @property
    def owner(self) -> Identity | None:
        """The user it runs as and to whom output files belong; None: ourselves."""
        return self._identity

    @property
    def pid(self) -> int:
        """Its process id; the command keeps it through its exec."""
        if self._pid is None:
            raise RuntimeError("the command was not prepared")
        return self._pid

    def prepare(self) -> int:
        """Forks the process that will become the command, and returns its id.

        It waits in its own mount namespace until `go` is called, or until we are gone.

        Raises:
            StartFailed: no new process, or no mount namespace.
            ExtensionMissing: the native extension is not installed.
        """
        identity = self._identity
        ids = (identity.uid, identity.gid, list(identity.groups)) if identity else None
        try:
            self._pid, self._go, self._status = _spawn(self.argv, self._environment, ids)
        except OSError as error:
            raise StartFailed(
                f"No process could be started for the command: {error.strerror}.",
                "Free memory or raise the limit of processes (ulimit -u).",
            ) from error
        try:
            self._pidfd = os.pidfd_open(self._pid)
        except OSError as error:
            self._drop_unwatched()
            raise StartFailed(
                f"The command can't be watched: pidfd_open: {error.strerror}.",
                "In a container, allow pidfd_open(2) to it.",
            ) from error
        report = os.read(self._status, _REPORT.size)
        if len(report) < _REPORT.size:
            self._abandon()
            raise StartFailed("The command was killed before its start.", "Start it again.")
        self._check(*_REPORT.unpack(report))
        return self._pid

    def go(self) -> None:
        """Lets the command run, and returns when its exec was done.

        Raises:
            CommandNotFound: there is no such program (exit code 127).
            NotExecutable: it is there and can't be executed (exit code 126).
            StartFailed: the user could not be taken on (exit code 125).
        """
        self._close("_go")
        report = os.read(self._status, _REPORT.size)
        self._close("_status")
        if report:
            self._check(*_REPORT.unpack(report))

    def wait(self, timeout: float | None = None) -> Exit | None:
        """Waits for its end, at most `timeout` seconds; None: it still runs.

        A signal handler of the caller that raises ends the waiting, not the command.
        """
        if self._exit is None and self._pidfd >= 0:
            poller = select.poll()  # select() takes no descriptor above 1023
            poller.register(self._pidfd, select.POLLIN)
            if poller.poll(None if timeout is None else timeout * 1000):
                self._reap()
        return self._exit

    def poll(self) -> Exit | None:
        """How it ended, or None while it runs."""
        return self.wait(0)

    def fileno(self) -> int:
        """A descriptor that becomes readable when the command has ended."""
        return self._pidfd

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self._exit is None and self._pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """Kills it, before or after its start, and waits until it is gone."""
        self.send_signal(signal.SIGKILL)
        self.wait()

    def close(self) -> None:
        """Gives back our descriptors. A command that was never told to go is killed: it
        goes on by itself only when we die."""
        if self._go >= 0:
            self.kill()
        for name in ("_go", "_status", "_pidfd"):
            self._close(name)

    def _reap(self) -> None:
        with self._wait_lock:
            if self._exit is None:
                _, status = os.waitpid(self.pid, 0)
                self._exit = Exit.from_wait(status)

    def _close(self, name: str) -> None:
        fd = getattr(self, name)
        if fd >= 0:
            setattr(self, name, -1)
            os.close(fd)

    def _abandon(self) -> None:
        """The process is of no use any more."""
        self.kill()
        self.close()

    def _drop_unwatched(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._reap()
        self.close()

    def _check(self, stage: int, error: int) -> None:
        if error == 0:
            return
        self._abandon()
        if stage == _EXEC:
            raise _exec_error(self.argv[0], error)
        if stage == _NAMESPACE:
            raise StartFailed(
                f"No mount namespace could be made for the command: {os.strerror(error)}.",
                "Run igsdk as root, in a container with the capability SYS_ADMIN.",
            )
        raise StartFailed(
            f"The command could not be given to another user: {os.strerror(error)}.",
            "Run igsdk as root, in a container with the capabilities SETUID and SETGID.",
        )


def _spawn(
    argv: list[str],
    environment: Mapping[str, str],
    identity: tuple[int, int, list[int]] | None,
) -> tuple[int, int, int]:
    try:
        from .._native import spawn_held
    except ImportError as error:
        raise ExtensionMissing(
            f"The native extension of igsdk is not there: {error}.",
            "Install igsdk on Linux with clang and libbpf, or from a wheel.",
        ) from error
    candidates = [os.fsencode(path) for path in _candidates(argv[0], environment)]
    variables = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
    arguments = [os.fsencode(argument) for argument in argv]
    return spawn_held(candidates, arguments, variables, identity, True, _RESTORED)


def _candidates(name: str, environment: Mapping[str, str]) -> list[str]:
    """Where the command may lie, as execvp would look it up in the environment's PATH."""
    if "/" in name:
        return [name]
    folders = environment.get("PATH", _DEFAULT_PATH).split(":")
    return [f"{folder or '.'}/{name}" for folder in folders]


def _exec_error(name: str, error: int) -> StartFailed:
    if error == errno.ENOENT and not ("/" in name and Path(name).exists()):
        return CommandNotFound(
            f"The command {name!r} was not found.", "Check its spelling, its path and PATH."
        )
    if error == errno.ENOENT:
        return NotExecutable(
            f"The interpreter that {name!r} asks for does not exist.",
            "Check the first line of the script.",
        )
    if error == errno.EACCES:
        return NotExecutable(
            f"The command {name!r} may not be executed.",
            "Check its permissions (chmod +x), and those of the folders above it.",
        )
    return NotExecutable(
        f"The command {name!r} can't be executed: {os.strerror(error)}.",
        "Check that it is a program for this machine.",
    )
