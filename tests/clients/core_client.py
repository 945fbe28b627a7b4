# SPDX-License-Identifier: Apache-2.0
"""Uses cuda-core as a program would: pool, pinned and vmm buffers, one refusal.

Prints one line of JSON like bindings_client.py.
"""

from __future__ import annotations

import json
from typing import Any

from cuda.core import Device

try:  # cuda-core 1
    from cuda.core import LegacyPinnedMemoryResource, VirtualMemoryResource
except ImportError:  # before
    from cuda.core.experimental import LegacyPinnedMemoryResource, VirtualMemoryResource

MIB = 1 << 20

Moved = tuple[int, int]
"""Bytes allocated, and bytes of them that are meant to stay."""


def pool(device: Any, kept: list[Any]) -> Moved:
    """Device.allocate goes to the device's pool; one of two is given back."""
    stream = device.default_stream
    kept.append(device.allocate(3 * MIB, stream=stream))
    device.allocate(5 * MIB, stream=stream).close()
    stream.sync()
    return 8 * MIB, 3 * MIB


def pinned(kept: list[Any]) -> Moved:
    """Host memory; one of two is given back."""
    resource = LegacyPinnedMemoryResource()
    kept.append(resource.allocate(MIB))
    resource.allocate(2 * MIB).close()
    return 3 * MIB, MIB


def virtual(device: Any, kept: list[Any]) -> Moved:
    """The whole chain of virtual memory management, and back for one of two.

    cuda-core 1.2.2 retains the handle once more before it unmaps and releases it once, so
    the driver keeps both: memory that this program gave back stays in use.
    """
    resource = VirtualMemoryResource(device)
    kept.append(resource.allocate(2 * MIB))
    resource.allocate(4 * MIB).close()
    return 6 * MIB, 2 * MIB


def refused(device: Any) -> int:
    """More than any simulated or real device has."""
    wanted = 1 << 44
    try:
        device.allocate(wanted, stream=device.default_stream)
    except Exception as error:  # its class has moved between versions
        if "OUT_OF_MEMORY" not in str(error):
            raise
        return wanted
    raise AssertionError("16 TiB were given")


def main() -> None:
    device, kept = Device(0), []  # type: ignore[var-annotated]
    device.set_current()
    moved = {
        "pool": pool(device, kept),
        "pinned": pinned(kept),
        "vmm": virtual(device, kept),
    }
    allocated = {kind: bytes_[0] for kind, bytes_ in moved.items()}
    held = {kind: bytes_[1] for kind, bytes_ in moved.items()}
    print(json.dumps({"allocated": allocated, "held": held, "refused": refused(device)}))


if __name__ == "__main__":
    main()
