# SPDX-License-Identifier: Apache-2.0
"""What became of a request: stored, refused, not now, or nobody knows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Literal

from igsdk._errors import AnswerInvalid, IgsdkError, PushRefused, TargetUnavailable

if TYPE_CHECKING:
    from igsdk.sinks.http import Answer

#: ``later``: surely not stored, and may be sent again; ``unknown``: perhaps stored, and not
#: sent again, since a server adds up whatever comes twice
What = Literal["stored", "refused", "later", "unknown"]

_LATER = (408, 429, 503)
_LONGEST_REASON = 300
_REMEDIES = {
    400: "Check labels and tenant; the server's own words say what it minds.",
    401: "Give a user and password or a token, and the tenant where the server has several.",
    403: "Ask the server's owner for the right to write profiles.",
    404: "Check the address: it ends before /push.v1.PusherService or /ingest.",
    408: "Check the network between here and the server, and try again.",
    413: "Raise the server's limit (distributor.ingestion-body-limit-mb), or a proxy's before it.",
    415: "Check that the address is Pyroscope's own, and no other server's.",
    422: "The server's own words say what it minds; its limits are in its configuration.",
    429: "Push less often, or raise the server's limits (distributor.ingestion-rate-limit-mb).",
    503: "Wait until the server is ready, and try again.",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request.

    Attributes:
        error: why it was not stored; None where it was.
        wait: seconds that the server asked us to wait.
        everywhere: whether others would fare alike: none needs to be tried.
    """

    what: What
    error: IgsdkError | None = None
    wait: float | None = None
    everywhere: bool = False


STORED = Outcome("stored")


def read(answer: Answer, host: str, stored_kinds: tuple[str, ...] | None) -> Outcome:
    """What an answer says.

    Args:
        stored_kinds: the content types that a success has; None: whatever it likes.
    """
    status = answer.status
    if status in (200, 204):
        if stored_kinds is None or answer.kind in stored_kinds:
            return STORED
        return Outcome("refused", _other_server(host, answer), everywhere=True)
    reason = words(answer)
    if 300 <= status < 400:
        return Outcome("refused", _redirected(host, answer), everywhere=True)
    if status in _LATER:
        error: IgsdkError = (PushRefused if status == 429 else TargetUnavailable)(
            f"{host} answers {status}{reason}.", _REMEDIES[status]
        )
        return Outcome("later", error, _wanted_wait(answer), everywhere=True)
    if status >= 500:
        error = TargetUnavailable(
            f"{host} answers {status}{reason}.", "Look into the log of the server."
        )
        return Outcome("unknown", error, _wanted_wait(answer), everywhere=True)
    remedy = _REMEDIES.get(status, "Check the address and the server.")
    if "not_in_ingestion_window" in reason or "ingestion window" in reason:
        remedy = "The profile is too old for this server: push within the hour, or give its time."
    refused = PushRefused(f"{host} refuses with {status}{reason}.", remedy)
    return Outcome("refused", refused, everywhere=status in (401, 403, 404, 405, 407))


def words(answer: Answer) -> str:
    """The server's own words in brackets, or nothing."""
    text = answer.body.decode("utf-8", "replace")
    try:
        said = json.loads(text)
        text = f"{said.get('code', '')}: {said.get('message', '')}".strip(": ")
    except (ValueError, AttributeError, RecursionError):
        if answer.kind == "text/html":
            return ""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split()).rstrip(".")
    if len(text) > _LONGEST_REASON:
        text = text[:_LONGEST_REASON] + " …"
    return f" ({text})" if text else ""


def _other_server(host: str, answer: Answer) -> AnswerInvalid:
    kind = answer.kind or "nothing"
    return AnswerInvalid(
        f"{host} answers {answer.status} with {kind}, as Pyroscope does not: nothing was stored.",
        "Check the address; a proxy's login page answers so too.",
    )


def _redirected(host: str, answer: Answer) -> PushRefused:
    place = answer.headers.get("location", "")
    to = f" to {place[:200]}" if place.isprintable() and place else ""
    return PushRefused(
        f"{host} sends us elsewhere{to}, where neither profiles nor passwords are sent.",
        "Give the right address yourself, https where the server wants it.",
    )


def _wanted_wait(answer: Answer) -> float | None:
    """The seconds of a Retry-After, which may be a number or a date."""
    text = answer.headers.get("retry-after", "").strip()
    try:
        if text.isdecimal():
            return float(min(int(text), 86_400))
        return max(0.0, parsedate_to_datetime(text).timestamp() - time())
    except (ValueError, TypeError, OverflowError):
        return None
