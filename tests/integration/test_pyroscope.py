# SPDX-License-Identifier: Apache-2.0
"""Into a real Pyroscope and out again by its queries: v0.37.2, and what IGSDK_TEST_PYROSCOPE names.

The old server has no push service, so this is the way by ``/ingest``; current servers' way is
in ``tests/unit/test_push.py``, and here where there is one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import simdriver
from tests.support.agents import agent_process
from tests.support.held import BACKWARD, MAIN, MALLOC, MIB, NAMELESS, profile, row
from tests.support.pyroscope import Server, running

import igsdk
from igsdk.sinks.forward import Forwarder
from igsdk.sinks.pyroscope import Pyroscope

EXAMPLE = Path(__file__).parents[2] / "examples" / "push_service.py"
FORWARD = [sys.executable, "-m", "igsdk.cli", "forward"]
SETUP = "cuInit 0; cuDevicePrimaryCtxRetain &c 0; cuCtxSetCurrent c"
GIB = 1 << 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("pyroscope")) as ours:
        yield ours


@pytest.fixture
def service() -> str:
    """A name of this test's own, since all of them share a server."""
    return f"s{uuid.uuid4().hex[:8]}"


def test_what_goes_in_comes_out(server: Server, service: str) -> None:
    """Stacks, values beyond 32 bits, labels with odd characters, a type for each class."""
    rows = [
        row(in_use=140 * GIB, allocated=200 * GIB, pod="vllm-0", device='MIG "a", {b}'),
        row((MALLOC, BACKWARD, NAMELESS, MAIN), in_use=MIB, allocated=MIB, pod="vllm-1"),
        row(in_use=5 * MIB, allocated=5 * MIB, kind="registered", host="registered"),
    ]
    now = time.time()
    pushed = profile(*rows).push(server.url, labels={"service_name": service}, at=now)

    assert (pushed.route, pushed.stored, pushed.shown) == ("ingest", 3, True)
    name = f"{service}.gpu_memory"
    assert server.stacks(f'{name}.inuse_space{{pod="vllm-0"}}', now) == {
        "main;forward;cuMemAlloc_v2": 140 * GIB
    }
    assert server.stacks(f'{name}.inuse_space{{pod="vllm-1"}}', now) == {
        "main;libfast.so+0x1234;backward;cuMemAlloc_v2": MIB
    }
    server.becomes(200 * 1024 + 1, f"{name}.alloc_objects{{}}", now, now)
    assert server.stacks(f"{name}.alloc_objects{{}}", now) == {
        "main;forward;cuMemAlloc_v2": 200 * 1024,
        "main;libfast.so+0x1234;backward;cuMemAlloc_v2": 1,
    }
    assert server.becomes(5 * MIB, f"{name}_registered.alloc_space{{}}", now, now) == 5 * MIB
    kinds = {one.rpartition(".")[2] for one in server.applications() if one.startswith(service)}
    assert kinds == {"inuse_space", "inuse_objects", "alloc_space", "alloc_objects"}
    devices = json.loads(server.ask("/label-values", label="device"))
    assert "MIG_a_b_" in devices


def test_pushes_add_up_to_what_was_allocated(server: Server, service: str) -> None:
    ours = Pyroscope(server.url, labels={"service_name": service})
    now = time.time() // 10 * 10 - 60
    for step, allocated in enumerate((3, 3, 10)):
        ours.push(profile(row(in_use=MIB, allocated=allocated * MIB)), at=now + 10 * step)
    query = f"{service}.gpu_memory.alloc_space{{}}"
    assert server.becomes(10 * MIB, query, now, now + 30) == 10 * MIB
    query = f"{service}.gpu_memory.inuse_space{{}}"
    assert server.becomes(MIB, query, now, now + 30) == MIB  # of states it shows the average


def test_through_an_outage(server: Server, service: str) -> None:
    """The server ends and comes back with its data; allocations are whole, states are missed."""
    said: list[str] = []
    allocated = iter([2, 5, 9, 11])
    forwarder = Forwarder(
        lambda: profile(row(in_use=MIB, allocated=next(allocated) * MIB)),
        Pyroscope(server.url, labels={"service_name": service}),
        interval=0.01,
        say=said.append,
    )
    began = time.time()
    forwarder.push()
    server.stop()
    forwarder.push()
    forwarder.push()
    assert forwarder.error is not None
    server.start()
    forwarder.push()
    assert forwarder.error is None

    query = f"{service}.gpu_memory.alloc_space{{}}"
    assert server.becomes(11 * MIB, query, began - 10, time.time() + 1) == 11 * MIB
    assert (forwarder.tally.pushed, forwarder.tally.skipped) == (2, 2)
    assert "cannot be reached" in said[0]
    assert "takes profiles again" in said[1]
    assert "2 states" in said[1]
    assert len(said) == 2


def _play(script: str) -> subprocess.Popen[bytes]:
    """A service on the simulated driver."""
    driver = simdriver.build()
    return subprocess.Popen(
        [driver.play, "-e", script], env=driver.environment(devices="1G"), stdin=subprocess.DEVNULL
    )


@pytest.mark.skipif(os.getuid() != 0, reason="tracing takes root")
def test_forward_a_service(server: Server, service: str, tmp_path: Path) -> None:
    """`igsdk forward` until ctrl-C: allocations as the driver made them, in use as it is."""
    began = time.time()
    work = "sleep 300; alloc &p 3M; alloc &q 2M; free q"
    go = tmp_path / "go"
    played = _play(f"{SETUP}; await {go}; repeat 4 {{ {work} }}; sleep 60000")
    command = [*FORWARD, "--pyroscope", server.url, "--pid", str(played.pid), "--interval", "1s"]
    command += ["--label", f"service_name={service}", "--label", "env=test"]
    forward = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    query = f'{service}.gpu_memory.alloc_space{{env="test"}}'
    try:
        assert forward.stderr is not None
        assert "pushes to" in forward.stderr.readline()
        go.touch()
        ends = time.monotonic() + 40
        while time.monotonic() < ends and _sum(server, query, began) < 20 * MIB:
            time.sleep(0.2)
        forward.send_signal(signal.SIGINT)
        said = forward.communicate(timeout=30)[1]
    finally:
        forward.kill()
        played.kill()
        played.wait()
    assert forward.returncode == 0, said
    assert server.becomes(20 * MIB, query, began - 10, time.time() + 1) == 20 * MIB
    (stack,) = server.stacks(f"{service}.gpu_memory.inuse_space{{}}", time.time() - 1) or [""]
    assert stack.endswith("allocate_leaf;cuMemAlloc_v2")
    assert "pushed" in said.splitlines()[-1]


@pytest.mark.skipif(os.getuid() != 0, reason="tracing takes root")
def test_forward_from_an_agent(server: Server, service: str, tmp_path: Path) -> None:
    """Over `igsdk agent`, once: what was allocated and never freed is what is in use."""
    socket = Path(tempfile.mkdtemp(prefix="igsdk-agent-")) / "s"
    began, labels = time.time(), ["--label", f"service_name={service}"]
    with agent_process(socket):
        played = _play(f"{SETUP}; repeat 2000 {{ sleep 50; alloc &p 1K }}")
        try:
            command = [*FORWARD, "--pyroscope", server.url, "--target", f"unix://{socket}"]
            command += ["--pid", str(played.pid), "--once", "--interval", "2s", *labels]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        finally:
            played.kill()
            played.wait()
    assert done.returncode == 0, done.stderr
    name = f"{service}.gpu_memory"
    held = _sum(server, f"{name}.inuse_space{{}}", began)  # shown, as it was verified
    assert held >= 1024, done.stderr
    query = f"{name}.alloc_space{{}}"
    assert server.becomes(held, query, began - 10, time.time() + 1) == held


def _sum(server: Server, query: str, began: float) -> int:
    return server.sum(query, began - 10, time.time() + 1)


def test_forward_ends_where_it_is_refused(server: Server) -> None:
    """A wrong path is a mistake that time does not heal: told before anything is traced."""
    command = [*FORWARD, "--pyroscope", f"{server.url}/wrong"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == igsdk.PushRefused.exit_code
    assert "refuses with 404" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.getuid() != 0, reason="tracing takes root")
def test_the_example(server: Server) -> None:
    began = time.time()
    played = _play(f"{SETUP}; repeat 1000 {{ sleep 100; alloc &p 1M }}")
    try:
        command = [sys.executable, str(EXAMPLE), str(played.pid), server.url, "1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    finally:
        played.kill()
        played.wait()
    assert done.returncode == 0, done.stderr
    held = int(done.stdout.split()[0])
    assert held >= MIB
    query = "play.gpu_memory.inuse_space{}"
    assert server.becomes(held, query, began - 10, time.time() + 1) == held


@pytest.mark.skipif(
    "IGSDK_TEST_PYROSCOPE" not in os.environ,
    reason="IGSDK_TEST_PYROSCOPE names no server: http://HOST:4040 of a current Pyroscope",
)
def test_a_current_server(service: str) -> None:
    """The push service, and its own query in the end."""
    url = os.environ["IGSDK_TEST_PYROSCOPE"]
    ours = Pyroscope(url, labels={"service_name": service}, verify=True)
    now = time.time()
    rows = [
        row(in_use=140 * GIB, allocated=200 * GIB),
        row((MALLOC, BACKWARD, NAMELESS, MAIN), in_use=MIB, allocated=MIB),
        row(in_use=MIB, kind="registered", host="registered"),
    ]
    pushed = ours.push(profile(*rows), at=now)
    assert (pushed.error, pushed.route, pushed.shown) == (None, "push", True)
    rows[0] = row(in_use=100 * GIB, allocated=210 * GIB)
    assert ours.push(profile(*rows), at=now + 1).error is None

    assert _merged(url, service, "gpu_memory:alloc_space", now) == 210 * GIB + MIB
    assert _merged(url, service, "gpu_memory_registered:inuse_space", now) == 2 * MIB


def _merged(url: str, service: str, kind: str, now: float) -> int:
    asked = {
        "profileTypeID": f"{kind}:bytes:space:bytes",
        "labelSelector": f'{{service_name="{service}"}}',
        "start": int(now * 1000) - 10_000,
        "end": int(now * 1000) + 10_000,
    }
    request = urllib.request.Request(
        f"{url}/querier.v1.QuerierService/SelectMergeStacktraces",
        json.dumps(asked).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return int(json.load(answer)["flamegraph"]["total"])
