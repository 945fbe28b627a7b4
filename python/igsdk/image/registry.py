# SPDX-License-Identifier: Apache-2.0
"""Images to and from registries, byte for byte (OCI distribution specification)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode, urljoin, urlsplit, urlunsplit

from igsdk._errors import ImageUnreadable, RegistryRefused, UsageError
from igsdk.image import oci
from igsdk.image.inspection import check_whole, parsed
from igsdk.image.layout import Layout, entry_name

if TYPE_CHECKING:
    from igsdk.image.names import Reference
    from igsdk.image.transport import Answer, Transport

_INDEXES = (oci.INDEX, "application/vnd.docker.distribution.manifest.list.v2+json")
_ACCEPTED = ", ".join(
    (*_INDEXES, oci.MANIFEST, "application/vnd.docker.distribution.manifest.v2+json")
)


class Registry:
    """One repository of a registry."""

    def __init__(self, transport: Transport, repository: str) -> None:
        self._transport = transport
        self._base = f"/v2/{repository}"
        self.where = f"{transport.domain}/{repository}"

    def push(self, layout: Layout, reference: Reference) -> str:
        """Brings up an image with its signatures; the tag comes last.

        What is interrupted leaves parts without a name, which registries clean up.

        Returns:
            The digest of the index.
        """
        top = layout.image()
        self._check_wanted(reference, top["digest"])
        check_whole(layout)
        self._push_index(layout, top)
        self.push_signature(layout)
        if reference.tag:
            self._put_manifest(layout, top, reference.tag)
        return str(top["digest"])

    def _check_wanted(self, reference: Reference, digest: str) -> None:
        if reference.digest not in ("", digest):
            raise UsageError(
                f"The image is {digest}, not the one that {reference} names.",
                "Leave the digest away; it follows from the image.",
            )

    def push_signature(self, layout: Layout) -> None:
        """Brings up the signatures of an image that is there already, or soon will be."""
        wanted = signature_tag(layout.image()["digest"])
        for entry in layout.entries:
            tag = entry_name(entry).rpartition(":")[2]
            if tag == wanted:
                self._push_manifest_parts(layout, entry)
                self._put_manifest(layout, entry, tag)

    def _push_index(self, layout: Layout, top: oci.Json) -> None:
        for entry in parsed(layout, top, "index")["manifests"]:
            self._push_manifest_parts(layout, entry)
        self._put_manifest(layout, top, top["digest"])

    def _push_manifest_parts(self, layout: Layout, entry: oci.Json) -> None:
        """All blobs of a manifest, then itself under its digest."""
        manifest = parsed(layout, entry, "manifest")
        for part in (manifest["config"], *manifest["layers"]):
            self._push_blob(part["digest"], layout.blob(part))
        self._put_manifest(layout, entry, entry["digest"])

    def _push_blob(self, digest: str, data: bytes) -> None:
        ask = self._transport.ask
        if ask("HEAD", f"{self._base}/blobs/{digest}", (200, 404)).status == 200:
            return
        begun = ask("POST", f"{self._base}/blobs/uploads/", (202,), body=b"")
        place = _with_digest(begun.url, begun.headers.get("location", ""), digest)
        if not place:
            raise RegistryRefused(f"{self.where} names no place for a blob.", "Ask its owner.")
        headers = {"Content-Type": "application/octet-stream"}
        done = ask("PUT", place, (201,), headers, data)
        self._check_taken(done, digest)

    def _put_manifest(self, layout: Layout, entry: oci.Json, name: str) -> None:
        """Puts a manifest or an index under a digest or a tag."""
        path, data = f"{self._base}/manifests/{name}", layout.blob(entry)
        done = self._transport.ask("PUT", path, (201,), {"Content-Type": entry["mediaType"]}, data)
        self._check_taken(done, entry["digest"])

    def _check_taken(self, answer: Answer, digest: str) -> None:
        """A registry that took something else has to be found out before the tag."""
        said = answer.headers.get("docker-content-digest", digest)
        if said != digest:
            raise ImageUnreadable(
                f"{self.where} took {said} where {digest} was sent.",
                "Something between here and there changes data; the tag was not set.",
            )

    def pull(self, reference: Reference, architecture: str = "") -> Layout:
        """Fetches an image of all architectures, and its signature if there is one.

        Args:
            architecture: fetch the image for this one alone, without the signature.

        Raises:
            ImageUnreadable: the tag is no index, or a part has other bytes than its digest.
        """
        layout = Layout(where=str(reference))
        answer = self._get_manifest(reference.wanted, (200,))
        kind = answer.headers.get("content-type", "").partition(";")[0]
        if kind not in _INDEXES:
            raise ImageUnreadable(
                f"{reference} is no image index but {kind or 'nothing known'}.",
                "Inspektor Gadget takes an index only: build it with `igsdk gadget build`.",
            )
        top = layout.add(oci.INDEX, answer.body)
        self._check(top["digest"], reference.digest or top["digest"])
        layout.name(top, str(reference))
        for entry in parsed(layout, top, "index")["manifests"]:
            if not architecture or oci.architecture_of(entry) == architecture:
                self._pull_manifest(layout, entry)
        if not architecture:
            self._pull_signature(layout, top["digest"])
        return layout

    def _pull_manifest(self, layout: Layout, entry: oci.Json) -> None:
        data = self._get_manifest(entry["digest"], (200,)).body
        self._check(layout.add(oci.MANIFEST, data)["digest"], entry["digest"])
        manifest = parsed(layout, entry, "manifest")
        for part in (manifest.get("config"), *manifest["layers"]):
            if part and part["digest"] not in layout.blobs:
                path = f"{self._base}/blobs/{part['digest']}"
                body = self._transport.ask("GET", path, (200,)).body
                self._check(layout.add("", body)["digest"], part["digest"])

    def _pull_signature(self, layout: Layout, digest: str) -> None:
        tag = signature_tag(digest)
        answer = self._get_manifest(tag, (200, 404))
        if answer.status == 200:
            entry = oci.descriptor(oci.MANIFEST, answer.body)
            self._pull_manifest(layout, entry)
            layout.name(entry, tag)

    def _get_manifest(self, name: str, expected: tuple[int, ...]) -> Answer:
        headers = {"Accept": _ACCEPTED}
        return self._transport.ask("GET", f"{self._base}/manifests/{name}", expected, headers)

    def _check(self, got: str, wanted: str) -> None:
        if got != wanted:
            raise ImageUnreadable(
                f"{self.where} sent {got} where {wanted} was asked for.",
                "Try again; if it stays so, the registry or something on the way is damaged.",
            )


def signature_tag(digest: str) -> str:
    """Under which tag cosign's signature of a digest is kept."""
    return f"{digest.replace(':', '-')}.sig"


def _with_digest(base: str, place: str, digest: str) -> str:
    """Where the blob goes: the place that was named, which may be relative, and its digest.

    Nothing for what is no place.
    """
    try:
        parts = urlsplit(urljoin(base, place)) if place else None
    except ValueError:
        parts = None
    if parts is None:
        return ""
    query = f"{parts.query}&" if parts.query else ""
    return urlunsplit(parts._replace(query=f"{query}{urlencode({'digest': digest})}"))
