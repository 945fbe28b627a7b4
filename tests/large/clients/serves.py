# SPDX-License-Identifier: Apache-2.0
"""Runs already when a tracer comes: says "ready", then asks for memory ten times a second.

Ends when its input does.
"""

from __future__ import annotations

import select
import sys

import torch

MIB = 1 << 20


def serve(request: int) -> torch.Tensor:
    return torch.empty((20 + 2 * (request % 100)) * MIB, dtype=torch.uint8, device="cuda")


def main() -> None:
    kept = [torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")]
    print("ready", flush=True)
    request = 0
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        kept[1:] = [serve(request)]
        del kept[1:]
        torch.cuda.empty_cache()
        request += 1


if __name__ == "__main__":
    main()
