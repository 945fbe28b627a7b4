# SPDX-License-Identifier: Apache-2.0
"""Every kind of field through a real server: described, run, streamed, read as rows and columns,
by one daemon and by two at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from tests.support import gadget_packets as gp
from tests.support.gadget_fields import gadgets, same, visible
from tests.support.gadget_server import GadgetServer, described, gadget_server

from igsdk._proto import gadget_pb2 as pb
from igsdk.client.fleet import Fleet, ListedMembers
from igsdk.client.remote import RemoteRuntime

Made = tuple[list[gp.Spec], list[list[Any]], bool]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[GadgetServer]]:
    folder: Path = tmp_path_factory.mktemp("served")
    with ExitStack() as stack:
        yield [stack.enter_context(gadget_server(folder / str(number))) for number in range(2)]


@pytest.fixture(scope="module")
def host(servers: list[GadgetServer]) -> Iterator[RemoteRuntime]:
    with RemoteRuntime(servers[0].target, call_timeout=20) as ours:
        yield ours


def serve(server: GadgetServer, made: Made) -> None:
    """A packet for each row."""
    specs, rows, big = made
    source = gp.source("s", specs, big=big)
    server.describe = lambda request: pb.GadgetInfo(dataSources=[source])
    server.run = lambda session: iter(
        (
            described(source),
            *(gp.packet([gp.element(specs, row, big)], n) for n, row in enumerate(rows, 1)),
        )
    )


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return tuple(value.tolist())
    return value.item() if isinstance(value, np.generic) else value


@given(made=gadgets())
@settings(max_examples=40, deadline=None)
def test_rows_and_columns_come_back(
    servers: list[GadgetServer], host: RemoteRuntime, made: Made
) -> None:
    serve(servers[0], made)
    wanted = [visible(made[0], row) for row in made[1]]
    with host.run("any") as run:
        rows = list(run.rows())
        assert not any(run.losses().values())
    assert [list(row) for row in rows] == [list(one) for one in wanted]
    for row, one in zip(rows, wanted, strict=True):
        assert all(same(one[name], row[name]) for name in one)
    with host.run("any") as run:
        columns = run.collect()["s"]
    assert columns.rows == len(wanted)
    for name in columns:
        values = [plain(value) for value in columns[name]]
        assert all(map(same, [one[name] for one in wanted], values))


@given(made=gadgets())
@settings(max_examples=15, deadline=None)
def test_two_nodes_stand_one_below_the_other(servers: list[GadgetServer], made: Made) -> None:
    for server in servers:
        serve(server, made)
    targets = [server.target for server in servers]
    wanted = [visible(made[0], row) for row in made[1]]
    with Fleet(ListedMembers(targets), "both") as fleet, fleet.run("any") as run:
        columns = run.collect()["s"]
        assert not any(run.losses().values())
    assert columns.rows == 2 * len(wanted)
    nodes = columns["node"].tolist()
    assert sorted(nodes) == sorted(targets * len(wanted))
    for target in targets:
        places = [place for place, node in enumerate(nodes) if node == target]
        for name in wanted[0] if wanted else ():
            values = [plain(columns[name][place]) for place in places]
            assert all(map(same, [one[name] for one in wanted], values))
