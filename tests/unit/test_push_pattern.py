# SPDX-License-Identifier: Apache-2.0
"""A push has the shape of one by Pyroscope's own client for Python, which is run here."""

from __future__ import annotations

import subprocess
import sys
import uuid

import pytest
from tests.support.held import MIB, profile, row
from tests.support.push_server import PushServer, Sample, basic, push_server, read

SERVICE = """
import sys, time, pyroscope
pyroscope.configure(application_name="theirs", server_address=sys.argv[1], tags={"env": "test"},
                    tenant_id="team", basic_auth_username="me", basic_auth_password="secret",
                    upload_interval=1)
ends = time.monotonic() + 1.5
while time.monotonic() < ends:
    sum(range(10_000))
pyroscope.shutdown()
"""
WHO = {"authorization": basic("me", "secret"), "x-scope-orgid": "team"}


def shape(server: PushServer) -> tuple[dict[str, str], Sample]:
    """What must be alike of a first push: path, headers that mean something, the sample."""
    request = server.pushes[0]
    names = ("content-type", "content-encoding", *WHO)
    (sample,) = read(request)
    assert request.path == "/push.v1.PusherService/Push"
    assert str(uuid.UUID(sample.ID)) == sample.ID
    return {name: request.headers[name] for name in names}, sample


def test_ours_is_theirs() -> None:
    pytest.importorskip("pyroscope", reason="pyroscope-io is not installed")
    with push_server() as theirs:
        subprocess.run([sys.executable, "-c", SERVICE, theirs.url], check=True, timeout=60)
        their_headers, their_sample = shape(theirs)
    with push_server() as ours:
        held, labels = profile(row(in_use=MIB)), {"env": "test"}
        held.push(ours.url, labels=labels, tenant="team", user="me", password="secret")
        our_headers, our_sample = shape(ours)

    assert our_headers == their_headers
    assert our_headers.items() >= WHO.items()
    common = {"__name__", "service_name", "env"}
    assert common <= their_sample.labels.keys() & our_sample.labels.keys()
    assert their_sample.values
    for message in (their_sample.message, our_sample.message):
        assert message.time_nanos > 10**18
        assert message.period_type.type
        assert message.string_table[0] == ""
        assert all(location.id for location in message.location)
        assert not any(sample.label for sample in message.sample)
