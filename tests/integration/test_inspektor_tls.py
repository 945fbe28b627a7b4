# SPDX-License-Identifier: Apache-2.0
"""TLS and what `igsdk doctor` says, with a real Inspektor Gadget daemon."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.support import tiny
from tests.support.certificates import authority
from tests.support.inspektor_daemon import ANY_IMAGE, ig_program, inspektor_daemon

import igsdk
from igsdk._doctor import look
from igsdk.cli.app import run as igsdk_command


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ig_program()
    path = tmp_path_factory.mktemp("image") / "tiny.tar"
    assert igsdk_command(["gadget", "build", str(tiny.SOURCE), "-o", str(path)]) == 0
    return path


def test_certificates_on_both_sides(image: Path, tmp_path: Path) -> None:
    ours = authority(tmp_path)
    cert, key = ours.sign("localhost", "127.0.0.1")
    mine, my_key = ours.sign("me")
    options = ["--tls-cert-file", str(cert), "--tls-key-file", str(key)]
    options += ["--tls-client-ca-file", str(ours.file), *ANY_IMAGE]
    address = f"tcp://127.0.0.1:{free_port()}"
    with inspektor_daemon(tmp_path, image, address=address, options=options):
        target = f"{address.replace('tcp', 'tcp+tls')}?ca={ours.file}&cert={mine}&key={my_key}"
        found = {check.name: check for check in look(target, "tiny").checks}
        assert "TLSv1.3" in found["encryption"].detail
        assert {found[name].state for name in ("connection", "image", "gadget")} == {"ok"}
        with igsdk.connect(target) as host, host.run("tiny", {"host": True}, timeout=2) as run:
            assert run.collect()["totals"].rows > 0
        with pytest.raises(igsdk.TargetUnavailable, match="asks for a certificate of ours"):
            igsdk.connect(f"{address.replace('tcp', 'tcp+tls')}?ca={ours.file}")
        with pytest.raises(igsdk.TargetUnavailable, match="speaks over TLS"):
            igsdk.connect(address)


def test_a_daemon_that_asks_for_signatures(image: Path, tmp_path: Path) -> None:
    with inspektor_daemon(tmp_path, image, options=["--tls-insecure"]) as daemon:
        found = look(daemon.target, "tiny")
        assert found.code == 13
        (check,) = [check for check in found.checks if check.state == "fail"]
        assert check.name == "signature"
        there = look(daemon.target, "nothing_of_the_sort")
        assert [check.name for check in there.checks if check.state == "fail"] == ["image"]
