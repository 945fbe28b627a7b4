# SPDX-License-Identifier: Apache-2.0
"""Websocket frames as a server makes and reads them, for tests of what a client does."""

from __future__ import annotations


def server_frame(body: bytes, kind: int = 2, last: bool = True) -> bytes:
    head = bytes(((0x80 if last else 0) | kind,))
    if len(body) < 126:
        return head + bytes((len(body),)) + body
    if len(body) < 1 << 16:
        return head + b"\x7e" + len(body).to_bytes(2, "big") + body
    return head + b"\x7f" + len(body).to_bytes(8, "big") + body


def unmasked(frame: bytes) -> tuple[int, bytes]:
    """Kind and body of a client's frame, which has to be whole and masked."""
    assert frame[0] & 0x80
    assert frame[1] & 0x80
    size, at = frame[1] & 0x7F, 2
    if size >= 126:
        more = 2 if size == 126 else 8
        size, at = int.from_bytes(frame[2 : 2 + more], "big"), 2 + more
    mask, body = frame[at : at + 4], frame[at + 4 :]
    assert len(body) == size
    return frame[0] & 0x0F, unmask(body, mask)


def unmask(body: bytes, mask: bytes) -> bytes:
    key = (mask * (len(body) // 4 + 1))[: len(body)]
    plain = int.from_bytes(body, "big") ^ int.from_bytes(key, "big")
    return plain.to_bytes(len(body), "big")
