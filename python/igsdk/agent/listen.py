# SPDX-License-Identifier: Apache-2.0
"""Where the agent listens: sockets that are nobody else's, with the rights asked for."""

from __future__ import annotations

import errno
import fcntl
import grp
import os
import re
import socket
import ssl
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from igsdk._errors import ListenFailed, UsageError

if TYPE_CHECKING:
    import grpc

_TCP = re.compile(r"tcp:(?://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(?P<port>\d{1,5})/?")
_LOOPBACK = re.compile(r"127(?:\.\d{1,3}){3}|\[::1\]|localhost")
_LONGEST_PATH = 107


@dataclass(frozen=True)
class TLS:
    """Files with the server's certificate and key, and the authority of its clients."""

    cert: str
    key: str
    client_ca: str


@dataclass(frozen=True)
class Access:
    """Whose a socket is: a group's name or number, None: our own; and the file's rights."""

    group: str | None = None
    mode: int = 0o660


def port_of(target: str, tls: TLS | None) -> tuple[str, int]:
    """Host and port of a ``tcp:`` target.

    Raises:
        UsageError: it is none, or others than this machine could reach it without TLS.
    """
    found = _TCP.fullmatch(target)
    if not found or int(found["port"]) > 65535:
        raise UsageError(
            f"{target!r} is no place to listen at.", "Write unix:PATH or tcp://HOST:PORT."
        )
    if tls is None and not _LOOPBACK.fullmatch(found["host"]):
        raise UsageError(
            f"Everybody who reaches {found['host']} could read what the agent sees.",
            "Listen at 127.0.0.1, or give --tls-cert, --tls-key and --tls-client-ca.",
        )
    return found["host"], int(found["port"])


def listen_tcp(server: grpc.Server, target: str, tls: TLS | None) -> str:
    """Listens at ``HOST:PORT``; returns the target with the port that it is.

    Raises:
        UsageError: as `port_of`.
        ListenFailed: the port is taken, or the name is not this machine's.
    """
    host, number = port_of(target, tls)
    address = f"{host}:{number}"
    try:
        if tls:
            port = server.add_secure_port(address, _credentials(tls))
        else:
            port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ListenFailed(
            f"igsdk agent can't listen at {address}.",
            "Use a port that is free, of an address that this machine has.",
        ) from error
    return f"{'tcp+tls' if tls else 'tcp'}://{host}:{port}"


def _credentials(tls: TLS) -> grpc.ServerCredentials:
    import grpc

    cert, key, authority = map(_read, (tls.cert, tls.key, tls.client_ca))
    for name, text in ((tls.cert, cert), (tls.key, key), (tls.client_ca, authority)):
        if b"-----BEGIN " not in text:
            raise UsageError(f"{name} has no certificate or key in it.", "Give a PEM file.")
    _check_pair(tls)
    return grpc.ssl_server_credentials([(key, cert)], authority, require_client_auth=True)


def _check_pair(tls: TLS) -> None:
    """gRPC says of files that it can't use no more than that it does not listen."""
    name = f"{tls.cert} and {tls.key}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.cert, tls.key, "")
        name = tls.client_ca
        context.load_verify_locations(tls.client_ca)
    except (OSError, ValueError) as error:  # of which ssl's are
        raise UsageError(
            f"TLS can't use {name}: {getattr(error, 'reason', None) or 'damaged'}.",
            "Give a certificate, its own key without a password, and an authority.",
        ) from error


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.", "Check its name.") from error


class Socket:
    """A unix socket's file, from the check that it is free to its removal.

    Nobody can connect before the file has its owner and rights: until then it is ours alone.

    Args:
        target: ``unix:PATH``.
        access: whose it is to be.

    Raises:
        UsageError: the name is none, is too long, or there is no such group.
        ListenFailed: somebody listens there already, something else has this name, or the
            folder is not there or not for us.
    """

    def __init__(self, target: str, access: Access) -> None:
        self.path = _path(target)
        self._access = access
        self._group = _group(access.group)
        self._inode: int | None = None
        self._lock = _lock(self.path)
        try:
            _make_free(self.path)
        except BaseException:
            self._unlock()
            raise

    def listen(self, server: grpc.Server) -> str:
        """Binds it; returns the target."""
        before = os.umask(0o177)  # from its first moment on it is nobody else's
        try:
            # gRPC takes a % for the beginning of another character
            server.add_insecure_port(f"unix:{self.path}".replace("%", "%25"))
            self._give()
        except (RuntimeError, OSError) as error:
            raise ListenFailed(
                f"igsdk agent can't listen at {self.path}{_reason(error)}.",
                "Use another folder; a group that is not ours takes root.",
            ) from error
        finally:
            os.umask(before)
        return f"unix://{self.path}"

    def _give(self) -> None:
        """Owner and rights, of this very file: who may write to the folder might put a link in
        its place, and have us change what that leads to.
        """
        file = os.open(self.path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(file)
            if not stat.S_ISSOCK(found.st_mode):
                raise OSError(errno.ENOTSOCK, "somebody put something else there")
            here = Path(f"/proc/self/fd/{file}")
            if self._group is not None:
                os.chown(here, -1, self._group)
            here.chmod(self._access.mode)
            self._inode = found.st_ino
        finally:
            os.close(file)

    def close(self) -> None:
        """Removes the file if it is still ours; may be called again."""
        with suppress(OSError):
            if self._inode is not None and self.path.lstat().st_ino == self._inode:
                self.path.unlink()
        self._inode = None
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            with suppress(OSError):
                _lock_path(self.path).unlink()
            os.close(self._lock)
        self._lock = -1


def _reason(error: Exception) -> str:
    return f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""


def _path(target: str) -> Path:
    name = target.removeprefix("unix:")
    name = name[2:] if name.startswith("//") else name
    if not name or "\0" in name or name.endswith("/"):
        raise UsageError(f"{target!r} names no socket.", "Write unix:PATH.")
    path = Path(name).absolute()
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise UsageError(
            f"The name of the socket {path} has more than {_LONGEST_PATH} bytes.",
            "Use a shorter one.",
        )
    return path


def _group(name: str | None) -> int | None:
    if name is None:
        return None
    try:
        return int(name) if name.isdigit() else grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise UsageError(
            f"There is no group {name!r}.", "Make it (groupadd), or name another one."
        ) from error


def _lock_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def _lock(path: Path) -> int:
    """Of two agents that start at once, one gets the name."""
    while True:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            file = os.open(_lock_path(path), flags, 0o600)
        except OSError as error:
            raise _no_folder(path, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_ino == _lock_path(path).stat().st_ino:
                return file
        except FileNotFoundError:
            pass  # its owner removed it on leaving
        except OSError as error:
            os.close(file)
            raise _taken(path) from error
        os.close(file)


def _no_folder(path: Path, error: OSError) -> ListenFailed:
    if error.errno == errno.ENOENT:
        return ListenFailed(
            f"There is no folder {path.parent}.", "Make it first, or name another one."
        )
    return ListenFailed(
        f"igsdk agent can't make files in {path.parent}: {error.strerror}.", "Name another folder."
    )


def _taken(path: Path) -> ListenFailed:
    return ListenFailed(
        f"Somebody listens at {path} already.", "End that daemon first, or name another socket."
    )


def _make_free(path: Path) -> None:
    """Removes the socket of a daemon that is dead."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise _no_folder(path, error) from error
    if not stat.S_ISSOCK(mode):
        raise ListenFailed(f"{path} is there and is no socket.", "Name another one.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _taken(path) from error
        else:
            raise _taken(path)
