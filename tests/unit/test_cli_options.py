# SPDX-License-Identifier: Apache-2.0
"""How durations, selections and filters are read."""

from __future__ import annotations

import os
from typing import Any

import click
import pytest

from igsdk import UsageError
from igsdk._abi import MOST_LIVE_ENTRIES
from igsdk.cli.options import Duration, Number, run_settings

NOTHING: dict[str, Any] = {
    "cmd": (),
    "pid": (),
    "command": None,
    "mount_ns": None,
    "user": None,
    "no_stacks": False,
    "live_entries": None,
    "gadget": None,
    "plain_http": False,
}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("30s", 30), ("5m", 300), ("5min", 300), ("1.5h", 5400), ("250ms", 0.25)],
)
def test_durations(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "0", "0s", "-3", "3 weeks", "1e3", "m", "nan", "inf"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration().convert(text, None, None)


def test_numbers() -> None:
    assert Number("number").convert("4711", None, None) == 4711
    assert Number("number", MOST_LIVE_ENTRIES).convert("67108864", None, None) == 1 << 26


@pytest.mark.parametrize("text", ["", "0", "-3", "1.5", "x", "67108865"])
def test_numbers_that_are_none(text: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        Number("number of entries", MOST_LIVE_ENTRIES).convert(text, None, None)
    assert "<=" not in caught.value.message
    assert ("67108864 is the largest" in caught.value.message) is (text == "67108865")


def test_a_command_takes_no_filters() -> None:
    for given in ({"pid": (1,)}, {"command": "x"}, {"mount_ns": 1}):
        with pytest.raises(UsageError, match="CMD"):
            run_settings({**NOTHING, "cmd": ("true",), **given})


def test_settings_of_a_run() -> None:
    options = {**NOTHING, "pid": (os.getpid(), 1), "no_stacks": True, "live_entries": 7}
    assert run_settings(options) == {
        "argv": None,
        "user": None,
        "pid": [os.getpid(), 1],
        "command": None,
        "mount_ns": None,
        "stacks": False,
        "live_entries": 7,
        "gadget": None,
        "plain_http": False,
    }
    assert run_settings({**NOTHING, "cmd": ("a", "--", "b")})["argv"] == ["a", "--", "b"]


def test_plain_http_is_for_a_gadget() -> None:
    with pytest.raises(UsageError, match="none is named"):
        run_settings({**NOTHING, "plain_http": True})
    named = run_settings({**NOTHING, "plain_http": True, "gadget": "a.tar"})
    assert (named["gadget"], named["plain_http"]) == ("a.tar", True)


def test_processes_that_are_not_there() -> None:
    with pytest.raises(UsageError, match="no process 99999999"):
        run_settings({**NOTHING, "pid": (99999999,)})
