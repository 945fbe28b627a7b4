# SPDX-License-Identifier: Apache-2.0
"""What a client wants of a run: its parameters, described, read and refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk import _abi
from igsdk._errors import RunRefused
from igsdk._proto import gadget_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

IMAGE = "profile_cuda_memory"
_PREFIX = "operator.oci.ebpf."
_NOBODY = 0xFFFF_FFFF
_SHORTEST, _LONGEST = 0.1, 60.0  # longer, and what has ended would be missed
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_NAME = re.compile(r"(?:[^\s@]*/)?profile_cuda_memory(?::[^\s@/]*)?(?:@[^\s/]*)?")
# Of images and of clients' own operators: there is nothing to do about them here.
_PASSED_OVER = re.compile(
    r"operator\.oci\.(pull|annotate|validate-metadata|verify-image|[a-z-]+)$"
    r"|operator\.(sort|limiter|filter|cli|combiner|otel-[a-z]+|logs|formatters|ustack)\."
    r"|operator\.(KubeManager\.all-namespaces|LocalManager\.host)$|runtime\.|custom\."
)
_CONTAINERS = re.compile(r"operator\.(KubeManager|LocalManager)\.")


@dataclass(frozen=True)
class Wanted:
    """Which processes and events one run is about, and how often its rows come.

    Attributes:
        pid, uid, gid, mntns: only processes with this number; None: all.
        comm: only processes of this name.
        events: all, failures or none.
        interval: seconds between packets of what changed.
    """

    pid: int | None = None
    uid: int | None = None
    gid: int | None = None
    mntns: int | None = None
    comm: str = ""
    events: str = "failures"
    interval: float = 1.0

    @property
    def everything(self) -> bool:
        """Whether no process is left out."""
        return not self.comm and all(value is None for value in self._numbers().values())

    def _numbers(self) -> dict[str, int | None]:
        return {"pid": self.pid, "uid": self.uid, "gid": self.gid, "mntns_id": self.mntns}

    def chosen(self, processes: Any) -> Any:
        """Which rows of dtype ``process`` are wanted, as booleans."""
        mask = np.ones(len(processes), dtype=bool)
        for name, value in self._numbers().items():
            if value is not None:
                mask &= processes[name] == value
        if self.comm:
            mask &= processes["comm"] == self.comm.encode("utf-8", "surrogateescape")[:15]
        return mask


def parameters() -> list[pb.Param]:
    """What a run takes, as the service says it; names as Inspektor Gadget's."""
    events = _param("events", "failures", "string", "Which calls become rows of events")
    events.possibleValues.extend(_abi.EVENTS)
    interval = _param("interval", "1s", "duration", "How often rows of what changed are sent")
    interval.alternativeKey = "map-fetch-interval"
    only = "Show only processes"
    return [
        events,
        interval,
        _param("pid", "0", "uint32", f"{only} with this process ID; 0 shows all"),
        _param("comm", "", "string", f"{only} with this name, at most 15 letters of it"),
        _param("uid", str(_NOBODY), "uint32", f"{only} of this user ID; {_NOBODY} shows all"),
        _param("gid", str(_NOBODY), "uint32", f"{only} of this group ID; {_NOBODY} shows all"),
        _param("mntns", "0", "uint64", f"{only} in this mount namespace; 0 shows all"),
    ]


def _param(key: str, default: str, hint: str, about: str) -> pb.Param:
    told = pb.Param(key=key, defaultValue=default, typeHint=hint, description=about)
    told.prefix, told.title = _PREFIX, about
    return told


def check_image(name: str) -> None:
    """Whether a run of this image is one of ours.

    Raises:
        RunRefused: it is another one.
    """
    if not _NAME.fullmatch(name):
        raise RunRefused(
            f"this is igsdk agent, which runs the gadget {IMAGE} and no other: not {name!r}",
            "",
        )


def read(values: Mapping[str, str]) -> Wanted:
    """Reads the parameters of a run, by full name.

    Raises:
        RunRefused: one is not known, or its value makes no sense.
    """
    given = {}
    for key, value in values.items():
        name = key.removeprefix(_PREFIX)
        name = "interval" if name == "map-fetch-interval" else name
        if name in _READERS and (name == key or key.startswith(_PREFIX)):
            given[name] = _READERS[name](name, value)
        elif not _PASSED_OVER.match(key):
            _refuse(key, value)
    return Wanted(**given)


def _refuse(key: str, value: str) -> None:
    if _CONTAINERS.match(key):
        if value in ("", "false"):
            return
        raise RunRefused(
            f"igsdk agent can't choose by {key}: it knows containers by their IDs only.",
            "Choose by pid, comm, uid, gid or mntns, or in the client",
        )
    known = ", ".join(_READERS)
    raise RunRefused(f"igsdk agent has no parameter {key!r}.", f"There are: {known}")


def _number(most: int, everybody: int, name: str, value: str) -> int | None:
    if value and not (
        value.isascii() and value.isdigit() and len(value) <= 20 and int(value) <= most
    ):
        raise RunRefused(
            f"{name}={value!r}: the value has to be a whole number.", "Correct the parameter"
        )
    return None if not value or int(value) == everybody else int(value)


def _choice(name: str, value: str) -> str:
    if value not in _abi.EVENTS:
        raise RunRefused(
            f"{name}={value!r}: the value has to be one of {', '.join(_abi.EVENTS)}.",
            "Correct the parameter",
        )
    return value


def _duration(name: str, value: str) -> float:
    parts = _PART.findall(value)
    seconds = round(sum(float(number) * _SECONDS[unit] for number, unit in parts), 6)
    if "".join(number + unit for number, unit in parts) != value or not (
        _SHORTEST <= seconds <= _LONGEST
    ):
        raise RunRefused(
            f"{name}={value!r}: the value has to be a duration of 100ms to 1m.",
            "Correct the parameter",
        )
    return seconds


_READERS: dict[str, Any] = {
    "events": _choice,
    "interval": _duration,
    "pid": lambda *given: _number(0xFFFF_FFFF, 0, *given),
    "comm": lambda _, value: value,
    "uid": lambda *given: _number(0xFFFF_FFFF, _NOBODY, *given),
    "gid": lambda *given: _number(0xFFFF_FFFF, _NOBODY, *given),
    "mntns": lambda *given: _number((1 << 64) - 1, 0, *given),
}
