# SPDX-License-Identifier: Apache-2.0
"""The client and a real Inspektor Gadget daemon, which runs a small gadget of the tests."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
from tests.support import tiny
from tests.support.inspektor_daemon import ig_program, inspektor_daemon

import igsdk
from igsdk.cli.app import run as igsdk_command
from igsdk.client.remote import RemoteRuntime


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteRuntime]:
    ig_program()
    folder = tmp_path_factory.mktemp("ig")
    image = folder / "tiny.tar"
    assert igsdk_command(["gadget", "build", str(tiny.SOURCE), "-o", str(image)]) == 0
    with inspektor_daemon(folder, image) as daemon, RemoteRuntime(daemon.target) as ours:
        yield ours


def test_the_gadget_is_described_as_it_was_built(host: RemoteRuntime) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", host.version)
    gadget = host.describe("tiny")
    assert {name: source.array for name, source in gadget.sources.items()} == {
        "opens": False,
        "totals": True,
    }
    kinds = {field.name: str(field.kind) for field in gadget.sources["opens"].fields}
    assert (kinds["comm"], kinds["at.line"], kinds["numbers"]) == ("cstring", "uint32", "uint32[]")
    assert (kinds["how"], kinds["k8s.hostnetwork"]) == ("string", "bool")
    assert "k8s" not in kinds
    assert next(one for one in gadget.parameters if one.name == "host").type == "bool"


def test_rows_and_columns(host: RemoteRuntime) -> None:
    with host.run("tiny", {"host": True}) as run:
        subprocess.run(["cat", "/dev/null"], check=True)
        row = next(row for row in run.rows("opens") if row["comm"] == "cat")
        assert row["how"] == "how_open"
        assert row["user"] == "root"
        collected = run.collect(3)
        assert not any(run.losses().values())
    opens, totals = collected["opens"], collected["totals"]
    assert opens.unreadable == totals.unreadable == 0
    assert totals.rows > 0
    assert int(totals["calls"].sum()) > 0


def test_the_end_by_itself(host: RemoteRuntime) -> None:
    with host.run("tiny", {"host": True}, timeout=1) as run:
        list(run.rows())
        assert run.ended
        assert run.error is None


def test_instances(host: RemoteRuntime) -> None:
    made = host.create("tiny", {"host": True}, name="mine", tags=["a"])
    with host.attach(made) as run:  # at once: too early would kill the daemon
        assert run.gadget.name == "mine"
        assert next(run.rows()).source in ("opens", "totals")
    (listed,) = host.instances()
    assert (listed.id, listed.state, listed.tags) == (made.id, "running", ("a",))
    assert listed.created > 1_700_000_000
    host.remove("mine")
    assert host.instances() == []


def test_refusals(host: RemoteRuntime) -> None:
    with pytest.raises(igsdk.RunRefused, match="not found") as caught:
        host.run("nothing_of_the_sort", {"pull": "never"})
    assert "image" in caught.value.remedy
    with pytest.raises(igsdk.RunRefused, match="mine not found"):
        host.attach("mine")
    with pytest.raises(igsdk.RunRefused, match="soon"):
        host.run("tiny", {"map-fetch-interval": "soon"}).__enter__()
    with pytest.raises(igsdk.UsageError):
        host.run("tiny", {"host": "perhaps"})
