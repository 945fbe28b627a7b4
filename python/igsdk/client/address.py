# SPDX-License-Identifier: Apache-2.0
"""Targets `unix:` and `tcp:` as addresses, and what can be known of them before calling."""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from pathlib import Path

from igsdk._errors import PermissionMissing, TargetUnavailable, UsageError

_TCP = re.compile(
    r"tcp:(?://)?(?P<host>\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\s:/\[\]]+):(?P<port>\d{1,5})/?"
)
#: what a socket's name may have, in bytes
_LONGEST_PATH = 107


def resolve(target: str) -> str:
    """The address in gRPC's words.

    Raises:
        UsageError: the target is none of these, or a part of it makes no sense.
        TargetUnavailable: there is no such socket, or nobody listens on it.
        PermissionMissing: the socket is not for us.
    """
    if target.startswith("unix:"):
        path = _path(target)
        _knock(path)
        return f"unix:{path}"
    found = _TCP.fullmatch(target)
    if not found or not 0 < int(found["port"]) < 65536:
        raise UsageError(f"{target!r} is not a target.", "Write tcp://HOST:PORT.")
    return f"dns:///{found['host']}:{found['port']}"


def _path(target: str) -> str:
    path = target.removeprefix("unix:")
    if path.startswith("//"):
        path = path[2:]
        if not path.startswith("/"):
            raise UsageError(f"{target!r} is not a target.", "Write unix:///PATH, with three /.")
    if not path or "\0" in path:
        raise UsageError(f"{target!r} is not a target.", "Write unix:///PATH.")
    whole = str(Path(path).absolute())
    if len(os.fsencode(whole)) > _LONGEST_PATH:
        raise UsageError(
            f"The name of the socket {whole} has more than {_LONGEST_PATH} bytes.",
            "Use a shorter one, such as a symbolic link.",
        )
    return whole


def _knock(path: str) -> None:
    """Connects once, because the system says better what is wrong than gRPC does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(5)
        try:
            probe.connect(path)
        except OSError as error:
            raise _unreachable(path, error) from error


def _unreachable(path: str, error: OSError) -> TargetUnavailable | PermissionMissing:
    if error.errno in (errno.EACCES, errno.EPERM):
        return PermissionMissing(
            f"The socket {path} is not for you.",
            f"Join the group {_group(path)}, or become root." if _group(path) else "Become root.",
        )
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return TargetUnavailable(
            f"There is no socket {path}.", "Start the daemon, or name its socket."
        )
    if not _is_socket(path):
        return TargetUnavailable(f"{path} is no socket.", "Name the daemon's socket.")
    reason = os.strerror(error.errno) if error.errno else "it does not answer"
    return TargetUnavailable(f"Nobody serves the socket {path}: {reason}.", "Start the daemon.")


def _group(path: str) -> str:
    """The group that may use the socket, where we can see that."""
    import grp

    try:
        return grp.getgrgid(Path(path).stat().st_gid).gr_name
    except (OSError, KeyError):
        return ""


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(Path(path).stat().st_mode)
    except OSError:
        return False
