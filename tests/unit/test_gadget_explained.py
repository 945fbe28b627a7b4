# SPDX-License-Identifier: Apache-2.0
"""`igsdk gadget inspect` for a person: everything is named, and fits the terminal."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support import tiny
from tests.support.terminal import Terminal

from igsdk.cli.app import run
from igsdk.image import inspection, layout
from igsdk.image.build import build
from igsdk.image.explained import explain
from igsdk.image.tables import table

STACKS, CALLS = (tiny.SOURCE.with_name(name) for name in ("stacks", "calls"))


def record(folder: Path) -> dict[str, Any]:
    return inspection.inspect(build(str(folder)).layout)


def test_all_parts_are_named() -> None:
    """Index, manifests, metadata, layers, programs, parameters, data sources, fields."""
    made = record(CALLS)
    text = re.sub("(?<=[^ ]) {2,}", "  ", explain(made))
    digests = [made["digest"], *(one["digest"] for one in made["architectures"])]
    digests += [one["config"]["digest"] for one in made["architectures"]]
    digests += [layer["digest"] for one in made["architectures"] for layer in one["layers"]]
    assert all(digest[:19] in text for digest in digests)
    for words in (
        "calls of setlocale\n  counts calls of setlocale, and time\n",
        "what a tag stands for; 2 manifests\n",
        "for linux on amd64\n",
        "metadata: gadget.yaml\n",
        "BPF program\n",
        "when another one calls them  on_call, on_return\n",
        "when a function of libc starts  setlocale\n",
        "when a function of libc returns  setlocale\n",
        "4 times a second on each processor  on_beat\n",
        "  --kinds  string  default all\n",
        "operator.oci.ebpf.map-fetch-interval  5s\n",
        "Data source totals: all rows of a map",
        "\n  how often something came to be\n",
        "  which  uint32  key+0, 4 B  (metrics: key)\n",
        "\n  kubectl gadget run ghcr.io/inspektor-gadget/gadget/calls_of_setlocale:latest\n",
    ):
        assert words in text


def test_groups_that_everybody_has_are_one_line() -> None:
    lines = explain(record(STACKS)).splitlines()
    assert [one.split()[0] for one in lines if "ustack_raw" in one] == [
        "ustack_raw",
        "profiles.stack-fields",
    ]
    assert sum(one.startswith("  k8s") for one in lines) == 1
    assert any("comm" in one and "(label in profiles)" in one for one in lines)


def test_fields_that_gadget_yaml_names_are_shown() -> None:
    lines = explain(record(tiny.SOURCE)).splitlines()
    assert [one.split()[0] for one in lines if one.startswith("  k8s")] == ["k8s", "k8s.podName"]
    assert any("time_raw" in one and "(hidden)" in one for one in lines)


def test_what_only_gadget_yaml_knows(tmp_path: Path) -> None:
    text = "name: some\noperator: {ebpf: {emitstats: true}}\ndatasources:\n  stats:\n"
    text += "    fields:\n      runs:\n        annotations: {description: how often}\n"
    (tmp_path / "gadget.yaml").write_text(text)
    made = record(tmp_path)
    [source] = made["datasources"]
    assert (source["name"], source["filled_by"]) == ("stats", "other")
    shown = re.sub("(?<=[^ ]) {2,}", "  ", explain(made))
    assert "Data source stats: made by the gadget's module, or by Inspektor Gadget" in shown
    assert "  runs  made when it runs  how often\n" in shown


def test_columns_come_first() -> None:
    """Then what is hidden: because gadget.yaml says so, by its type, or by an operator."""
    lines = explain(record(tiny.SOURCE)).splitlines()
    start = next(number for number, one in enumerate(lines) if one.startswith("Data source opens"))
    end = lines.index("", start)
    hidden = ["(hidden)" in one for one in lines[start + 2 : end]]
    assert hidden == sorted(hidden)
    names = [one.split()[0] for one in lines[start + 2 : end] if "(hidden)" in one]
    assert names == ["time_raw", "mntns_id", "uid", "how_raw", "user"]


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("folder", [tiny.SOURCE, STACKS, CALLS])
def test_lines_fit(columns: int, folder: Path) -> None:
    assert max(map(len, explain(record(folder), columns).splitlines())) <= columns


def test_last_cells_are_broken() -> None:
    rows = [("a", "one two three four five"), ("bcd", "six")]
    assert list(table(rows, 24)) == ["  a    one two three", "       four five", "  bcd  six"]
    assert next(table(rows, None)) == "  a    one two three four five"
    assert list(table([], 80)) == []


def test_a_real_terminal(tmp_path: Path) -> None:
    path = tmp_path / "calls.tar"
    assert run(["gadget", "build", str(CALLS), "-o", str(path)]) == 0
    command = f"stty cols 80; exec {sys.executable} -m igsdk.cli gadget inspect {path}"
    with Terminal(["sh", "-c", command]) as terminal:
        assert terminal.wait() == 0
        shown = terminal.text
    assert shown.strip() == explain(inspection.inspect(layout.read(str(path))), 80)
