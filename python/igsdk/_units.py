# SPDX-License-Identifier: Apache-2.0
"""Bytes and times for people. Files and ``--json`` carry the exact integers."""

from __future__ import annotations

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def format_bytes(count: int) -> str:
    """``1.50 GiB``; exact below 1 KiB; negative numbers keep their sign."""
    size, unit = float(abs(count)), 0
    # 1023.995 would print as 1024.00, so it moves up a unit already.
    while size >= 1023.995 and unit + 1 < len(_BINARY):
        size, unit = size / 1024, unit + 1
    sign = "-" if count < 0 else ""
    number = str(abs(count)) if unit == 0 else f"{size:.2f}"
    return f"{sign}{number} {_BINARY[unit]}"


def format_duration(nanoseconds: int) -> str:
    """``850 ns``, ``12.3 µs``, ``4.56 ms``, ``7.8 s``, ``2 min 05 s``, ``3 h 07 min``."""
    if nanoseconds < 1_000:
        return f"{nanoseconds} ns"
    if nanoseconds < 1_000_000:
        return f"{nanoseconds / 1e3:.3g} µs"
    if nanoseconds < 1_000_000_000:
        return f"{nanoseconds / 1e6:.3g} ms"
    seconds = nanoseconds / 1e9
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def plural(count: int, noun: str) -> str:
    """``1 call``, ``2 calls``, ``3 processes``."""
    ending = "" if count == 1 else "es" if noun.endswith(("s", "x", "ch")) else "s"
    return f"{count:,} {noun}{ending}"
