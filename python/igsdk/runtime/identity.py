# SPDX-License-Identifier: Apache-2.0
"""As whom a command runs, and with whose environment."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .._errors import StartFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

# What sudo tells the command that it runs about itself; none of the caller's.
_SUDO_VARIABLES = ("SUDO_COMMAND", "SUDO_GID", "SUDO_UID", "SUDO_USER", "SUDO_HOME", "SUDO_TTY")
# sudo may stand two processes above us (it forks a monitor for its own terminal);
# a wrapper script or a Python launcher may stand between.
_MAX_ANCESTORS = 8


@dataclass(frozen=True)
class Identity:
    """A user to run as: ids, supplementary groups, and the account's own entries."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str
    shell: str

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Returns `base` as that user's: HOME, USER, LOGNAME and SHELL are theirs."""
        kept = {name: value for name, value in base.items() if name not in _SUDO_VARIABLES}
        own = {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}
        return kept | own


@dataclass(frozen=True)
class Caller:
    """Whom a command is run as; `identity` None means: as ourselves, nothing is changed."""

    identity: Identity | None
    environment: dict[str, str]


def find_caller(
    user: str | None, environment: Mapping[str, str], proc: Path | None = None
) -> Caller:
    """Decides as whom to run a command.

    Without `user`: under sudo the user who called sudo, with the environment and the
    groups they had there; else ourselves. With `user`: that one.

    Raises:
        UsageError: there is no such user.
        StartFailed: we may not become that user.
    """
    proc = proc or Path("/proc")
    sudo_uid = _sudo_uid(environment)
    if user is None and sudo_uid is None:
        return Caller(None, dict(environment))
    identity = _lookup(user if user is not None else str(sudo_uid))
    _check_allowed(identity)
    if identity.uid != sudo_uid:
        return Caller(identity, identity.environment(environment))
    return _from_sudo(identity, environment, proc)


def _sudo_uid(environment: Mapping[str, str]) -> int | None:
    text = environment.get("SUDO_UID", "")
    return int(text) if text.isdecimal() and os.geteuid() == 0 else None


def _lookup(user: str) -> Identity:
    try:
        entry = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except (KeyError, OverflowError):
        raise UsageError(
            f"There is no user {user!r} on this machine.",
            "Name one that `getent passwd` shows, or leave --user away.",
        ) from None
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    shell = entry.pw_shell or "/bin/sh"
    return Identity(entry.pw_uid, entry.pw_gid, groups, entry.pw_name, entry.pw_dir, shell)


def _check_allowed(identity: Identity) -> None:
    if os.geteuid() not in (0, identity.uid):
        raise StartFailed(
            f"Only root may run a command as {identity.name}.", "Start igsdk with sudo."
        )


def _from_sudo(identity: Identity, environment: Mapping[str, str], proc: Path) -> Caller:
    """The environment and the groups as the caller had them when they typed sudo.

    sudo cleans the environment of what it starts; its own, which only root may read,
    is still the caller's. Where sudo is gone (it may replace itself by the command),
    the account's own entries have to do.
    """
    sudo = _find_sudo(proc)
    original = _read_environment(proc / str(sudo)) if sudo else None
    if sudo is None or not original:
        return Caller(identity, identity.environment(environment))
    status = _read_status(proc / str(_parent(proc, sudo)))
    groups, gid = identity.groups, identity.gid
    if status.get("Uid", "").split()[:1] == [str(identity.uid)]:
        groups = tuple(int(group) for group in status.get("Groups", "").split())
        gid = int(status["Gid"].split()[0])
    changed = Identity(identity.uid, gid, groups, identity.name, identity.home, identity.shell)
    return Caller(changed, original)


def _find_sudo(proc: Path) -> int | None:
    """The topmost of the sudo processes right above us, nearest group of them."""
    pid, found = os.getppid(), None
    for _ in range(_MAX_ANCESTORS):
        is_sudo = _read_status(proc / str(pid)).get("Name") == "sudo"
        if is_sudo:
            found = pid
        elif found is not None:
            break
        pid = _parent(proc, pid)
        if pid <= 1:
            break
    return found


def _parent(proc: Path, pid: int) -> int:
    return int(_read_status(proc / str(pid)).get("PPid", "0"))


def _read_status(process: Path) -> dict[str, str]:
    try:
        text = (process / "status").read_text(errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def _read_environment(process: Path) -> dict[str, str]:
    try:
        raw = (process / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in raw.split(b"\0") if entry)
    return {name: value for name, separator, value in pairs if separator}
