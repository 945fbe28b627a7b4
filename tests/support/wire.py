# SPDX-License-Identifier: Apache-2.0
"""What a real daemon once said: recordings that are kept beside the clone, not in it."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "wire"


@dataclass(frozen=True)
class Recording:
    """One RPC: its method, the messages of both sides, and how it ended."""

    method: str
    requests: list[bytes]
    responses: list[bytes]
    status: str
    message: str


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def recording(name: str) -> Recording:
    """Reads one; skips the test where the recordings are not there."""
    path = FOLDER / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"the daemon's recordings are not at {FOLDER}")
    told = json.loads(path.read_text())
    return Recording(
        method=told["method"],
        requests=[base64.b64decode(text) for text in told["requests"]],
        responses=[base64.b64decode(text) for text in told["responses"]],
        status=told["status"],
        message=told["message"],
    )
