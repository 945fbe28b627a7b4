# SPDX-License-Identifier: Apache-2.0
"""Parameters of a run: what is read, passed over and refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from igsdk import RunRefused, _abi
from igsdk.agent.wanted import Wanted, check_image, parameters, read
from igsdk.client.parameters import read_parameter, settle

PREFIX = "operator.oci.ebpf."


def test_defaults_sent_back_are_no_choice() -> None:
    """As kubectl gadget does it."""
    told = {param.prefix + param.key: param.defaultValue for param in parameters()}
    assert read(told) == read({}) == Wanted()
    assert read({}).everything


def test_parameters_are_described_for_our_client() -> None:
    known = [read_parameter(param) for param in parameters()]
    assert all(one.description for one in known)
    given = {"pid": 7, "events": "all", "map-fetch-interval": 2.5, "comm": "python"}
    assert read(settle(known, given)) == Wanted(pid=7, events="all", interval=2.5, comm="python")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("250ms", 0.25), ("1m", 60), ("1.5s", 1.5), ("2s500ms", 2.5), ("100000us", 0.1)],
)
def test_durations(text: str, seconds: float) -> None:
    assert read({f"{PREFIX}interval": text}).interval == pytest.approx(seconds)


@pytest.mark.parametrize(
    "values",
    [
        {"interval": "soon"},
        {"interval": "1"},
        {"interval": "1h"},
        {"interval": "1ms"},
        {"interval": "-1s"},
        {"interval": ""},
        {"events": "some"},
        {"events": ""},
        {"pid": "-1"},
        {"pid": "x"},
        {"pid": str(1 << 32)},
        {"pid": "9" * 5000},
        {"uid": "4294967296"},
        {"mntns": "1.0"},
        {"pid": "\u0661"},
        {"nothing-of-the-sort": "1"},
        {f"{PREFIX}unknown.one": "1"},
        {"operator.KubeManager.namespace": "ml"},
        {"operator.LocalManager.containername": "db"},
        {"operator.oci.unknown.x": ""},
    ],
)
def test_what_makes_no_sense_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(RunRefused) as caught:
        read(values)
    assert caught.value.cause
    assert caught.value.remedy


@pytest.mark.parametrize(
    "key",
    [
        "operator.oci.pull",
        "operator.oci.verify-image",
        "operator.sort.sort",
        "operator.filter.filter.heap",
        "operator.limiter.max-entries",
        "operator.KubeManager.all-namespaces",
        "operator.LocalManager.host",
        "operator.otel-metrics.otel-metrics-exporter",
    ],
)
def test_what_others_do_is_passed_over(key: str) -> None:
    assert read({key: "true", "operator.KubeManager.namespace": ""}) == Wanted()


def processes() -> Any:
    rows = np.zeros(3, dtype=_abi.dtype("process"))
    rows["pid"], rows["uid"], rows["gid"] = [1, 2, 3], [0, 1000, 1000], [0, 0, 7]
    rows["mntns_id"] = [1 << 40, 5, 5]
    rows["comm"] = [b"a", b"python", b"fifteen letters"]
    return rows


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (Wanted(), [1, 2, 3]),
        (Wanted(pid=2), [2]),
        (Wanted(uid=0), [1]),
        (Wanted(gid=7), [3]),
        (Wanted(mntns=1 << 40), [1]),
        (Wanted(comm="python"), [2]),
        (Wanted(comm="fifteen letters and more"), [3]),
        (Wanted(uid=1000, mntns=5, pid=3), [3]),
        (Wanted(comm="pyth"), []),
    ],
)
def test_processes_are_chosen(wanted: Wanted, chosen: list[int]) -> None:
    rows = processes()
    assert rows["pid"][wanted.chosen(rows)].tolist() == chosen


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("profile_cuda_memory", True),
        ("profile_cuda_memory:latest", True),
        ("registry.test:5000/a/b/profile_cuda_memory:v1", True),
        ("profile_cuda_memory@sha256:abc", True),
        ("a/profile_cuda_memory:v1@sha256:abc", True),
        ("profile_cuda", False),
        ("my_profile_cuda_memory", False),
        ("profile_cuda_memory/other", False),
        ("profile_cuda_memory x", False),
        ("", False),
    ],
)
def test_images(name: str, ours: bool) -> None:
    if ours:
        check_image(name)
    else:
        with pytest.raises(RunRefused, match="no other"):
            check_image(name)
