# SPDX-License-Identifier: Apache-2.0
"""Profiles in files: whole or not there, and never lost because a folder is full."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tempfile
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from igsdk._errors import OutputUnwritable, ProfileUnreadable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from igsdk.profile.profile import Profile

SUFFIXES = (".pb.gz", ".folded", ".json")
Owner = tuple[int, int] | None


def write(profile: Profile, path: str | PathLike[str], owner: Owner = None) -> None:
    """See :meth:`Profile.write`."""
    encode = _encoder(path)
    write_bytes(path, encode(profile), owner)


def read(path: str | PathLike[str]) -> Profile:
    """See :meth:`Profile.read`."""
    name = fspath(path)
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        cause = f"{name} cannot be read: {error.strerror or error}."
        raise ProfileUnreadable(cause, "Check the path and its permissions.") from error
    if not data:
        raise ProfileUnreadable(f"{name} is empty.", "Record again, or copy the file again.")
    if data.lstrip()[:1] == b"{":
        from igsdk.profile.formats import from_json

        return from_json(data, name)
    from igsdk.profile.pprof_read import decode

    return decode(data, name)


def check_output(path: str | PathLike[str]) -> None:
    """Find out before a run whether its profile can be written there.

    Raises:
        UsageError: the suffix stands for no format.
        OutputUnwritable: the folder is missing or cannot be written to.
    """
    _encoder(path)
    target = Path(os.path.realpath(path))
    with unwritable(path):
        if _is_special(target):
            return
        trial = beside(target)
        os.close(os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        trial.unlink()


def write_or_rescue(
    profile: Profile, path: str | PathLike[str], owner: Owner = None
) -> tuple[Path, OutputUnwritable | UsageError | None]:
    """Write to ``path``, or where that fails to a temporary folder: nothing collected is lost.

    Returns:
        Where the profile stands now, and why it is not at ``path`` (None if it is).

    Raises:
        OutputUnwritable: no temporary folder can be written to either.
    """
    try:
        write(profile, path, owner)
    except (OutputUnwritable, UsageError) as error:
        return _rescue(profile, path, owner, error), error
    return Path(path), None


def _rescue(
    profile: Profile,
    path: str | PathLike[str],
    owner: Owner,
    error: OutputUnwritable | UsageError,
) -> Path:
    """Try the usual places; under a name that we can write in any case."""
    name = Path(path).name
    known = name.endswith(SUFFIXES) and not name.startswith(".")
    for root in (tempfile.gettempdir(), "/var/tmp", str(Path.home()), "/dev/shm"):  # noqa: S108
        with contextlib.suppress(OSError, OutputUnwritable):
            folder = Path(tempfile.mkdtemp(prefix="igsdk-", dir=root))
            if owner:
                os.chown(folder, *owner)
            target = folder / (name if known else "igsdk.pb.gz")
            write(profile, target, owner)
            return target
    if isinstance(error, OutputUnwritable):
        raise error
    raise OutputUnwritable(
        "No temporary folder can be written to.", "Make room on a disk and record again."
    )


def _encoder(path: str | PathLike[str]) -> Callable[[Profile], bytes]:
    """The function that makes the bytes, by suffix; loaded here since protobuf is heavy."""
    name = fspath(path)
    if name.endswith(".pb.gz"):
        from igsdk.profile.pprof_write import encode

        return encode
    if name.endswith((".folded", ".json")):
        from igsdk.profile import formats

        return formats.to_folded if name.endswith(".folded") else formats.to_json
    if name.endswith(".html"):
        raise UsageError(
            "This version of igsdk does not write .html pages yet.",
            "Write a .pb.gz file and open it with `go tool pprof -http`.",
        )
    known = ", ".join(SUFFIXES)
    raise UsageError(f"{name} has no suffix that stands for a format.", f"Use one of {known}.")


def write_bytes(path: str | PathLike[str], data: bytes, owner: Owner = None) -> None:
    """Put bytes into a file at once: a new file beside it, synced, takes its name.

    A link is followed, and what is not a file (a pipe, /dev/stdout) is written to as it is.

    Raises:
        OutputUnwritable: nothing of it is left then.
    """
    target = Path(os.path.realpath(path))
    with unwritable(path):
        if _is_special(target):
            with target.open("wb") as special:
                special.write(data)
            return
        _replace(target, data, owner)


def _replace(target: Path, data: bytes, owner: Owner) -> None:
    part = beside(target)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(part, flags, 0o666), "wb") as file:  # noqa: PTH123
        try:
            if owner:
                os.fchown(file.fileno(), *owner)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name last, where the file system can; the content is safe already."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def beside(target: Path) -> Path:
    """A new name in the same folder, for what shall take the place of `target` at once."""
    return target.with_name(f".igsdk-{secrets.token_hex(6)}.part")


def _is_special(target: Path) -> bool:
    """Whether there is something that is no file and must not be replaced by one."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(None, "it is a folder")
    return not stat.S_ISREG(mode)


@contextlib.contextmanager
def unwritable(path: str | PathLike[str], what: str = "file") -> Iterator[None]:
    """Turns the system's errors into ours: OutputUnwritable of a file, or of a folder."""
    try:
        yield
    except FileNotFoundError as error:
        cause = f"The folder {Path(path).parent} does not exist."
        raise OutputUnwritable(cause, "Create it, or name another with -o.") from error
    except OSError as error:
        cause = f"{fspath(path)} cannot be written: {error.strerror or error}."
        raise OutputUnwritable(cause, f"Make room, or name another {what} with -o.") from error
