# SPDX-License-Identifier: Apache-2.0
"""Runs in asyncio, as docs/sdk.md says: wait in a thread; stop ends the wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from tests.support import gadget_packets as gp
from tests.support.gadget_server import GadgetServer
from tests.support.opens import opens, until_stopped

import igsdk

Connect = Callable[[str], AbstractContextManager[Any]]


@pytest.mark.parametrize(
    "connect", [igsdk.connect, lambda target: igsdk.connect([target])], ids=["one", "several"]
)
def test_rows_come_while_the_loop_goes_on(server: GadgetServer, connect: Connect) -> None:
    server.run = until_stopped(gp.packet(opens(1, 2, 3), 1))
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    async def read(run: Any) -> list[int]:
        pids, rows, loop = [], run.rows(), asyncio.get_running_loop()
        while (row := await asyncio.to_thread(next, rows, None)) is not None:
            pids.append(row["pid"])
            if len(pids) == 3:  # nothing more comes: the next wait ends with the run
                loop.call_later(0.3, lambda: loop.run_in_executor(None, run.stop))
        return pids

    async def main() -> list[int]:
        ticking = asyncio.create_task(tick())
        with connect(server.target) as host, host.run("opens") as run:
            pids = await asyncio.wait_for(read(run), 30)
        ticking.cancel()
        return pids

    assert asyncio.run(main()) == [1, 2, 3]
    assert ticks > 10
    assert server.sessions[0].asked_to_stop.is_set()
