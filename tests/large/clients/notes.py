# SPDX-License-Identifier: Apache-2.0
"""What a program knows of its own stacks, to compare a profile with."""

from __future__ import annotations

import json
import sys
from pathlib import Path

MIB = 1 << 20
_notes: list[dict[str, object]] = []


def note(name: str, mib: int, lines: int = 1) -> None:
    """Keeps the caller's stack, leaf first: so many lines on, it asks for so much memory."""
    frames = []
    frame = sys._getframe(1)
    while frame:
        code = frame.f_code
        frames.append([code.co_qualname, code.co_filename, frame.f_lineno + lines])
        frame, lines = frame.f_back, 0
    _notes.append({"name": name, "bytes": mib * MIB, "frames": frames})


def write(path: str) -> None:
    """One JSON list of {name, bytes, frames: [[qualified name, file, line], ...]}."""
    Path(path).write_text(json.dumps(_notes))
