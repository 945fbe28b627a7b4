# SPDX-License-Identifier: Apache-2.0
"""One event as a line of text and as a JSON object."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from igsdk._events import event_record
from igsdk.views.text import plain

if TYPE_CHECKING:
    from igsdk._events import Event

event_json = event_record


def event_line(event: Event, wall_ns: int | None = None) -> str:
    """One line without a line break; ``wall_ns`` is the wall clock at the boot clock's zero."""
    return plain(f"{_time(event, wall_ns)}  {event}")


def event_json_line(event: Event) -> str:
    """One line of JSON; keys as in :func:`event_json`."""
    return json.dumps(event_record(event), separators=(",", ":"))


def _time(event: Event, wall_ns: int | None) -> str:
    if wall_ns is None:
        return f"{event.time_ns / 1e9:.6f}"
    from datetime import datetime, timezone

    seconds, rest = divmod(wall_ns + event.time_ns, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, timezone.utc).astimezone()
    return f"{moment:%H:%M:%S}.{rest // 1000:06}"
