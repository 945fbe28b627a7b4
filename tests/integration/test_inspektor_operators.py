# SPDX-License-Identifier: Apache-2.0
"""Our image under Inspektor Gadget's own operators, on this kernel.

They read, check, load and attach it as `ig run` does, all but the probes of libcuda, which
take kprobes that not every kernel has: what those book is in test_gadget_rows.py, and in a
virtual machine in tests/kernels.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support import igoperators

ROOT = Path(__file__).parents[2]
NAME = "example.org/profile_cuda_memory:test"
UNSIGNED = "-set=operator.oci.verify-image=false"


def igsdk(*words: str) -> str:
    command = [str(Path(sys.executable).parent / "igsdk"), "gadget", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    igoperators.build()
    tar = tmp_path_factory.mktemp("image") / "gadget.tar"
    igsdk("build", "gadget", "--tag", NAME, "-o", str(tar))
    return tar


@pytest.fixture(scope="module")
def described(image: Path) -> dict[str, Any]:
    """What Inspektor Gadget says of the gadget to a client."""
    done = igoperators.run(image, NAME, UNSIGNED, "-describe")
    assert done.returncode == 0, done.stderr
    imported, described = igoperators.lines(done)
    assert imported == {"imported": NAME}
    return dict(described["info"])


@pytest.fixture(scope="module")
def inspected(image: Path) -> dict[str, Any]:
    """What igsdk says of it."""
    return dict(json.loads(igsdk("inspect", "--json", str(image))))


def from_program(fields: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Offset and size of those that are members of a struct."""
    return {
        one["fullName"]: (one["offs"], one["size"]) for one in fields if "src:ebpf" in one["tags"]
    }


def test_it_has_the_fields_that_inspect_shows(
    described: dict[str, Any], inspected: dict[str, Any]
) -> None:
    for ours in inspected["datasources"]:
        (theirs,) = (one for one in described["dataSources"] if one["name"] == ours["name"])
        assert theirs["type"] == {"single": 1, "array": 2}[ours["shape"]]
        members = from_program(theirs["fields"])
        shown = {one["name"]: (one["offset"], one["size"]) for one in ours["fields"]}
        assert {name: shown[name] for name in members} == members
        assert shown.keys() <= {one["fullName"] for one in theirs["fields"]}
    assert len(described["dataSources"]) == len(inspected["datasources"]) == 4


def test_it_has_the_parameters_that_inspect_shows(
    described: dict[str, Any], inspected: dict[str, Any]
) -> None:
    theirs = {
        one["key"]: (one["defaultValue"], one["typeHint"])
        for one in described["params"]
        if one["prefix"] == "operator.oci.ebpf."
    }
    ours = {one["key"]: (one["default"], one["type"]) for one in inspected["parameters"]}
    assert ours.items() <= theirs.items()
    assert theirs.keys() - ours.keys() <= {"trace-pipe", "map-fetch-interval", "map-fetch-count"}


def test_operators_make_strings_of_numbers(described: dict[str, Any]) -> None:
    """Without them the columns of the usual view would not be there."""
    fields = {
        one["name"]: {field["fullName"] for field in one["fields"]}
        for one in described["dataSources"]
    }
    stack = {f"ustack_raw.{one}" for one in ("addresses", "buildid", "symbols")}
    words = {"k8s.podName", "runtime.containerName", "kind", "host", "in_use", "time"}
    assert fields["heap"] >= stack | words | {"stack_state", "state"}
    assert fields["processes"] >= words | {"peak", "started", "state"}
    assert fields["events"] >= stack | words | {"type", "api", "result", "latency", "bytes"}
    assert "cause_name" in fields["losses"]


def test_it_runs(image: Path) -> None:
    """Verified, attached as far as this kernel lets, read each interval."""
    interval = "-param=operator.oci.ebpf.map-fetch-interval=500ms"
    done = igoperators.run(image, NAME, UNSIGNED, interval, "-timeout=3s")
    assert done.returncode == 0, done.stderr
    said = igoperators.lines(done)
    assert {"ready": True} in said
    packets = [line["source"] for line in said if "source" in line]
    for source in ("heap", "processes", "losses"):
        assert packets.count(source) >= 2


WAYS: dict[str, dict[str, object]] = {
    "everything": {"events": "all", "collect-build-id": True, "collect-otel-stack": True},
    "nothing": {"events": "none", "collect-ustack": False},
    "filters": {"pid": 1, "uid": 0, "gid": 0, "comm": "python3"},
    "small": {"live-table-max-entries": 1000, "ig_build_id_max_entries": 16},
}


@pytest.mark.parametrize("way", WAYS)
def test_the_verifier_takes_it(way: str, image: Path) -> None:
    given = {key: str(value).lower() for key, value in WAYS[way].items()}
    flags = [f"-param=operator.oci.ebpf.{key}={value}" for key, value in given.items()]
    done = igoperators.run(image, NAME, UNSIGNED, *flags, "-timeout=300ms")
    assert done.returncode == 0, done.stderr
    assert {"ready": True} in igoperators.lines(done)


def test_a_value_that_is_none_is_refused(image: Path) -> None:
    """By which the tests above are known to hand their parameters over."""
    flag = "-param=operator.oci.ebpf.uid=nobody"
    done = igoperators.run(image, NAME, UNSIGNED, flag, "-timeout=300ms")
    assert done.returncode == 1
    assert "nobody" in done.stderr


def make_key(folder: Path, name: str) -> Path:
    key, public = folder / f"{name}.pem", folder / f"{name}.pub"
    kind = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
    for words in (("genpkey", *kind, "-out", key), ("pkey", "-in", key, "-pubout", "-out", public)):
        subprocess.run(["openssl", *words], check=True, capture_output=True)
    return key


def test_a_signature_is_taken_with_its_key_only(image: Path, tmp_path: Path) -> None:
    ours, other = (make_key(tmp_path, name) for name in ("ours", "other"))

    def described_with(key: Path) -> subprocess.CompletedProcess[str]:
        public = key.with_suffix(".pub").read_text()
        return igoperators.run(image, NAME, f"-set=operator.oci.public-keys={public}", "-describe")

    before = described_with(ours)
    igsdk("sign", str(image), "--key", str(ours))
    after, wrong = described_with(ours), described_with(other)
    assert [done.returncode for done in (before, after, wrong)] == [1, 0, 1], after.stderr
    assert "signature" in before.stderr
    assert "signature" in wrong.stderr
