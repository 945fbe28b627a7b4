# SPDX-License-Identifier: Apache-2.0
"""Names of devices that mean the same in every process.

An ordinal is each process's own view (``CUDA_VISIBLE_DEVICES``, containers, MIG). The
UUID is not: a process that asked the driver for it was told; else, with one GPU in the
machine, NVML's only device it is. A process that ran before us and never said which
device it uses may have exactly one device file open: then that one is inferred.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from .. import _abi
from . import nvml

if TYPE_CHECKING:
    from collections.abc import Mapping

Names = dict[tuple[int | None, int], str]


def device_names(told: bytes, processes: Any, files: Mapping[int, frozenset[str]]) -> Names:
    """(process instance or None, ordinal) -> name.

    Args:
        told: rows of dtype ``device``, what processes were told.
        processes: rows of dtype ``process``.
        files: process instance -> its open device files.
    """
    known = nvml.devices() or []
    names: Names = {(None, 0): known[0].uuid} if len(known) == 1 else {}
    names.update(_inferred(processes, files, [device.uuid for device in known]))
    names.update(_told(told, processes, [device.uuid for device in known]))
    return names


def _told(raw: bytes, processes: Any, known: list[str]) -> Names:
    import numpy as np

    instances = dict(zip(processes["number"].tolist(), processes["instance"].tolist(), strict=True))
    rows = np.frombuffer(raw, _abi.dtype("device"))
    return {
        (instances[int(row["process"])], int(row["ordinal"])): _spelled(bytes(row["uuid"]), known)
        for row in rows
        if int(row["process"]) in instances
    }


def _spelled(raw: bytes, known: list[str]) -> str:
    """As NVML spells it, which tells a MIG instance from a whole GPU."""
    text = str(uuid.UUID(bytes=raw))
    return next((name for name in known if name.endswith(text)), f"GPU-{text}")


def _inferred(processes: Any, files: Mapping[int, frozenset[str]], known: list[str]) -> Names:
    names: Names = {}
    for row in processes[processes["late"] != 0]:
        open_files = files.get(int(row["instance"]), frozenset())
        if len(open_files) == 1:
            (path,) = open_files
            number = int(path.removeprefix("/dev/nvidia"))
            name = known[number] if number < len(known) else path
            names[int(row["instance"]), -1] = f"{name} (inferred)"
    return names
