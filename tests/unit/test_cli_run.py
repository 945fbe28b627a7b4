# SPDX-License-Identifier: Apache-2.0
"""`igsdk run`: any gadget's rows, on lines for people and for programs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import gadget_packets as gp
from tests.support.gadget_server import (
    GadgetServer,
    Refusal,
    described,
    gadget_server,
    log,
    serving_process,
)

from igsdk._proto import gadget_pb2 as pb
from igsdk.cli.app import run

SPECS = [
    gp.Spec("proc.pid", gp.UINT32, 4),
    gp.Spec("proc.comm", gp.CSTRING, 16),
    gp.Spec("load", gp.FLOAT64, 8),
    gp.Spec("sums", gp.ARRAY | gp.UINT16, 4, flags=gp.HIDDEN),
    gp.Spec("raw", gp.BYTES, flags=gp.HIDDEN),
    gp.Spec("ok", gp.BOOL),
]
ROW = [7, "a \x1b\nb", float("nan"), (1, 2), b"\0\xff", True]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GadgetServer]:
    with gadget_server(tmp_path / "socket") as ours:
        source = gp.source("opens", SPECS)
        source.fields[0].annotations["columns.width"] = "10"
        source.fields[1].annotations["description"] = "Process name"
        source.fields[5].order = -1
        ours.describe = lambda request: pb.GadgetInfo(
            imageName=request.imageName,
            dataSources=[source],
            params=[
                pb.Param(
                    key="pid",
                    prefix="operator.oci.ebpf.",
                    typeHint="uint32",
                    defaultValue="0",
                    description="Only this\n process",
                )
            ],
        )
        ours.run = lambda session: iter(
            (described(source), log(3, "no containers"), gp.packet([gp.element(SPECS, ROW)], 1))
        )
        yield ours


def test_lines_for_people(server: GadgetServer, capsys: Any) -> None:
    assert run(["run", "opens:latest", "--target", server.target]) == 0
    out, err = capsys.readouterr()
    assert out == (
        "OK               PROC.PID   PROC.COMM        LOAD\n"
        "true             7          a \\x1b b            nan\n"
    )
    assert err == "igsdk: warning: no containers\n"


def test_lines_for_programs(server: GadgetServer, capsys: Any) -> None:
    argv = ["run", "opens", "--target", server.target, "--json", "-p", "pid=7"]
    assert run(argv) == 0
    assert json.loads(capsys.readouterr().out) == {
        "source": "opens",
        "row": {
            "proc": {"pid": 7, "comm": "a \x1b\nb"},
            "load": None,
            "sums": [1, 2],
            "raw": "00ff",
            "ok": True,
        },
    }
    request = server.sessions[0].request.runRequest
    assert dict(request.paramValues) == {"operator.oci.ebpf.pid": "7"}
    assert request.logLevel == 3


def test_what_a_gadget_takes_and_gives(server: GadgetServer, capsys: Any) -> None:
    assert run(["run", "opens", "--target", server.target, "--describe"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "opens: rows each interval, 6 fields",
        "  proc.pid                         uint32",
        "  proc.comm                        cstring    Process name",
        "  load                             float64",
        "  sums                             uint16[]     (hidden)",
        "  raw                              bytes        (hidden)",
        "  ok                               bool",
        "parameters:",
        "  pid = 0  (uint32)",
        "      operator.oci.ebpf.pid",
        "      Only this process",
    ]
    assert run(["run", "opens", "--target", server.target, "--describe", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [field["name"] for field in told["sources"]["opens"]["fields"]] == [
        spec.name for spec in SPECS
    ]
    assert told["parameters"][0]["key"] == "operator.oci.ebpf.pid"
    assert server.sessions == []


def test_what_is_missing_is_said(server: GadgetServer, capsys: Any) -> None:
    source = gp.source("opens", SPECS)
    server.run = lambda session: iter(
        (described(source), gp.packet([pb.DataElement(), gp.element(SPECS, ROW)], 5))
    )
    assert run(["run", "opens", "--target", server.target]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert err == (
        "igsdk: not all is as it was sent: 4 packets dropped by the daemon; 1 row not readable.\n"
    )


def test_a_daemon_that_refuses(server: GadgetServer, capsys: Any) -> None:
    def refuse(request: pb.GetGadgetInfoRequest) -> pb.GadgetInfo:
        raise Refusal("ensuring image: verifying image signature: no key")

    server.describe = refuse
    assert run(["run", "opens", "--target", server.target]) == 13
    out, err = capsys.readouterr()
    assert out == ""
    assert "no key. Sign the image" in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--target", "local:"], 9, "unix:///PATH"),
        (["--target", "unix:///nowhere/at/all"], 9, "There is no socket"),
        (["-p", "pid"], 2, "KEY=VALUE"),
        (["-p", "pdi=1"], 2, "Did you mean pid"),
        (["--source", "closes"], 2, "There are: opens"),
        (["--log-level", "loud"], 2, "log level"),
    ],
)
def test_what_makes_no_sense(
    server: GadgetServer, capsys: Any, arguments: list[str], code: int, words: str
) -> None:
    target = [] if "--target" in arguments else ["--target", server.target]
    assert run(["run", "opens", *target, *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


def test_it_ends_after_the_duration(tmp_path: Path, capsys: Any) -> None:
    with serving_process(tmp_path / "socket") as (_, target):
        started = time.monotonic()
        assert run(["run", "opens", "--target", target, "--json", "--duration", "300ms"]) == 0
        assert 0.3 <= time.monotonic() - started < 10
    rows = [json.loads(line)["row"]["pid"] for line in capsys.readouterr().out.splitlines()]
    assert rows == list(range(1, len(rows) + 1))
    assert len(rows) > 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_well(tmp_path: Path, number: int) -> None:
    with serving_process(tmp_path / "socket") as (_, target):
        argv = [sys.executable, "-m", "igsdk.cli", "run", "opens", "--target", target, "--json"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert b'"pid":1' in process.stdout.readline()
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")
    assert all(json.loads(line)["source"] == "opens" for line in out.splitlines())


def test_a_daemon_that_is_killed_is_an_error(tmp_path: Path) -> None:
    with serving_process(tmp_path / "socket") as (daemon, target):
        argv = [sys.executable, "-m", "igsdk.cli", "run", "opens", "--target", target, "--json"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            daemon.kill()
            _, err = process.communicate(timeout=30)
    assert process.returncode == 9
    assert b"ended" in err
    assert b"Traceback" not in err
