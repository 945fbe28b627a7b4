# SPDX-License-Identifier: Apache-2.0
"""The shape of a vLLM server's start: classes and methods as there, 55.1 GiB of KV cache."""

from __future__ import annotations

import torch

MIB = 1 << 20
LAYERS = 26
LAYER_BYTES = 2170 * MIB


class GPUModelRunner:
    def load_model(self) -> None:
        self.weights = []
        for _ in range(4):
            self.weights.append(torch.empty(512 * MIB, dtype=torch.uint8, device="cuda"))

    def initialize_kv_cache(self, layers: int) -> None:
        self.kv_caches = self._allocate_kv_cache_tensors(layers)

    def _allocate_kv_cache_tensors(self, layers: int) -> dict[str, torch.Tensor]:
        tensors = {}
        for layer in range(layers):
            tensors[f"layer {layer}"] = torch.empty(LAYER_BYTES, dtype=torch.int8, device="cuda")
        return tensors


class Worker:
    def __init__(self) -> None:
        self.model_runner = GPUModelRunner()
        self.model_runner.load_model()

    def initialize_from_config(self, layers: int) -> None:
        self.model_runner.initialize_kv_cache(layers)


class EngineCore:
    def __init__(self) -> None:
        self.worker = Worker()
        self._initialize_kv_caches()

    def _initialize_kv_caches(self) -> None:
        self.worker.initialize_from_config(LAYERS)


class EngineCoreProc(EngineCore):
    @staticmethod
    def run_engine_core() -> None:
        engine = EngineCoreProc()
        print("serves with", len(engine.worker.model_runner.kv_caches), "layers")


if __name__ == "__main__":
    EngineCoreProc.run_engine_core()
