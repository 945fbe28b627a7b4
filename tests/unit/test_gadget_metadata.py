# SPDX-License-Identifier: Apache-2.0
"""Our own gadget's metadata beside its program, and what the facts demand of both.

gadget.yaml is read here by PyYAML alone: what `igsdk gadget build` compares is not asked.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import images
from tests.support import registry as real

from igsdk import _abi
from igsdk._version import __version__
from igsdk.cli.app import run
from igsdk.image import btf, elf, fields, sources
from igsdk.image.build import build
from igsdk.image.clang import ARCHITECTURES

ROOT = Path(__file__).parents[2]
GADGET = yaml.safe_load((ROOT / "gadget/gadget.yaml").read_text())
SOURCES = {"events": "cuda_events", "heap": "heap_rows"}
SOURCES |= {"processes": "process_rows", "losses": "loss_rows"}
#: what the published dashboard reads (`facts/pyroscope-grafana.md` 7.2) without the
#: `_total` that Prometheus adds, and the label `cluster`, which who scrapes adds
DASHBOARD_COUNTERS = {"mem_alloc_bytes", "mem_free_bytes", "mem_implicit_free_bytes"}
DASHBOARD_LABELS = {"pid", "host_raw", "k8s_namespace", "k8s_podname"}
#: most that all tables may take by entries, keys and values; measured it is 3 % more
MOST_BYTES = 100 << 20

Notes = dict[str, Any]


@pytest.fixture(scope="session", params=sorted(ARCHITECTURES))
def program(request: pytest.FixtureRequest) -> elf.Object:
    """The program of the image, which is built once."""
    return elf.read(images.own_program(request.param), request.param)


@pytest.fixture(scope="session")
def declared(program: elf.Object) -> sources.Declared:
    return sources.declared(program)


def notes_of(source: str) -> dict[str, Notes]:
    """Annotations of each field; PyYAML resolves what stands there once for several."""
    said = GADGET["datasources"][source]["fields"]
    return {name: one["annotations"] for name, one in said.items()}


def added(program: elf.Object, source: sources.Source) -> dict[str, fields.Field]:
    """What Inspektor Gadget makes beside the members."""
    targets = {
        (name, key): str(value)
        for name, notes in notes_of(source.name).items()
        for key, value in notes.items()
    }
    return {one.name: one for one in fields.added(program.btf, source.fields, targets)}


def enum(program: elf.Object, name: str) -> tuple[tuple[str, int], ...]:
    (found,) = (one for one in program.btf.types if one.kind == btf.ENUM and one.name == name)
    return found.values


def names(program: elf.Object, of: str) -> list[str]:
    """Of an enum's values, which count from 0 on."""
    values = enum(program, of)
    assert [value for _, value in values] == list(range(len(values)))
    return [name for name, _ in values]


# Fields ---------------------------------------------------------------------------------


def test_there_is_nothing_to_warn_of() -> None:
    assert images.own_gadget().warnings == []


def test_data_sources(declared: sources.Declared) -> None:
    assert {one.name: one.map for one in declared.sources.values()} == SOURCES
    assert [one.name for one in declared.sources.values() if not one.array] == ["events"]
    assert set(GADGET["datasources"]) == set(SOURCES)
    for name in set(SOURCES) - {"events"}:
        assert GADGET["datasources"][name]["annotations"]["ebpf.map.flush-on-stop"] is True


@pytest.mark.parametrize("name", SOURCES)
def test_every_member_is_described(declared: sources.Declared, name: str) -> None:
    said = notes_of(name)
    lacking = [
        one.name
        for one in declared.sources[name].fields
        if len(said.get(one.name, {}).get("description", "")) < 3
    ]
    assert not lacking


@pytest.mark.parametrize("name", SOURCES)
def test_what_is_made_of_members_is_described(
    program: elf.Object, declared: sources.Declared, name: str
) -> None:
    """All that Inspektor Gadget says nothing of itself: everything but containers."""
    made = added(program, declared.sources[name])
    own = {one for one in made if not one.startswith(("k8s", "runtime"))}
    assert own <= set(notes_of(name))
    assert all(notes_of(name)[one]["description"] for one in own)


@pytest.mark.parametrize("name", SOURCES)
def test_what_nobody_reads_is_hidden(
    program: elf.Object, declared: sources.Declared, name: str
) -> None:
    """Numbers beside a text, structs beside their members, numbers of rows, unused bytes."""
    said, made = notes_of(name), added(program, declared.sources[name])
    templates = {"timestamp", "ppid", "pcomm", "ptid", "mntns_id"}  # hidden by these
    for one in declared.sources[name].fields:
        twin = one.name.removesuffix("_raw")
        is_raw = one.name != twin and (twin in made or one.kind == "bytes")
        is_pad = re.fullmatch(r"pad\d*", one.short)
        is_id = one.name in ("row", "boot", "epoch", "process")
        if is_raw or is_pad or is_id or one.kind == "bytes" or one.parent == "ustack_raw":
            notes = said[one.name]
            assert notes.get("columns.hidden") or notes.get("template") in templates, one.name
        if is_pad:
            assert said[one.name]["json.skip"] is True


def test_descriptions_have_no_backquotes() -> None:
    """A command line takes the word between them for the type of the option."""
    assert "`" not in str(GADGET)


# The view of a run ----------------------------------------------------------------------


def test_the_view_names_columns_that_exist(program: elf.Object, declared: sources.Declared) -> None:
    """One column that does not exist, and nothing of the data source is shown."""
    views = dict(
        one.split(":") for one in GADGET["paramDefaults"]["operator.cli.fields"].split(";")
    )
    assert set(views) == {"events", "heap", "processes"}
    for name, columns in views.items():
        source = declared.sources[name]
        known = {one.name for one in source.fields} | set(added(program, source))
        assert set(columns.split(",")) <= known


@pytest.mark.parametrize("name", ["events", "heap"])
def test_the_stack_is_shown_without_asking(name: str) -> None:
    """Its text is hidden by who makes it, whatever gadget.yaml says; a column can stand in."""
    notes = notes_of(name)["stack"]
    assert notes["columns.replace"] == "ustack_raw.symbols"
    assert "columns.hidden" not in notes


def test_the_view_is_sorted_by_what_is_in_use(declared: sources.Declared) -> None:
    rules = GADGET["paramDefaults"]["operator.sort.sort"].split(";")
    for rule in rules:
        name, field = rule.split(":")
        source = declared.sources[name.removeprefix("combined-")]
        assert field == "-in_use_raw"
        assert source.array
        assert any(one.name == "in_use_raw" and one.is_integer for one in source.fields)
    assert len(rules) == 4


def test_nothing_is_cut_on_nodes(declared: sources.Declared) -> None:
    """A data source without a limit of its own is cut to nothing as soon as one has any."""
    limits = GADGET["paramDefaults"]["operator.limiter.max-entries"].split(",")
    found = {name: int(text) for name, text in (one.split(":") for one in limits)}
    arrays = {one.name for one in declared.sources.values() if one.array}
    assert set(found) == arrays | {f"combined-{name}" for name in arrays}
    assert {found[name] for name in arrays} == {-1}


# Names of values ------------------------------------------------------------------------


def test_enums_are_those_of_the_runtime(program: elf.Object) -> None:
    kinds = names(program, "igsdk_memory_kind")
    assert kinds == ["unknown", *_abi.KINDS[1:]]
    assert len(names(program, "igsdk_memory_host")) == len(_abi.HOSTS)
    assert names(program, "igsdk_loss_cause") == [f"lost_{name}" for name in _abi.LOSSES]
    states = dict(enum(program, "igsdk_row_state"))
    assert list(states.values()) == [_abi.LIVE, _abi.ENDED_CONTEXT, _abi.ENDED_PROCESS]
    types = {"ALLOCATION": _abi.RECORD_ALLOC, "FREE": _abi.RECORD_FREE}
    assert dict(enum(program, "igsdk_event_type")) == types | {"FAILURE": _abi.RECORD_FAILURE}
    functions = [symbols[0] if symbols else "no_api" for _, symbols in _abi.CALLS]
    assert names(program, "igsdk_api") == functions


def test_results_are_those_of_the_driver(program: elf.Object) -> None:
    from cuda.bindings.driver import CUresult

    answers = dict(enum(program, "igsdk_cuda_result"))
    assert answers == {name: int(getattr(CUresult, name)) for name in answers}
    assert answers["CUDA_ERROR_OUT_OF_MEMORY"] == 2


def test_the_readme_explains_every_loss() -> None:
    """But those of what the gadget does not do: stacks of its own, leaving calls alone."""
    own = {"captures", "stack_failed", "stack_bytes", "python_fault", "seccomp"}
    told = set(re.findall(r"`lost_(\w+)`", (ROOT / "gadget/README.md").read_text()))
    assert told == set(_abi.LOSSES) - own


@pytest.mark.parametrize("name", ["events", "heap", "processes"])
def test_people_are_told_all_values(
    program: elf.Object, declared: sources.Declared, name: str
) -> None:
    said, told = notes_of(name), 0
    for one in declared.sources[name].fields:
        notes = said.get(one.name.removesuffix("_raw"), {})
        if "value.one-of" in notes:
            values = {value for value, _ in enum(program, one.types[0])}
            assert set(notes["value.one-of"].split(", ")) == values
            told += 1
    assert told >= 3


def test_symbols_are_those_of_the_runtime(program: elf.Object) -> None:
    """In the header that lists them, and as a pair of programs each."""
    text = (ROOT / "bpf/symbols.h").read_text()
    listed = re.findall(r"DO\((\w+),\s+IGSDK_CALL_(\w+)\)", text)
    wanted = {symbol: call for call, symbols in _abi.CALLS for symbol in symbols}
    assert dict(listed) == wanted
    assert len(listed) == len(wanted)
    heads = [symbol for symbol, _ in listed[: len(_abi.CALLS) - 1]]
    assert heads == [symbols[0] for _, symbols in _abi.CALLS if symbols]
    sections = {one.name: one.section for one in program.programs}
    for symbol in wanted:
        assert sections[f"enter_{symbol}"] == f"uprobe/libcuda:{symbol}"
        assert sections[f"leave_{symbol}"] == f"uretprobe/libcuda:{symbol}"


# Metrics and profiles -------------------------------------------------------------------


def test_metrics_are_those_of_the_dashboard(declared: sources.Declared) -> None:
    """Only of `processes`, which is exact; by all that does not change in a row."""
    asked = [name for name, one in GADGET["datasources"].items() if "metrics." in str(one)]
    assert asked == ["processes"]
    assert GADGET["datasources"]["processes"]["annotations"]["metrics.collect"] is True
    by_type: dict[str, dict[str, str]] = {"key": {}, "counter": {}}
    for name, notes in notes_of("processes").items():
        if "metrics.type" in notes:
            by_type[notes["metrics.type"]][notes.get("metrics.name", name)] = name
    keys, counters = by_type["key"], by_type["counter"]
    assert set(keys) >= DASHBOARD_LABELS
    assert set(counters) >= DASHBOARD_COUNTERS
    # What changes in the life of a row would break its series in two.
    assert not {"state", "state_raw", "in_use", "peak"} & set(keys.values())
    assert len(keys) == len(set(keys.values()))
    members = {one.name: one for one in declared.sources["processes"].fields}
    typed = {name for name, one in members.items() if "gadget_counter__u64" in one.types}
    assert set(counters.values()) == typed
    # Prometheus adds a unit to a name that has one; then the dashboard finds nothing.
    assert "metrics.unit" not in str(GADGET)


def test_labels_of_metrics_need_no_translation() -> None:
    labels = [n.get("metrics.name") for n in notes_of("processes").values() if "metrics.name" in n]
    assert all(re.fullmatch("[a-z_][a-z0-9_]*", str(label)) for label in labels)
    # a scraper puts its own labels of these names beside
    assert not {"namespace", "pod", "container", "node", "cluster", "job"} & set(labels)


def test_profiles_are_the_changes_of_heap(declared: sources.Declared) -> None:
    asked = [name for name, one in GADGET["datasources"].items() if "profiles." in str(one)]
    assert asked == ["heap"]
    notes = GADGET["datasources"]["heap"]["annotations"]
    assert notes["profiles.stack-fields"] == "ustack_raw.symbols"
    # What the dashboard's panel asks for; the name stands for Inspektor Gadget's own.
    wanted = {"name": "process_cuda", "type": "malloc", "unit": "bytes"}
    assert {key: notes[f"profiles.{key}"] for key in wanted} == wanted
    (value,) = (
        one for one in declared.sources["heap"].fields if one.name == notes["profiles.value-field"]
    )
    assert (value.name, value.kind) == ("mem_alloc_bytes", "uint64")
    labels = {n for n, one in notes_of("heap").items() if one.get("profiles.sample-attribute")}
    assert {"k8s.namespace", "k8s.podName", "proc.comm"} <= labels
    # Each of their combinations is a series of its own.
    assert not {"proc.pid", "process", "row", "stack"} & labels


# Parameters, tables ---------------------------------------------------------------------


def test_parameters(declared: sources.Declared) -> None:
    said = GADGET["params"]["ebpf"]
    assert set(said) == set(declared.parameters)
    for name, one in said.items():
        assert one["key"]
        assert len(one["description"]) > 20
        shown = one.get("defaultValue", "")
        assert isinstance(shown, str), "a default has to be a text"
        if declared.parameters[name].kind != "string":
            assert shown == declared.parameters[name].default
    assert said["events_wanted"]["key"] == "events"
    assert said["events_wanted"]["defaultValue"] == "failures"
    assert said["collect_ustack"]["defaultValue"] == "true"
    usual = {"collect-ustack", "collect-build-id", "collect-otel-stack"}
    assert usual | {"pid", "uid", "gid", "comm"} <= {one["key"] for one in said.values()}


def test_tables_lie_beside_others(program: elf.Object) -> None:
    """Others run gadgets on the same node; ig_build_id has its entries by a parameter."""
    size = sum(
        one.max_entries * (1 if one.type == "RINGBUF" else one.key_size + one.value_size)
        for one in program.maps.values()
    )
    assert size < MOST_BYTES
    (entries,) = (
        one["defaultValue"]
        for one in GADGET["params"]["ebpf"].values()
        if one["key"] == "ig_build_id_max_entries"
    )
    assert int(entries) * 4068 < 5 << 20


# The image ------------------------------------------------------------------------------


def test_same_source_same_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the clone lies."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in ("bpf", "gadget"):
        shutil.copytree(ROOT / name, tmp_path / "else/where" / name)
    here, there = build(str(ROOT / "gadget")), build(str(tmp_path / "else/where/gadget"))
    assert here.digest == there.digest
    assert here.layout.blobs == there.layout.blobs


def test_it_is_built_and_pushed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], record_property: Any
) -> None:
    """How long it takes is printed: 20 s are promised, of a machine that does nothing else."""
    with real.registry(tmp_path / "registry") as server:
        began = time.monotonic()
        tar, name = str(tmp_path / "gadget.tar"), f"{server.address}/igsdk/profile_cuda_memory:1"
        assert run(["gadget", "build", str(ROOT / "gadget"), "-o", tar]) == 0
        assert run(["gadget", "push", tar, name, "--plain-http"]) == 0
        took = time.monotonic() - began
        assert server.tags("igsdk/profile_cuda_memory") == ["1"]
    said = capsys.readouterr().out.split()
    assert said[2] == said[4]  # the digest that was built is the one that was pushed
    record_property("seconds", took)
    with capsys.disabled():
        print(f" build and push of the gadget: {took:.1f} s", end=" ")


def test_catalogue() -> None:
    """artifacthub-pkg.yml says the same of it."""
    said = yaml.safe_load((ROOT / "gadget/artifacthub-pkg.yml").read_text())
    assert said["version"] == __version__
    assert said["name"] == GADGET["name"]
    (image,) = said["containersImages"]
    assert image["platforms"] == [f"linux/{one}" for one in ARCHITECTURES]
    assert image["image"].endswith(f"/{GADGET['name']}:{__version__}")
    assert image["image"] in said["install"]
