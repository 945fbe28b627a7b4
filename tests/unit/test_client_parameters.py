# SPDX-License-Identifier: Apache-2.0
"""Parameters by any of their names, and values that a daemon would take or not."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import pytest

from igsdk._errors import UsageError
from igsdk.client.parameters import Parameter, needed_to_describe, settle
from igsdk.client.values import as_text, wrong_with

PID = Parameter("operator.oci.ebpf.pid", "pid", "uint32", "0", alias="p")
PARAMETERS = (
    PID,
    Parameter("operator.a.filter", "filter", alias="F"),
    Parameter("operator.b.filter", "filter", alternative="sieve"),
    Parameter("operator.oci.pull", "pull", "string", "missing", ("always", "missing", "never")),
    Parameter("operator.c.interval", "interval", "duration", "1s"),
)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, {}),
        ({"pid": 7}, {"operator.oci.ebpf.pid": "7"}),
        ({"p": "7"}, {"operator.oci.ebpf.pid": "7"}),
        ({"operator.oci.ebpf.pid": 7}, {"operator.oci.ebpf.pid": "7"}),
        ({"pid": ""}, {"operator.oci.ebpf.pid": ""}),
        ({"F": "x"}, {"operator.a.filter": "x"}),
        ({"sieve": "x"}, {"operator.b.filter": "x"}),
        ({"operator.b.sieve": "x"}, {"operator.b.filter": "x"}),
        ({"interval": 2}, {"operator.c.interval": "2000000000ns"}),
        ({"interval": "1m30s"}, {"operator.c.interval": "1m30s"}),
    ],
)
def test_values_are_sent_under_full_names(given: dict[str, Any], sent: dict[str, str]) -> None:
    assert settle(PARAMETERS, given) == sent


@pytest.mark.parametrize(
    ("given", "cause", "remedy"),
    [
        ({"pdi": 7}, "'pdi'", "Did you mean pid?"),
        ({"operator.oci.ebpf.pdi": 7}, "pdi", "operator.oci.ebpf.pid"),
        ({"zzz": 7}, "'zzz'", "There are: filter, interval, pid, pull."),
        ({"filter": "x"}, "operator.a.filter, operator.b.filter", "full names"),
        ({"pid": 1, "p": 2}, "twice", "one of the two"),
        ({"pid": -1}, "from 0 to 4294967295", "Correct"),
        ({"pull": "Never"}, "one of always, missing, never", "Correct"),
    ],
)
def test_what_does_not_fit(given: dict[str, Any], cause: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        settle(PARAMETERS, given)
    assert cause in caught.value.cause
    assert remedy in caught.value.remedy


def test_a_required_value() -> None:
    wanted = Parameter("operator.x.iface", "iface", required=True, description="network interface")
    with pytest.raises(UsageError, match=r"iface.*network interface"):
        settle([wanted], {})
    assert settle([wanted], {"iface": "eth0"}) == {"operator.x.iface": "eth0"}


def test_what_a_description_needs() -> None:
    given = {"pull": "never", "pid": 7, "operator.oci.annotate": ["a:b=c"], "host": True}
    assert needed_to_describe(given) == {
        "operator.oci.pull": "never",
        "operator.oci.annotate": "a:b=c",
    }


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (True, "bool", "true"),
        (False, "", "false"),
        (7, "uint8", "7"),
        (1.5, "float64", "1.5"),
        (0.0001, "duration", "100000ns"),
        (["a", "b"], "[]string", "a,b"),
        (("a", 1), "", "a,1"),
        (b"text", "string", "text"),
    ],
)
def test_values_of_python(value: Any, kind: str, text: str) -> None:
    assert as_text(value, kind) == text
    assert wrong_with(text, kind) == ""


def test_bytes_are_packed() -> None:
    text = as_text(b"\0\xff" * 9, "bytes")
    assert zlib.decompress(base64.b64decode(text)) == b"\0\xff" * 9


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("bool", ["true", "F", "1"], ["yes", "tRUE", "2"]),
        ("int8", ["-128", "127", "+1"], ["128", "-129", "1.0", "x", "\u0661", "9" * 99]),
        ("uint64", ["0", "18446744073709551615"], ["-1", "18446744073709551616", "0x10"]),
        ("int", ["-9223372036854775808"], ["9223372036854775808"]),
        ("float32", ["1e9", "-0.5", "inf"], ["one", "1,5"]),
        ("duration", ["0", "1h2m3.5s", "-1s", ".5ms", "3µs"], ["10", "s", "1 s", "1d"]),
        ("ip", ["10.0.0.1", "::1"], ["10.0.0.256", "host"]),
        ("string", ["anything"], []),
        ("", ["anything"], []),
        ("something new", ["anything"], []),
    ],
)
def test_types(kind: str, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if wrong_with(text, kind)] == []
    assert [text for text in bad if not wrong_with(text, kind)] == []
    assert wrong_with("", kind) == ""
