# SPDX-License-Identifier: Apache-2.0
"""A gadget service of a test's own, and a client that is connected to it.

Imported when they are asked for: most tests here have no use for gRPC.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.gadget_server import GadgetServer

    from igsdk.client.remote import RemoteRuntime


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GadgetServer]:
    from tests.support.gadget_server import gadget_server

    with gadget_server(tmp_path / "socket") as ours:
        yield ours


@pytest.fixture
def host(server: GadgetServer) -> Iterator[RemoteRuntime]:
    from igsdk.client.remote import RemoteRuntime

    with RemoteRuntime(server.target, call_timeout=20) as ours:
        yield ours
