# SPDX-License-Identifier: Apache-2.0
"""Servers that are down, refuse, are busy, break off or lie: cause, remedy, nothing twice."""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pytest
from tests.support.held import MIB, profile, row
from tests.support.push_server import Answer, PushServer, Request, push_server, refusal
from tests.support.registry import free_port

import igsdk
from igsdk.sinks import routes
from igsdk.sinks.http import Login
from igsdk.sinks.pyroscope import Pyroscope

HELD = row(in_use=3 * MIB, allocated=9 * MIB)
LATER = row(in_use=4 * MIB, allocated=12 * MIB)


@pytest.fixture
def server() -> Iterator[PushServer]:
    with push_server() as running:
        yield running


def once(answer: Answer) -> object:
    """A mood that passes after one answer."""
    left = [answer]
    return lambda _: left.pop() if left else None


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (refusal(401, "unauthenticated", "no org id"), igsdk.PushRefused, "401.*no org id"),
        (Answer(403, b"<html>", "text/html"), igsdk.PushRefused, "refuses with 403"),
        (refusal(400, "invalid_argument", "bad label"), igsdk.PushRefused, "400.*bad label"),
        (Answer(413, b"too large\n", "text/plain"), igsdk.PushRefused, "413 .too large.*Raise"),
        (Answer(415), igsdk.PushRefused, "refuses with 415"),
        (Answer(422, b'{"message": "x"}'), igsdk.PushRefused, "422 .x"),
        (refusal(429, "resource_exhausted", "rate"), igsdk.PushRefused, "429.*less often"),
        (refusal(400, "x", "not_in_ingestion_window: old"), igsdk.PushRefused, "too old"),
        (refusal(503, "unavailable", "soon"), igsdk.TargetUnavailable, "503.*soon"),
        (refusal(500, "unknown", "boom"), igsdk.TargetUnavailable, "500.*boom"),
        (Answer(504, b"a" * 5000, "text/plain"), igsdk.TargetUnavailable, "504 .a+ …"),
        (Answer(cut=True), igsdk.TargetUnavailable, "broke the connection off"),
        (Answer(200, b"<html>Sign in", "text/html"), igsdk.AnswerInvalid, "text/html.*login"),
    ],
    ids=lambda value: getattr(value, "status", None) and f"{value.status}",
)
def test_refusals(
    server: PushServer, answer: Answer, error: type[igsdk.IgsdkError], words: str
) -> None:
    server.mood = lambda _: answer
    with pytest.raises(error, match=words) as caught:
        profile(HELD).push(server.url, patience=0)
    assert caught.value.cause.endswith(".")
    assert caught.value.remedy.endswith(".")
    assert len(server.pushes) == 1


def test_nobody_there() -> None:
    with pytest.raises(igsdk.TargetUnavailable, match=r"cannot be reached: Connection refused"):
        profile(HELD).push(f"http://127.0.0.1:{free_port()}", patience=0)


def test_no_tls_there(server: PushServer) -> None:
    with pytest.raises(igsdk.TargetUnavailable, match="No TLS with 127"):
        profile(HELD).push(server.url.replace("http:", "https:"), patience=0)


def test_silence_has_an_end(server: PushServer) -> None:
    server.mood = lambda _: time.sleep(1.5)
    pushed = Pyroscope(server.url, timeout=0.3).push(profile(HELD))
    assert "did not answer within 0.3 s" in str(pushed.error)
    assert (pushed.stored, pushed.unknown, pushed.unknown_bytes) == (0, 1, 9 * MIB)


def test_no_pyroscope_at_all(server: PushServer) -> None:
    """It has neither the push service nor the older way."""
    server.mood = lambda _: Answer(404, b"404 page not found\n", "text/plain")
    with pytest.raises(igsdk.PushRefused, match=r"404 .404 page not found.*it ends before"):
        profile(HELD).push(f"{server.url}/elsewhere", patience=0)
    assert [request.path.split("?")[0] for request in server.requests] == [
        "/elsewhere/push.v1.PusherService/Push",
        "/elsewhere/ingest",
    ]


def test_redirects_get_nothing(server: PushServer) -> None:
    with push_server() as other:
        moved = {"Location": f"{other.url}/push.v1.PusherService/Push"}
        server.mood = lambda _: Answer(307, headers=moved)
        with pytest.raises(igsdk.PushRefused, match="sends us elsewhere"):
            profile(HELD).push(server.url, token="secret", patience=0)
        assert other.requests == []


def test_patience_until_it_takes_it(server: PushServer) -> None:
    moods = iter([refusal(429, "resource_exhausted", "rate", Retry_After="0"), None])
    server.mood = lambda _: next(moods)
    assert profile(HELD).push(server.url).stored == 1
    assert server.total("alloc_space") == 9 * MIB


def test_a_wait_that_is_asked_for_is_kept(server: PushServer) -> None:
    server.mood = lambda _: refusal(429, "resource_exhausted", "rate", Retry_After="120")
    pushed = Pyroscope(server.url, patience=5).push(profile(HELD))
    assert (pushed.wait, len(server.pushes)) == (120.0, 1)
    date = formatdate(time.time() + 60, usegmt=True)
    server.mood = lambda _: refusal(503, "unavailable", "soon", Retry_After=date)
    assert Pyroscope(server.url).push(profile(HELD)).wait == pytest.approx(60, abs=2)


@pytest.mark.parametrize(
    "answer", [refusal(429, "resource_exhausted", "x"), refusal(503, "unavailable", "x")]
)
def test_what_surely_did_not_arrive_comes_next_time(server: PushServer, answer: Answer) -> None:
    server.mood = once(answer)  # type: ignore[assignment]
    ours = Pyroscope(server.url)
    assert ours.push(profile(HELD)).refused == 1
    assert ours.push(profile(LATER)).error is None
    assert server.total("alloc_space") == 12 * MIB


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("answer", [Answer(500), Answer(cut=True)], ids=["500", "cut"])
def test_what_may_have_arrived_is_not_sent_again(
    server: PushServer, answer: Answer, store: bool
) -> None:
    """Whether the server stored it or not: never twice, and what may be missing is told."""
    answer.store = store
    server.mood = once(answer)  # type: ignore[assignment]
    ours = Pyroscope(server.url, patience=5)
    pushed = ours.push(profile(HELD))
    assert (pushed.unknown, pushed.unknown_bytes) == (1, 9 * MIB)
    ours.push(profile(LATER))
    assert server.total("alloc_space") == (12 if store else 3) * MIB
    answer.store = False


def test_after_a_failure_for_all_nothing_else_is_at_stake(server: PushServer) -> None:
    """Of twenty series only one is sent into the dark."""
    many = profile(*(row(in_use=MIB, allocated=MIB, pod=f"p{number}") for number in range(20)))
    server.mood = lambda _: Answer(500)
    pushed = Pyroscope(server.url).push(many)
    assert (pushed.stored, pushed.unknown, pushed.refused) == (0, 1, 19)
    assert len(server.pushes) == 1


def test_one_bad_series_does_not_stop_the_others(server: PushServer) -> None:
    numbers = itertools.count()

    def fifth(_: Request) -> Answer | None:
        return refusal(400, "invalid_argument", "series limit") if next(numbers) == 4 else None

    server.mood = fifth
    many = [row(in_use=MIB, allocated=MIB, pod=f"p{number}") for number in range(10)]
    ours = Pyroscope(server.url)
    pushed = ours.push(profile(*many))
    assert (pushed.stored, pushed.refused) == (9, 1)
    assert "series limit" in str(pushed.error)
    ours.push(profile(*many))
    assert server.total("alloc_space") == 10 * MIB


def test_liars(server: PushServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the profile, says so, and shows nothing of it, however often it is asked."""
    monkeypatch.setattr("igsdk.sinks.pyroscope._SHOWN_AFTER", (0.0, 0.01))
    server.shows = False
    with pytest.raises(igsdk.PushRefused, match="shows nothing of it yet"):
        profile(HELD).push(server.url)
    assert len(server.requests) == 3


def test_who_may_not_read_is_believed(server: PushServer) -> None:
    server.shows = None
    pushed = profile(HELD).push(server.url)
    assert (pushed.stored, pushed.shown) == (1, None)
    assert len(server.requests) == 2


def test_without_urllib3_the_extra_is_named(
    server: PushServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "urllib3", None)
    with pytest.raises(igsdk.ExtensionMissing, match=r"igsdk\[forward\]"):
        profile(HELD).push(server.url)


@pytest.mark.parametrize("text", ["9" * 5000, "Thu, 01 Jan 99999 00:00:00 GMT", "soon"])
def test_a_wait_that_makes_no_sense_is_none(server: PushServer, text: str) -> None:
    server.mood = lambda _: refusal(503, "unavailable", "soon", **{"Retry-After": text})
    pushed = Pyroscope(server.url).push(profile(HELD))
    assert "503" in str(pushed.error)


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"flamegraph": {"total": Infinity}}', b"[]"])
def test_answers_that_nobody_can_read(
    server: PushServer, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_merged", lambda _: Answer(200, body))
    pushed = Pyroscope(server.url).push(profile(HELD), verify=True)
    assert (pushed.stored, pushed.shown) == (1, None)
    server.mood = lambda _: Answer(400, body)
    assert "400" in str(Pyroscope(server.url).push(profile(HELD)).error)


@pytest.mark.parametrize("number", [0, 5])
def test_a_push_that_is_broken_off_counts_nothing_twice(
    number: int, server: PushServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some were stored, one perhaps: what was told of them is not told again."""
    rows = [row(in_use=MIB, allocated=MIB, pod=f"p{each}") for each in range(10)]
    ours, real, numbers = Pyroscope(server.url), routes.push, itertools.count()

    def push(*arguments: Any) -> Any:
        outcome = real(*arguments)
        if next(numbers) == number:
            raise KeyboardInterrupt
        return outcome

    monkeypatch.setattr(routes, "push", push)
    with pytest.raises(KeyboardInterrupt):
        ours.push(profile(*rows))
    assert server.total("alloc_space") >= MIB
    assert ours.push(profile(*rows)).error is None
    assert server.total("alloc_space") == 10 * MIB


def test_a_proxy_that_wants_a_login(server: PushServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.url.replace("//", "//me:p%40ss@"))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert Pyroscope("http://pyroscope.invalid:4040").push(profile(HELD)).stored == 1
    login = server.pushes[0].headers["proxy-authorization"].removeprefix("Basic ")
    assert base64.b64decode(login) == b"me:p@ss"


def test_a_login_that_can_be_none_is_not_taken(server: PushServer) -> None:
    ours = Pyroscope(server.url, token="good")
    with pytest.raises(igsdk.UsageError, match="no header"):
        ours.set_login(Login(token="two\nlines"))
    ours.push(profile(HELD))
    assert server.pushes[0].headers["authorization"] == "Bearer good"


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(Login("me", "secret", "secret", headers={"X": "secret"}))
