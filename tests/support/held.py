# SPDX-License-Identifier: Apache-2.0
"""Small profiles made by hand, for what becomes of them elsewhere."""

from __future__ import annotations

from typing import Any

from igsdk._events import Frame
from igsdk.profile import Profile
from igsdk.profile.metadata import Metadata

MIB = 1 << 20
MALLOC = Frame("cuMemAlloc_v2", address=0x40, mapping="/usr/lib/libcuda.so.1", build_id="ab")
FORWARD = Frame("forward", "/srv/model.py", 42, kind="python")
BACKWARD = Frame("backward", "/srv/model.py", 77, kind="python")
MAIN = Frame("main", address=0x1000, mapping="/usr/bin/serve")
NAMELESS = Frame("", address=0x1234, mapping="/opt/lib/libfast.so")


def row(
    stack: tuple[Frame, ...] = (MALLOC, FORWARD, MAIN),
    in_use: int = 0,
    allocated: int = 0,
    **labels: Any,
) -> dict[str, Any]:
    """One row; counts are one a MiB."""
    known = {"process": "serve", "kind": "device", "device": "GPU-1", "host": "own"}
    return {
        **known,
        "pid": 7,
        "start_ns": 1,
        **labels,
        "stack": stack,
        "inuse_space": in_use,
        "inuse_objects": -(-in_use // MIB),
        "alloc_space": allocated,
        "alloc_objects": -(-allocated // MIB),
        "peak_space": in_use + 1,
    }


def profile(*rows: dict[str, Any], **metadata: Any) -> Profile:
    return Profile.from_samples(rows, Metadata(**metadata))
