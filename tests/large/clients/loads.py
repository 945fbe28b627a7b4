# SPDX-License-Identifier: Apache-2.0
"""A DataLoader with a worker process and pinned memory, as training loops have it."""

from __future__ import annotations

import torch

MIB = 1 << 20


class Images(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.full((MIB,), number, dtype=torch.float32)


def train() -> None:
    for batch in torch.utils.data.DataLoader(Images(), num_workers=1, pin_memory=True):
        batch.to("cuda")


if __name__ == "__main__":
    train()
