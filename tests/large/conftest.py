# SPDX-License-Identifier: Apache-2.0
"""PyTorch, as `make test-large` has installed it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import simdriver, torch_runtime
from tests.support.torch_runtime import PyTorch

ENVIRONMENT = Path(__file__).parents[2] / ".work/large/venv"


@pytest.fixture(scope="session")
def pytorch() -> PyTorch:
    found = torch_runtime.find(ENVIRONMENT, simdriver.build())
    if found is None:
        pytest.skip(f"PyTorch is not installed in {ENVIRONMENT}: make test-large does that")
    return found
