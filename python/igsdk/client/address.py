# SPDX-License-Identifier: Apache-2.0
"""Targets `unix:`, `tcp:` and `tcp+tls:` as addresses, and who may use a socket."""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from igsdk._errors import PermissionMissing, TargetUnavailable, UsageError
from igsdk.client.tls import TLS, from_query

_TCP = re.compile(
    r"tcp(?P<tls>\+tls)?:(?://)?(?P<host>\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\s:/\[\]?]+)"
    r":(?P<port>\d{1,5})/?(?:\?(?P<query>.*))?"
)
#: what a socket's name may have, in bytes
_LONGEST_PATH = 107


@dataclass(frozen=True)
class Address:
    """Where a daemon is.

    Attributes:
        shown: the target for messages, without what stands behind its ?.
        grpc: the same in gRPC's words.
        path: of a unix socket; empty for TCP.
        host, port: of TCP.
        tls: how it shows who it is; None: not at all.
    """

    shown: str
    grpc: str
    path: str = ""
    host: str = ""
    port: int = 0
    tls: TLS | None = None


def parse(target: str, tls: TLS | bool | None = None) -> Address:
    """Reads a target, without asking anybody.

    Args:
        tls: how to know each other; True: by this system's authorities. For `tcp:`; a
            `tcp+tls:` target says it itself.

    Raises:
        UsageError: the target is none of these, or a part of it makes no sense.
    """
    if target.startswith("unix:"):
        if tls:
            raise UsageError("A unix socket has no TLS.", "Leave tls away.")
        path = _path(target)
        return Address(target, f"unix:{path}", path)
    found = _TCP.fullmatch(target)
    if not found or not 0 < int(found["port"]) < 65536:
        raise UsageError(
            f"{target!r} is not a target.",
            "Write tcp://HOST:PORT, or tcp+tls://HOST:PORT?ca=FILE&cert=FILE&key=FILE.",
        )
    host, port = found["host"], int(found["port"])
    shown = f"tcp{found['tls'] or ''}://{host}:{port}"
    settled = _settle(found, target, tls)
    return Address(shown, f"dns:///{host}:{port}", "", host.strip("[]"), port, settled)


def _settle(found: re.Match[str], target: str, tls: TLS | bool | None) -> TLS | None:
    if found["query"] and not found["tls"]:
        raise UsageError(f"{target!r} is not a target.", "With ?, write tcp+tls://HOST:PORT?…")
    if found["query"] and isinstance(tls, TLS):
        raise UsageError(f"{target} and tls say different things.", "Use one of the two.")
    if isinstance(tls, TLS):
        return tls
    return from_query(found["query"] or "", target) if found["tls"] or tls else None


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


def knock_socket(path: str) -> None:
    """Connects once, because the system says better what is wrong than gRPC does.

    Raises:
        TargetUnavailable: there is no such socket, or nobody listens on it.
        PermissionMissing: it is not for us.
    """
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
            _how_to_be_let_in(_group(path)),
        )
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return TargetUnavailable(
            f"There is no socket {path}.", "Start the daemon, or name its socket."
        )
    if not _is_socket(path):
        return TargetUnavailable(f"{path} is no socket.", "Name the daemon's socket.")
    reason = os.strerror(error.errno) if error.errno else "it does not answer"
    return TargetUnavailable(f"Nobody serves the socket {path}: {reason}.", "Start the daemon.")


def _how_to_be_let_in(group: str) -> str:
    if group in ("", "root", "wheel"):
        return "Become root, or have the daemon started with a group that you are in (--group)."
    return f"Join the group {group}, or become root."


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
