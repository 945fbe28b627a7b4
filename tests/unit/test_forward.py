# SPDX-License-Identifier: Apache-2.0
"""Pushing again and again: what is said once, what is kept, when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.held import MIB, profile, row
from tests.support.push_server import Answer, PushServer, push_server, refusal
from tests.support.registry import free_port

import igsdk
from igsdk.cli.forward import forward
from igsdk.sinks.forward import Forwarder
from igsdk.sinks.pyroscope import Pyroscope


class Growing:
    """A run whose one process allocates a MiB between two looks."""

    def __init__(self) -> None:
        self.allocated = 0

    def profile(self) -> igsdk.Profile:
        self.allocated += MIB
        return profile(row(in_use=MIB, allocated=self.allocated))


@pytest.fixture
def server() -> Iterator[PushServer]:
    with push_server() as running:
        yield running


def forwarder(
    server: PushServer, run: Growing, say: Callable[[str], None] = print, interval: float = 0.01
) -> Forwarder:
    return Forwarder(run.profile, Pyroscope(server.url, timeout=5), interval, say)


def test_each_push_has_the_state_and_what_is_new(server: PushServer) -> None:
    ours = forwarder(server, Growing())
    for _ in range(3):
        ours.push()
    assert [s.total("alloc_space") for s in server.samples] == [MIB, MIB, MIB]
    assert [s.total("inuse_space") for s in server.samples] == [MIB, MIB, MIB]
    assert ours.summary() == "pushed 3 profiles in 3 series."
    assert [r.path for r in server.requests].count(server.requests[1].path) == 1  # asked once


def test_an_outage_is_told_at_its_start_and_at_its_end(server: PushServer) -> None:
    said: list[str] = []
    ours = forwarder(server, Growing(), said.append)
    ours.push()
    server.mood = lambda _: refusal(503, "unavailable", "soon")
    for _ in range(5):
        ours.push()
    server.mood = lambda _: None
    ours.push()
    assert server.total("alloc_space") == 7 * MIB
    assert len(said) == 2
    assert "503" in said[0]
    assert said[0].endswith("Goes on trying; what is allocated meanwhile is kept.")
    assert "5 states in all could not be sent; allocations are complete" in said[1]


def test_what_may_be_missing_is_told(server: PushServer) -> None:
    ours = forwarder(server, Growing(), lambda _: None)
    ours.push()
    server.mood = lambda _: Answer(502)
    ours.push()
    server.mood = lambda _: None
    ours.push()
    assert server.total("alloc_space") == 2 * MIB
    assert "allocations of 1.00 MiB may be missing" in ours.summary()


def test_the_first_push_must_not_be_refused(server: PushServer) -> None:
    server.mood = lambda _: refusal(401, "unauthenticated", "no org id")
    with pytest.raises(igsdk.PushRefused, match="401"):
        forwarder(server, Growing()).push()


def test_a_later_refusal_may_pass(server: PushServer) -> None:
    """A token that has run out is soon replaced."""
    said: list[str] = []
    ours = forwarder(server, Growing(), said.append)
    ours.push()
    server.mood = lambda _: refusal(401, "unauthenticated", "expired")
    ours.push()
    assert isinstance(ours.error, igsdk.PushRefused)
    server.mood = lambda _: None
    ours.push()
    assert (ours.error, len(said), server.total("alloc_space")) == (None, 2, 3 * MIB)


def test_who_shows_nothing_is_asked_until_it_does(
    server: PushServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A current server of two storages shows a new tenant nothing for its first minute."""
    said: list[str] = []
    monkeypatch.setattr("igsdk.sinks.pyroscope._SHOWN_AFTER", (0.0,))
    ours = forwarder(server, Growing(), said.append)
    server.shows = False
    ours.push()
    ours.push()
    assert isinstance(ours.error, igsdk.PushRefused)
    assert "shows nothing of it yet" in said[0]
    server.shows = True
    ours.push()
    ours.push()
    assert (ours.error, len(said)) == (None, 2)
    assert server.total("alloc_space") == 4 * MIB
    assert len(server.requests) == 4 + 3  # the fourth was believed


def test_a_wait_that_the_server_asks_for_is_kept(server: PushServer) -> None:
    ours = forwarder(server, Growing(), lambda _: None, interval=1)
    server.mood = lambda _: refusal(429, "resource_exhausted", "rate", Retry_After="40")
    ours.push()
    assert 20 <= ours.left() <= 41


def fails(*arguments: str) -> igsdk.IgsdkError:
    error = CliRunner().invoke(forward, arguments).exception
    assert isinstance(error, igsdk.IgsdkError), error
    return error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--label", "env"], "is no label"),
        (["--label", "a.b=c"], "no name for a label"),
        (["--user", "me"], "go together"),
        (["--token-file", "/nowhere"], "/nowhere cannot be read"),
        (["--name", "gpu-memory"], "no name for profiles"),
        (["--target", "local:", "--node", "n1"], "has no nodes"),
    ],
)
def test_options_that_make_no_sense(server: PushServer, arguments: list[str], words: str) -> None:
    error = fails("--pyroscope", server.url, *arguments)
    assert isinstance(error, igsdk.UsageError)
    assert words in str(error)
    assert not server.samples


def test_a_server_that_refuses_is_told_before_anything_is_traced(
    server: PushServer, tmp_path: Path
) -> None:
    server.mood = lambda _: refusal(401, "unauthenticated", "no org id")
    token = tmp_path / "token"
    token.write_text("abc\n")
    error = fails("--pyroscope", server.url, "--token-file", str(token), "--target", "smoke:")
    assert isinstance(error, igsdk.PushRefused)
    assert server.requests[0].headers["authorization"] == "Bearer abc"


def test_a_server_that_is_down_is_not_the_end() -> None:
    """It says so, and goes on to the target, which here is none."""
    result = CliRunner().invoke(
        forward, ["--pyroscope", f"http://127.0.0.1:{free_port()}", "--target", "smoke:"]
    )
    assert isinstance(result.exception, igsdk.UsageError)
    assert "pushes when it can" in result.stderr
