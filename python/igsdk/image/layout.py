# SPDX-License-Identifier: Apache-2.0
"""OCI image layouts: a folder, or the same in an uncompressed tar file.

What `ig image import` takes and what skopeo calls `oci:` and `oci-archive:`. Gadget
images are small, so a layout is held in memory whole; every blob that is read is
compared with its digest.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from igsdk._errors import ImageUnreadable, UsageError
from igsdk.image import oci
from igsdk.profile.store import beside, unwritable, write_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

_VERSION = b'{"imageLayoutVersion":"1.0.0"}'
_LARGEST = 1 << 28
_REBUILD = "Build it again with `igsdk gadget build`, or copy it again."


@dataclass
class Layout:
    """Blobs by digest, and the descriptors of those that have names."""

    entries: list[oci.Json] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    where: str = "the image"

    def add(self, media_type: str, data: bytes, **more: Any) -> oci.Json:
        """Takes a blob in; returns its descriptor."""
        described = oci.descriptor(media_type, data, **more)
        self.blobs[described["digest"]] = data
        return described

    def name(self, descriptor: oci.Json, name: str) -> None:
        """Gives a document a name, which an older one of that name loses."""
        self.entries = [entry for entry in self.entries if entry_name(entry) != name]
        annotations = {**descriptor.get("annotations", {}), oci.REF_NAME: name}
        self.entries.append({**descriptor, "annotations": annotations})
        self.entries.sort(key=lambda entry: (entry["digest"], entry_name(entry)))

    def blob(self, descriptor: oci.Json) -> bytes:
        """The bytes that a descriptor stands for.

        Raises:
            ImageUnreadable: they are missing, or not those of that digest.
        """
        digest = str(descriptor.get("digest"))
        data = self.blobs.get(digest)
        if data is None:
            raise ImageUnreadable(f"{self.where} lacks {digest}.", _REBUILD)
        if oci.digest_of(data) != digest:
            raise ImageUnreadable(f"{self.where} has other bytes than those of {digest}.", _REBUILD)
        return data

    def image(self) -> oci.Json:
        """The descriptor of the one image in it; signatures are none.

        Raises:
            ImageUnreadable: there is none, or there are several.
        """
        found = [entry for entry in self.entries if entry.get("mediaType") == oci.INDEX]
        if len({entry["digest"] for entry in found}) == 1:
            return found[0]
        raise ImageUnreadable(
            f"{self.where} holds {len(found) or 'no'} image indexes; a gadget's image is one.",
            _REBUILD,
        )


def modified(layout: Layout) -> int:
    """When an image was made, in seconds since 1970; 0 where it does not say."""
    notes = json.loads(layout.blob(layout.image())).get("annotations") or {}
    try:
        made = datetime.fromisoformat(str(notes.get(oci.CREATED)).replace("Z", "+00:00"))
    except ValueError:
        return 0
    return max(0, int(made.timestamp()))


def entry_name(entry: oci.Json) -> str:
    """The name that an entry of index.json has, or nothing."""
    return str((entry.get("annotations") or {}).get(oci.REF_NAME, ""))


def files(layout: Layout) -> Iterator[tuple[str, bytes]]:
    """Path and content of all that a layout consists of; what lists the others comes last."""
    yield "oci-layout", _VERSION
    for digest, data in sorted(layout.blobs.items()):
        yield f"blobs/{digest.replace(':', '/')}", data
    listed = {"schemaVersion": 2, "mediaType": oci.INDEX, "manifests": layout.entries}
    yield "index.json", oci.encode(listed)


def is_folder(path: str) -> bool:
    """Whether a layout goes into a folder of that name, and not into a tar file."""
    return path.endswith("/") or Path(path).is_dir()


def write(layout: Layout, path: str, modified: int) -> None:
    """Writes it whole or not at all; what was there stays until then.

    Args:
        path: a folder where it exists or ends with a slash, else a tar file.
        modified: seconds since 1970, for the members of a tar file.

    Raises:
        UsageError: a folder holds something else.
        OutputUnwritable: the place cannot be written to.
    """
    if is_folder(path):
        _write_folder(layout, Path(path))
    else:
        write_bytes(path, _tar(layout, modified))


def _tar(layout: Layout, modified: int) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in files(layout):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(data), modified, 0o644
            tar.addfile(member, io.BytesIO(data))
    return archive.getvalue()


def _write_folder(layout: Layout, folder: Path) -> None:
    """A new folder takes its name when it is whole; in one that is there index.json is last."""
    target = Path(os.path.realpath(folder))
    with unwritable(folder, "folder"):
        if target.is_dir():
            _replace_content(layout, target, folder)
            return
        fresh = beside(target)
        try:
            fresh.mkdir()
            for name, data in files(layout):
                (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                (fresh / name).write_bytes(data)
            fresh.rename(target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _replace_content(layout: Layout, target: Path, folder: Path) -> None:
    """Whoever reads it meanwhile, and whenever this is killed: the old image or the new one."""
    if any(target.iterdir()) and not (target / "oci-layout").is_file():
        raise UsageError(
            f"{folder} holds other files than an image.", "Name an empty or a new folder with -o."
        )
    made = dict(files(layout))
    for name, data in made.items():
        path = target / name
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, data)
    for old in target.glob("blobs/*/*"):
        if str(old.relative_to(target)) not in made:
            old.unlink()


def _remedy_for(path: str) -> str:
    if (Path(path) / "gadget.yaml").is_file():
        return f"It is a gadget's source: `igsdk gadget build {path} -o FILE` makes the image."
    return _REBUILD


def read(path: str) -> Layout:
    """Reads a folder or a tar file.

    Raises:
        ImageUnreadable: it is neither, is cut short, or has no index.
    """
    try:
        found = _from_folder(Path(path)) if Path(path).is_dir() else _from_tar(path)
        listed = json.loads(found["index.json"])
        entries = [dict(entry) for entry in listed["manifests"]]
        if not all(map(oci.is_descriptor, entries)):
            raise TypeError
    except OSError as error:
        cause = f"{path} cannot be read: {error.strerror or error}."
        raise ImageUnreadable(cause, "Check the path and its permissions.") from error
    except tarfile.TarError as error:
        raise ImageUnreadable(f"{path} is no tar file, or is cut short.", _REBUILD) from error
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        cause = f"{path} is no OCI image: it has no index.json that lists manifests."
        raise ImageUnreadable(cause, _remedy_for(path)) from error
    blobs = {
        ":".join(name.split("/")[1:]): data
        for name, data in found.items()
        if name.startswith("blobs/") and name.count("/") == 2
    }
    return Layout(entries, blobs, path)


def _from_folder(folder: Path) -> dict[str, bytes]:
    names = ["index.json", *(str(p.relative_to(folder)) for p in folder.glob("blobs/*/*"))]
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}


def _from_tar(path: str) -> dict[str, bytes]:
    found = {}
    with tarfile.open(path, mode="r:") as tar:
        for member in tar:
            data = tar.extractfile(member) if member.isfile() else None
            if data is not None and member.size <= _LARGEST:
                found[member.name.removeprefix("./")] = data.read()
    return found
