# SPDX-License-Identifier: Apache-2.0
"""What the driver's own library says of devices and processes; all None where it is absent."""

from __future__ import annotations

import importlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


@dataclass(frozen=True)
class Device:
    """A GPU, or a MIG instance of one, in the order of NVML (which need not be CUDA's)."""

    index: int
    uuid: str
    name: str
    total: int | None
    used: int | None


@dataclass(frozen=True)
class Use:
    """Bytes that one process has on one device by NVML's count, contexts included."""

    pid: int
    uuid: str
    bytes: int | None


def driver_version() -> str | None:
    """The driver's version, or None without NVML."""
    return _ask(lambda nvml: _text(nvml.nvmlSystemGetDriverVersion()))


def devices() -> list[Device] | None:
    """All devices, MIG instances instead of the GPU that they are cut from."""
    return _ask(
        lambda nvml: [_device(nvml, index, handle) for index, handle in enumerate(_handles(nvml))]
    )


def uses() -> list[Use] | None:
    """Every process on every device. Process ids are those of the host."""
    return _ask(lambda nvml: [use for handle in _handles(nvml) for use in _uses(nvml, handle)])


def used_bytes(pid: int) -> dict[str, int | None] | None:
    """Bytes of one process by device UUID; None without NVML, {} if it doesn't know it."""
    known = uses()
    return None if known is None else {use.uuid: use.bytes for use in known if use.pid == pid}


def _ask(question: Callable[[Any], T]) -> T | None:
    """Asks NVML; None if it, its library or a device is absent, or falls off the bus."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        return question(nvml)
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _handles(nvml: Any) -> Iterator[Any]:
    for index in range(nvml.nvmlDeviceGetCount()):
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        instances = list(_instances(nvml, gpu))
        yield from instances or [gpu]


def _instances(nvml: Any, gpu: Any) -> Iterator[Any]:
    try:
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
    except nvml.NVMLError:
        return
    for index in range(count):
        with suppress(nvml.NVMLError):
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)


def _device(nvml: Any, index: int, handle: Any) -> Device:
    total: int | None = None
    used: int | None = None
    with suppress(nvml.NVMLError):
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        total, used = int(memory.total), int(memory.used)
    name = _text(nvml.nvmlDeviceGetName(handle))
    return Device(index, _text(nvml.nvmlDeviceGetUUID(handle)), name, total, used)


def _uses(nvml: Any, handle: Any) -> list[Use]:
    """A process may stand in both lists, with one and the same figure."""
    found: dict[int, int | None] = {}
    for ask in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
        try:
            processes = getattr(nvml, ask)(handle)
        except nvml.NVMLError:
            continue
        for process in processes:
            found[process.pid] = process.usedGpuMemory
    uuid = _text(nvml.nvmlDeviceGetUUID(handle))
    return [Use(pid, uuid, used) for pid, used in found.items()]


def _text(value: Any) -> str:
    """Older bindings return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
