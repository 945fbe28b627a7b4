# SPDX-License-Identifier: Apache-2.0
"""Values of parameters as the text that a daemon reads, and whether it will."""

from __future__ import annotations

import base64
import ipaddress
import re
import zlib
from typing import TYPE_CHECKING, Any

from igsdk._errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_TRUTHS = ("1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False")
_DURATION = re.compile(r"[+-]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+")
_WHOLE = re.compile("[+-]?[0-9]{1,40}")
_BITS = {"": 64, "8": 8, "16": 16, "32": 32, "64": 64}


def as_text(value: Any, kind: str) -> str:
    """A value as text, in the form that its type has on the wire.

    Args:
        kind: the parameter's type; a number is in seconds where it is ``duration``, and
            bytes are packed where it is ``bytes``.

    Raises:
        UsageError: it cannot be sent, since it is no UTF-8.
    """
    text = _text_of(value, kind)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{text!r} is no text in UTF-8.", "Correct it.") from error
    return text


def _text_of(value: Any, kind: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        packed = base64.b64encode(zlib.compress(value)) if kind == "bytes" else value
        return packed.decode("utf-8", "backslashreplace")
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(as_text(one, "") for one in value)
    if isinstance(value, int | float) and kind == "duration":
        return f"{round(value * 1e9)}ns"
    return str(value)


def wrong_with(text: str, kind: str) -> str:
    """What is wrong with a value of this type, as the end of a sentence; empty: nothing.

    A type that nobody here knows takes anything.
    """
    check = _CHECKS.get(kind)
    return check(text) if check and text else ""


def _bool(text: str) -> str:
    return "" if text in _TRUTHS else "has to be true or false"


def _duration(text: str) -> str:
    return "" if _DURATION.fullmatch(text) else "has to be a duration: 500ms, 10s, 1m30s"


def _ip(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return "has to be an IP address"
    return ""


def _float(text: str) -> str:
    try:
        float(text)
    except ValueError:
        return "has to be a number"
    return ""


def _integer(signed: bool, bits: int) -> Callable[[str], str]:
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def check(text: str) -> str:
        if _WHOLE.fullmatch(text) and least <= int(text) <= most:
            return ""
        return f"has to be a whole number from {least} to {most}"

    return check


_CHECKS: dict[str, Callable[[str], str]] = {
    "bool": _bool,
    "duration": _duration,
    "ip": _ip,
    "float32": _float,
    "float64": _float,
    **{f"int{width}": _integer(True, bits) for width, bits in _BITS.items()},
    **{f"uint{width}": _integer(False, bits) for width, bits in _BITS.items()},
}
