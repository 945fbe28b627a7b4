# SPDX-License-Identifier: Apache-2.0
"""Gadgets that are not ours, run and decoded over a real Inspektor Gadget daemon.

IGSDK_TEST_IG_IMAGES names a folder with trace_open.tar and snapshot_process.tar;
docs/development.md says how they are made.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.inspektor_daemon import (
    Inspektor,
    gadgetctl_program,
    image_of_another,
    inspektor_daemon,
)

import igsdk
from igsdk.client.remote import RemoteRuntime
from igsdk.client.rows import Row


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inspektor]:
    images = [image_of_another(name) for name in ("trace_open", "snapshot_process")]
    with inspektor_daemon(tmp_path_factory.mktemp("ig"), *images) as ours:
        yield ours


@pytest.fixture
def host(daemon: Inspektor) -> Iterator[RemoteRuntime]:
    with RemoteRuntime(daemon.target) as ours:
        yield ours


@contextlib.contextmanager
def again_and_again(*argv: str) -> Iterator[None]:
    """Runs it four times a second: a daemon describes a run before its programs are attached."""
    over = threading.Event()

    def loop() -> None:
        while not over.wait(0.25):
            subprocess.run(argv, capture_output=True)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_an_open_is_a_row(host: RemoteRuntime, tmp_path: Path) -> None:
    there, missing = tmp_path / "a file of our own", tmp_path / "none"
    there.write_text("text")
    rows: dict[str, Row] = {}
    with host.run("trace_open", {"host": True, "comm": "cat"}) as run:
        with again_and_again("cat", str(there), str(missing)):
            for row in run.rows(timeout=20):
                rows.setdefault(row["fname"], row)
                if str(missing) in rows:
                    break
        assert not any(run.losses().values())
    good, bad = rows[str(there)], rows[str(missing)]
    for row in (good, bad):
        assert row["proc.comm"] == "cat"
        assert row["proc.creds.user"] == "root"
        assert row["flags"] == "O_RDONLY"
    assert good["proc.pid"] == bad["proc.pid"]
    assert (good["error"], bad["error"]) == ("", "ENOENT")
    assert good["fd"] >= 3
    assert good["timestamp_raw"] < bad["timestamp_raw"]


def test_opens_as_a_frame(host: RemoteRuntime, tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed: pip install 'igsdk[data]'")
    path = tmp_path / "another file"
    path.write_text("text")
    with (
        host.run("trace_open", {"host": True, "comm": "cat"}) as run,
        again_and_again("cat", *[str(path)] * 7),
    ):
        frame = run.collect(3)["open"].to_pandas()
    ours = frame[frame["fname"] == str(path)]
    # of the first and the last cat there may be a part
    assert 7 in ours.groupby("proc.pid").size().to_list()
    assert set(ours["proc.comm"]) == {"cat"}
    assert ours["timestamp_raw"].is_monotonic_increasing


def test_an_array_is_what_the_other_client_shows(daemon: Inspektor, host: RemoteRuntime) -> None:
    gadgetctl = gadgetctl_program()
    with subprocess.Popen(daemon.inside("sleep", "60")) as sleeper:
        try:
            argv = [gadgetctl, "run", "snapshot_process", "--remote-address", daemon.target]
            argv += ["--host", "--pull", "never", "-o", "json", "--timeout", "2"]
            told = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
            theirs = sleeping(row for line in told.stdout.splitlines() for row in listed(line))
            with host.run("snapshot_process", {"host": True}, timeout=2) as run:
                ours = sleeping(row.nested() for row in run.rows())
        finally:
            sleeper.kill()
    assert ours == theirs
    assert ours["comm"] == "sleep"


def listed(line: str) -> list[Any]:
    told = json.loads(line)
    return told if isinstance(told, list) else [told]


def sleeping(rows: Iterator[Any]) -> Any:
    (row,) = [row for row in rows if row["comm"] == "sleep"]
    return row


def test_what_it_does_not_take(host: RemoteRuntime) -> None:
    with pytest.raises(igsdk.UsageError, match="Did you mean"):
        host.run("trace_open", {"cmm": "cat"})
    with pytest.raises(igsdk.RunRefused, match=r"no\.such.* not found"):
        host.run("trace_open", {"host": True, "filter": "no.such==1"}).__enter__()
