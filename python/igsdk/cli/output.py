# SPDX-License-Identifier: Apache-2.0
"""Our two ways out: results on standard output, everything else on standard error.

A terminal that is gone or a pipe that nobody reads never keeps us from writing a
profile: what we say is then said to nobody, and results end with `OutputClosed`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import select
import sys
from typing import TYPE_CHECKING, Any

from igsdk._errors import OutputUnwritable

if TYPE_CHECKING:
    from igsdk._errors import IgsdkError

# What a terminal would obey: names of processes and functions are not ours.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_GONE = (errno.EPIPE, errno.EIO, errno.ENXIO, errno.EBADF)
_CLEAR = "\r\x1b[K"
#: so much of what an unforeseen error says is shown
_MESSAGE = 500


class OutputClosed(Exception):
    """Nobody reads our results any more."""


class _State:
    """Whether a progress line stands on the terminal."""

    progress = False


def prepare() -> None:
    """Makes sure that our text can always be encoded, and that 0, 1 and 2 are taken.

    A descriptor that was closed stays closed for the command: the stand-in goes at exec.
    """
    while (fd := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) < 3:
        pass
    os.close(fd)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def put(text: str, *, error: bool = False) -> None:
    """Writes a result and a newline, at once; `error` sends it to standard error.

    Raises:
        OutputClosed: nobody reads it.
        OutputUnwritable: the disk behind it is full, or the like.
    """
    clear_progress()
    stream = sys.stderr if error else sys.stdout
    try:
        stream.write(_plain(text) + "\n")
        stream.flush()
    except OSError as problem:
        _silence(2 if error else 1)
        raise _closed(problem) from problem
    except (ValueError, AttributeError):
        raise OutputClosed from None


def check(*, error: bool = False) -> None:
    """Finds out without writing whether anybody can read our results still.

    Raises:
        OutputClosed: nobody does.
    """
    poll = select.poll()
    poll.register(2 if error else 1, 0)
    if any(happened & (select.POLLERR | select.POLLHUP) for _, happened in poll.poll(0)):
        raise OutputClosed


def put_json(record: Any, *, error: bool = False) -> None:
    """Writes a result as one line of JSON; raises like `put`."""
    put(json.dumps(record, separators=(",", ":")), error=error)


def say(text: str, prefix: str = "igsdk: ") -> None:
    """Says something to the person at the terminal; never fails."""
    clear_progress()
    _to_stderr(f"{prefix}{_plain(text)}\n")


def complain(error: IgsdkError) -> None:
    """Says cause and remedy; the whole story only when it is asked for."""
    _show_traceback(error)
    say(str(error))


def report_mistake(error: Exception) -> None:
    """One line for what nobody foresaw; the traceback only when it is asked for."""
    _show_traceback(error)
    name, text = type(error).__name__, _message(error)
    say(
        f"This is a mistake in igsdk: {name}{': ' if text else ''}{text}. "
        "Please report it, with what IGSDK_TRACEBACK=1 shows."
    )


def _message(error: Exception) -> str:
    """What the error says, in one line and not without end: it may quote a whole file."""
    text = " ".join(str(error).split())
    whole = os.environ.get("IGSDK_TRACEBACK") == "1"
    return text if whole or len(text) <= _MESSAGE else f"{text[:_MESSAGE].rstrip()}…"


def _show_traceback(error: Exception) -> None:
    if os.environ.get("IGSDK_TRACEBACK") == "1":
        import traceback

        say("".join(traceback.format_exception(error)), prefix="")


def show_progress(text: str) -> None:
    """Puts a line on the terminal that the next text replaces; nothing without a terminal."""
    if is_terminal():
        _to_stderr(_CLEAR + _plain(text)[: (width(2) or 80) - 1])
        _State.progress = True


def leave_line() -> None:
    """Starts a new line behind the ^C that the terminal shows, unless ours is cleared anyway."""
    if not _State.progress:
        _to_stderr("\n")


def clear_progress() -> None:
    if _State.progress:
        _State.progress = False
        _to_stderr(_CLEAR)


def is_terminal() -> bool:
    """Whether standard error is a terminal that understands a cleared line."""
    try:
        return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    except (AttributeError, ValueError):
        return False


def flush() -> None:
    """Brings out what is buffered; raises like `put`."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as problem:
        _silence(1)
        raise _closed(problem) from problem


def _closed(problem: OSError) -> OutputClosed | OutputUnwritable:
    if problem.errno in _GONE:
        return OutputClosed()
    return OutputUnwritable(
        f"Standard output cannot be written: {problem.strerror}.",
        "Make room, or send it somewhere else."
        if problem.errno in (errno.ENOSPC, errno.EDQUOT)
        else "Send it somewhere else.",
    )


def _to_stderr(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _silence(2)
    except (ValueError, AttributeError):
        pass  # there is no standard error


def _silence(fd: int) -> None:
    """What is left in the buffer must not fail again when Python ends."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, fd)
        os.close(nowhere)


def _plain(text: str) -> str:
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def width(fd: int = 1) -> int | None:
    """Columns of the terminal behind a descriptor, None where there is none."""
    try:
        return os.get_terminal_size(fd).columns or None
    except OSError:
        return None
