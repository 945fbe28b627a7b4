# SPDX-License-Identifier: Apache-2.0
"""The two ways into a Pyroscope: its push service, and ``/ingest`` where that is missing."""

from __future__ import annotations

import gzip
import json
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from igsdk.sinks import outcome
from igsdk.sinks.http import Unreached
from igsdk.sinks.outcome import Outcome

if TYPE_CHECKING:
    from igsdk.sinks.http import Answer, Sender
    from igsdk.sinks.series import Series

Route = Literal["push", "ingest"]

_PUSH = "/push.v1.PusherService/Push"
_MERGE = "/querier.v1.QuerierService/SelectMergeStacktraces"
#: an old server gives these to a path that it does not know
_NO_SUCH_PATH = (404, 405)
# The old server keeps tags as ``{a=b,c=d}``: no value may have what ends it.
_NO_VALUE = re.compile(r"[{},\s\"\\]+")
_NO_APPLICATION = re.compile(r"[^a-zA-Z0-9_.-]+")
_TYPES: dict[str, Any] = {
    "inuse_space": {"units": "bytes", "aggregation": "average"},
    "inuse_objects": {"units": "objects", "aggregation": "average"},
    "alloc_space": {"units": "bytes", "aggregation": "sum"},
    "alloc_objects": {"units": "objects", "aggregation": "sum"},
}
_SETTINGS = json.dumps(
    {name: {**told, "cumulative": False, "sampled": False} for name, told in _TYPES.items()}
).encode()


@dataclass(frozen=True, slots=True)
class Moment:
    """Wall clock: the end of an interval and its length, in ns."""

    end_ns: int
    duration_ns: int

    @property
    def start_ns(self) -> int:
        return self.end_ns - self.duration_ns


def push(sender: Sender, series: Series, content: bytes) -> Outcome | None:
    """Sends one series to the push service.

    Returns:
        None: the server is too old to have that service.
    """
    from igsdk._proto import push_pb2

    request = push_pb2.PushRequest()
    target = request.series.add()
    for name, value in _private(series):
        target.labels.add(name=name, value=value)
    target.samples.add(raw_profile=content, ID=str(uuid.uuid4()))
    headers = {
        "Content-Type": "application/proto",
        "Content-Encoding": "gzip",
        "Connect-Protocol-Version": "1",
    }
    body = gzip.compress(request.SerializeToString(), 6, mtime=0)
    answer = _asked(lambda: sender.ask("POST", _PUSH, body, headers))
    if isinstance(answer, Outcome):
        return answer
    if answer.status in _NO_SUCH_PATH and not _is_connect(answer):
        return None
    return outcome.read(answer, sender.host, ("application/proto",))


def check(sender: Sender) -> Outcome:
    """Asks without sending anything: whether a Pyroscope is there and knows who we are."""
    headers = {"Content-Type": "application/proto", "Connect-Protocol-Version": "1"}
    answer = _asked(lambda: sender.ask("POST", _PUSH, b"", headers))
    if isinstance(answer, Outcome):
        return answer
    if answer.status == 400 and _is_connect(answer):
        return outcome.STORED  # "no profiles received"
    if answer.status not in _NO_SUCH_PATH or _is_connect(answer):
        return outcome.read(answer, sender.host, ("application/proto",))
    answer = _asked(lambda: sender.ask("POST", "/ingest", b""))
    if isinstance(answer, Outcome):
        return answer
    # Without a name it has nothing to take, and says so.
    return outcome.STORED if answer.status in (400, 422) else outcome.read(answer, sender.host, ())


def _private(series: Series) -> list[tuple[str, str]]:
    """All labels as they are sent.

    Older servers take a profile named ``memory`` for one that counts up, unless told.
    """
    return [("__name__", series.name), ("__delta__", "false"), *series.labels]


def _is_connect(answer: Answer) -> bool:
    """Whether the push service itself answers: its errors are JSON with a code."""
    return answer.kind == "application/json" and b'"code"' in answer.body


def ingest(sender: Sender, series: Series, content: bytes, moment: Moment) -> Outcome:
    """Sends one series to ``/ingest``, as Pyroscope up to 0.37 wants it.

    It is told of all types that none counts up, always of the same ones in the same order:
    0.37.2 fails for good when a later profile has fewer.
    """
    seconds = str(moment.end_ns // 10**9)
    query = {"name": application(series), "from": seconds, "until": seconds, "spyName": "igsdk"}
    boundary = uuid.uuid4().hex
    parts = [("profile", "profile.pprof", content), ("sample_type_config", "types.json", _SETTINGS)]
    body = b"".join(_part(boundary, *part) for part in parts) + f"--{boundary}--\r\n".encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    answer = _asked(lambda: sender.ask("POST", "/ingest", body, headers, query))
    if isinstance(answer, Outcome):
        return answer
    if answer.status == 200 and answer.body:  # it answers with nothing at all
        return outcome.read(answer, sender.host, ())
    return outcome.read(answer, sender.host, None)


def application(series: Series) -> str:
    """What the old server calls an application: ``SERVICE.NAME{label=value,…}``."""
    labels = dict(series.labels)
    service = _NO_APPLICATION.sub("_", labels.pop("service_name", "igsdk"))
    tags = ",".join(f"{name}={_NO_VALUE.sub('_', value)}" for name, value in labels.items())
    return f"{service}.{series.name}{{{tags}}}"


def _part(boundary: str, name: str, file: str, content: bytes) -> bytes:
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{file}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    return head.encode() + content + b"\r\n"


def shown(sender: Sender, series: Series, moment: Moment, route: Route) -> int | None:
    """What a server shows of a series at a moment, in bytes; None: it does not let us ask."""
    value = "inuse_space" if series.total("inuse_space") else "alloc_space"
    try:
        if route == "push":
            return _merged_total(sender, series, moment, value)
        return _rendered_total(sender, series, moment, value)
    except Unreached:
        return None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None  # it answers something else


def _merged_total(sender: Sender, series: Series, moment: Moment, value: str) -> int | None:
    pairs = (f"{name}={json.dumps(text, ensure_ascii=False)}" for name, text in series.labels)
    asked = {
        "profileTypeID": f"{series.name}:{value}:bytes:space:bytes",
        "labelSelector": f"{{{','.join(pairs)}}}",
        "start": moment.end_ns // 10**6 - 1000,
        "end": moment.end_ns // 10**6 + 1000,
    }
    headers = {"Content-Type": "application/json"}
    answer = sender.ask("POST", _MERGE, json.dumps(asked).encode(), headers)
    if answer.status != 200:
        return None
    return int(json.loads(answer.body).get("flamegraph", {}).get("total", 0))


def _rendered_total(sender: Sender, series: Series, moment: Moment, value: str) -> int | None:
    name, _, tags = application(series).partition("{")
    pairs = (pair.partition("=") for pair in tags.rstrip("}").split(",") if pair)
    selector = ",".join(f'{label}="{text}"' for label, _, text in pairs)
    seconds = str(moment.end_ns // 10**9)
    query = {
        "query": f"{name}.{value}{{{selector}}}",
        "from": seconds,
        "until": seconds,
        "format": "json",
        "max-nodes": "1",
    }
    answer = sender.ask("GET", "/render", query=query)
    if answer.status != 200:
        return None
    return int(json.loads(answer.body)["flamebearer"]["numTicks"])


def _asked(ask: Any) -> Answer | Outcome:
    """The answer, or what it means that there is none."""
    try:
        answer: Answer = ask()
    except Unreached as error:
        what: outcome.What = "unknown" if error.arrived else "later"
        return Outcome(what, error.error, everywhere=True)
    return answer
