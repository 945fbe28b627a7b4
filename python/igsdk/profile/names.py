# SPDX-License-Identifier: Apache-2.0
"""Names of values, labels and host classes, and the rule that keeps the classes apart."""

from __future__ import annotations

from igsdk import _abi

#: sample types in file order: (type, unit)
SAMPLE_TYPES = tuple(
    (f"{what}_{unit}", "bytes" if unit == "space" else "count")
    for what in ("inuse", "alloc", "peak", "failed")
    for unit in ("space", "objects")
)
VALUES = tuple(name for name, _ in SAMPLE_TYPES)
DEFAULT_VALUE = "inuse_space"

#: string labels, as files have them, and numeric ones
FILE_LABELS = ("process", "kind", "device", "node", "namespace", "pod", "container")
NUMBERS = ("pid", "start_ns")
#: in memory `host` stands beside them
LABELS = (*FILE_LABELS, "host")

#: classes of host_raw, and those that a process allocated itself
HOSTS = _abi.HOSTS
ALLOCATED = ("own", "pinned", "managed", "")
#: the device label of memory that lies on the host
HOST_DEVICE = "host"

_BY_KIND = {
    "pinned": "pinned",
    "registered": "registered",
    "imported": "imported",
    "managed": "managed",
}


def implied_host(kind: str, device: str) -> str:
    """The host class that a file's ``kind`` and ``device`` labels say.

    vmm and pool memory may lie on the host: then their device label is ``host``. So
    files need no label for the class; the rare row that breaks the rule (a pool of
    managed memory) carries an extra label ``host``.
    """
    if kind in _BY_KIND:
        return _BY_KIND[kind]
    if device == HOST_DEVICE:
        return "pinned"
    return "own" if kind else ""


def device_label(host: int, name: str) -> str:
    """``host`` for memory that lies there whatever context was current, else the device."""
    return HOST_DEVICE if HOSTS[host : host + 1] in (("pinned",), ("registered",)) else name
