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


def pool(device: Any, kept: list[Any]) -> int:
    """Device.allocate goes to the device's pool; one of two is given back."""
    stream = device.default_stream
    kept.append(device.allocate(3 * MIB, stream=stream))
    device.allocate(5 * MIB, stream=stream).close()
    stream.sync()
    return 3 * MIB


def pinned(kept: list[Any]) -> int:
    """Host memory; one of two is given back."""
    resource = LegacyPinnedMemoryResource()
    kept.append(resource.allocate(MIB))
    resource.allocate(2 * MIB).close()
    return MIB


def virtual(device: Any, kept: list[Any]) -> int:
    """The whole chain of virtual memory management, and back for one of two."""
    resource = VirtualMemoryResource(device)
    kept.append(resource.allocate(2 * MIB))
    resource.allocate(4 * MIB).close()
    return 2 * MIB


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
    held = {
        "pool": pool(device, kept),
        "pinned": pinned(kept),
        "vmm": virtual(device, kept),
    }
    print(json.dumps({"held": held, "refused": refused(device)}), flush=True)


if __name__ == "__main__":
    main()
