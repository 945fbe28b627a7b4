# SPDX-License-Identifier: Apache-2.0
"""Where an image is: in a file, in a folder, or in a registry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from igsdk.image import layout, names
from igsdk.image.registry import Registry
from igsdk.image.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Callable

    from igsdk.image.layout import Layout
    from igsdk.image.names import Reference


#: seconds to wait for a registry's next word, where nobody says how many
PATIENCE = 30.0


def is_local(image: str) -> bool:
    """Whether a file or folder is meant, and no name in a registry."""
    if not image:  # which as a path would be this folder
        return False
    return Path(image).exists() or image.startswith((".", "/")) or image.endswith(".tar")


def find_registry(
    text: str,
    plain_http: bool = False,
    timeout: float | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Registry, Reference]:
    """The repository that an image's name stands for, and the name, completed.

    Args:
        timeout: seconds to wait for the registry's next word; None: PATIENCE.
        say: told in a sentence when the registry lets us wait.

    Raises:
        UsageError: it is no image name.
    """
    reference = names.parse(text)
    transport = Transport(reference.domain, plain_http, timeout or PATIENCE, say)
    return Registry(transport, reference.repository), reference


def read(
    image: str,
    plain_http: bool = False,
    timeout: float | None = None,
    say: Callable[[str], None] = lambda _: None,
    architecture: str = "",
) -> Layout:
    """Reads an image from where it is.

    Args:
        image: a tar file, a folder, or a name in a registry.
        architecture: all that is wanted from a registry; all of them where it is empty.

    Raises:
        ImageUnreadable, UsageError, RegistryRefused, TargetUnavailable: it can't be had.
        ExtensionMissing: the packages that talk to registries are not installed.
    """
    if is_local(image):
        return layout.read(image)
    registry, reference = find_registry(image, plain_http, timeout, say)
    return registry.pull(reference, architecture)
