# SPDX-License-Identifier: Apache-2.0
"""Asks torch for memory in the ways that models do; writes the true stacks to the file named.

Each size is asked for once, and is a multiple of what every allocator of torch rounds to, so
that the bytes tell which request a row is.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import torch
from notes import MIB, note, write

WHERE = {"dtype": torch.uint8, "device": "cuda"}
held: list[object] = []


def in_a_function(mib: int) -> torch.Tensor:
    note("function", mib)
    return torch.empty(mib * MIB, **WHERE)


class Cache(torch.nn.Module):
    """A module whose constructor and whose method ask; forward only calls the method."""

    def __init__(self, mib: int) -> None:
        super().__init__()
        note("constructor", mib)
        self.kept = torch.empty(mib * MIB, **WHERE)

    def _grow(self, mib: int) -> torch.Tensor:
        note("method", mib)
        return torch.empty(mib * MIB, **WHERE)

    def forward(self, mib: int) -> torch.Tensor:
        return self._grow(mib)


def blocks(*sizes: int) -> Iterator[torch.Tensor]:
    for mib in sizes:
        note("generator", mib)
        yield torch.empty(mib * MIB, **WHERE)


def pinned(mib: int) -> torch.Tensor:
    note("pinned", mib)
    return torch.empty(mib * MIB, dtype=torch.uint8, pin_memory=True)


def copied(mib: int) -> torch.Tensor:
    host = torch.empty(mib * MIB, dtype=torch.uint8)
    note("copy", mib)
    return host.to("cuda")


class Kept(torch.autograd.Function):
    """Its backward is Python, which autograd calls on a thread of its own."""

    @staticmethod
    def forward(context: object, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(context: object, gradient: torch.Tensor) -> torch.Tensor:
        # more than what the gradients have given back to torch's cache by now, so it grows
        note("backward", 500)
        held.append(torch.empty(500 * MIB, **WHERE))
        return gradient


def train(mib: int) -> None:
    """The gradient of `wide` is made by autograd's thread, in C++, where no Python is."""
    x = torch.zeros(1, device="cuda", requires_grad=True)
    wide = Kept.apply(x).expand(mib * MIB // 4)
    note("forward", mib)
    held.append(wide * wide)
    held[-1].sum().backward()


def in_threads(*sizes: int) -> None:
    """All at the same time; torch lets go of the GIL while it asks."""
    together = threading.Barrier(len(sizes))

    def work(mib: int) -> None:
        together.wait()
        note("thread", mib)
        held.append(torch.empty(mib * MIB, **WHERE))

    threads = [threading.Thread(target=work, args=(mib,)) for mib in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def too_much(mib: int) -> None:
    try:
        note("too much", mib)
        torch.empty(mib * MIB, **WHERE)
    except torch.OutOfMemoryError:
        pass


def main() -> None:
    lazily = lambda mib: (note("lambda", mib, 0), torch.empty(mib * MIB, **WHERE))[1]  # noqa: E731
    held.append(in_a_function(40))
    cache = Cache(60)
    held.extend([cache, cache(80), *blocks(100, 120), lazily(140), copied(160), pinned(64)])
    in_threads(220, 240, 260, 280)
    train(200)
    too_much(85_000)
    torch.cuda.synchronize()
    write(sys.argv[1])
    # Autograd's thread that has run Python and the end of the interpreter race in torch,
    # with std::terminate for the loser.
    os._exit(0)


if __name__ == "__main__":
    main()
