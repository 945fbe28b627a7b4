# SPDX-License-Identifier: Apache-2.0
"""What gadget.yaml says beside what the compiled program has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support import tiny

from igsdk import GadgetInvalid
from igsdk.image import document, elf, sources
from igsdk.image.build import build
from igsdk.image.checking import check

YAML = "gadget.yaml"
PROGRAM = "program.bpf.c"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "datasources:",
            "datasorces:",
            "no key 'datasorces' in the top level (did you mean 'datas",
        ),
        (
            "  opens:\n",
            "  opened:\n",
            "no data source 'opened' in the program (did you mean 'opens'",
        ),
        ("      how:\n", "      hwo:\n", "no field 'hwo' in data source opens (did you mean 'how'"),
        ("      at.line:", "      at.lin:", "no field 'at.lin' in data source opens (did you mean"),
        ("k8s.podName:", "k8s.podname2:", "did you mean 'k8s.podName'"),
        (
            "columns.width: 10",
            "column.width: 10",
            "no annotation 'column.width' (did you mean 'col",
        ),
        ("columns.width: 10", "columns.width: wide", "columns.width has to be a whole number"),
        ("columns.hidden: true", "columns.hidden: yes", "has to be true or false"),
        ("columns.hidden: true", "columns.hidden: 'True'", "has to be true or false"),
        ("columns.width: 10", "columns.replace: hwo", "names a field 'hwo' that does not exist"),
        ("metrics.collect: true", "profiles.value-field: Calls", "(did you mean 'calls'?)"),
        ("metrics.collect: true", "cli.default-output-mode: raw", "has to be one of columns, json"),
        ("metrics.collect: true", "cli.supported-output-modes: none, raw", "has to be one of"),
        ("alignment: right", "alignment: rihgt", "did you mean 'right'"),
        ("template: comm", "template: com", "did you mean 'comm'"),
        ("fetch-interval: 1s", "fetch-interval: 1", "has to be a duration"),
        ("fetch-interval: 1s", "fetch-intervall: 1s", "did you mean 'fetch-interval'"),
        ("metrics.collect: true", "profiles.value-field: call", "did you mean 'calls'"),
        ("metrics.collect: true", "profiles.value-field: bytes", "has to name an integer"),
        (
            "metrics.collect: true",
            "profiles.stack-fields: calls,stack",
            "a field 'stack' that does",
        ),
        ("metrics.collect: true", "env.fields.nothing: HOME", "no field 'nothing' for the"),
        (
            "    smallest:\n",
            "    smalest:\n",
            "no parameter 'smalest' in the program (did you mean",
        ),
        ("      key: smallest", "      key: ''", "needs a key"),
        ("      key: smallest", "      kee: smallest", "no key 'kee' in parameter smallest"),
        ('"7"', '"-7"', "'-7' does not fit into uint32"),
        ('"7"', "seven", "'seven' is no whole number"),
    ],
)
def test_what_does_not_exist_is_an_error_with_its_line(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    line, cause = tiny.complaints(tiny.copy(tmp_path), YAML, old, new)
    assert f"gadget.yaml:{line}: " in cause
    assert words in cause


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("programs:\n  on_opn:\n    attach_to: x\n", "no program 'on_opn' in the object (did you"),
        ("programs:\n  on_open: {attachto: x}\n", "no key 'attachto' in program on_open (did you"),
        ("operator:\n  ebfp:\n    emitstats: true\n", "no operator 'ebfp' (did you mean 'ebpf'"),
        ("operator:\n  ebpf: {emitstat: true}\n", "no key 'emitstat' in operator ebpf (did you"),
        ("paramDefaults:\n  operator.oci.ebpf.smalest: 1\n", "no parameter 'smalest'"),
    ],
)
def test_other_sections(tmp_path: Path, section: str, words: str) -> None:
    line, cause = tiny.complaints(tiny.copy(tmp_path), YAML, "params:\n", f"{section}params:\n")
    assert f"gadget.yaml:{line + 1}: there is {words}" in cause


@pytest.mark.parametrize(
    ("default", "words"),
    [
        ("operator.cli.fields: opens:comm,hwo;totals:calls", "names a field 'hwo' that does not"),
        ("operator.cli.fields: comm", "'comm' does not say of which data source"),
        ("operator.sort.sort: combined-totals:-cals", "'cals' that does not exist (did you mean"),
        ("operator.sort.sort: 'totals:-calls, process'", "names a field ' process'"),
        ("operator.sort.sort: total:-calls", "no data source 'total' (did you mean 'totals'"),
        ("operator.limiter.max-entries: totals:3,combined-totls:5", "'combined-totls'"),
        ("operator.oci.ebpf.map-fetch-interval: 'opens:1s,none:2s'", "no data source 'none'"),
        ("operator.cli.fields: opens:comm,-how,+time;combined-totals:calls", ""),
        ("operator.limiter.max-entries: 'totals:3,combined-totals:5'", ""),
        ("operator.limiter.max-entries: 10", ""),
    ],
)
def test_what_users_see_first(tmp_path: Path, default: str, words: str) -> None:
    """Names of data sources and fields within the texts of `paramDefaults`."""
    folder = tiny.copy(tmp_path)
    if words:
        section = f"paramDefaults:\n  {default}\nparams:\n"
        line, cause = tiny.complaints(folder, YAML, "params:\n", section)
        assert f"gadget.yaml:{line + 1}: " in cause
        assert words in cause
    else:
        tiny.change(folder, YAML, "params:\n", f"paramDefaults:\n  {default}\nparams:\n")
        assert build(str(folder)).digest


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("base: &base {a: 1, b: 2}\nkey: {<<: *base, b: 3}", {"a": "1", "b": "3"}),
        ("base: &base {a: 1}\nkey: {A: 2, <<: *base}", {"A": "2"}),
        ("x: &x {a: 1}\ny: &y {a: 2, b: 2}\nkey: {<<: [*x, *y]}", {"a": "1", "b": "2"}),
        ("key: {'<<': 1}", {"<<": "1"}),
    ],
)
def test_mappings_take_others_in(text: str, means: dict[str, str]) -> None:
    assert document.load(text.encode(), YAML).texts("key") == means
    with pytest.raises(GadgetInvalid, match="takes a mapping"):
        document.load(b"key: {<<: 1}", YAML)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    folder = tiny.copy(tmp_path)
    first = tiny.change(folder, YAML, "template: comm", "template: com")
    last = tiny.change(folder, YAML, "    smallest:\n", "    smalest:\n")
    with pytest.raises(GadgetInvalid) as caught:
        build(str(folder))
    assert "2 things" in caught.value.cause
    assert caught.value.cause.index(f":{first}:") < caught.value.cause.index(f":{last}:")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("columns.hidden: true", "Columns.Hidden: True"),
        ("columns.hidden: true", "columns: {hidden: true}"),
        ("columns.width: 10", "columns.width: type"),
        ("metrics.collect: true", "description: of all processes"),
        ('"7"', '""'),
        ("columns.hidden: true", "flamegraph.level: 10"),
        ("      how:\n", "      HOW:\n"),
        ("  opens:\n", "  Opens:\n"),
        ("      time:\n        ann", "      when:\n        ann"),
        ("params:\n", "programs:\n  on_open:\n    attach_to: syscalls/sys_enter_open\nparams:\n"),
        ("params:\n", "paramDefaults:\n  operator.oci.ebpf.smallest: 1\nparams:\n"),
        ("params:\n", "operator:\n  ebpf:\n    emitstats: true\nparams:\n"),
    ],
)
def test_what_is_allowed_passes(tmp_path: Path, old: str, new: str) -> None:
    folder = tiny.copy(tmp_path)
    tiny.change(folder, YAML, old, new)
    if "when" in new:
        target = "formatters.timestamp.target: when"
        tiny.change(folder, YAML, "columns.hidden: true", target)
    assert build(str(folder)).digest


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "gadget_tracer_opens___events___opened)",
            "gadget_tracer_opens___event___opened)",
            "no map",
        ),
        (
            "gadget_tracer_opens___events___opened)",
            "gadget_tracer_opens___events)",
            "NAME___MAP___",
        ),
        (
            "gadget_tracer_opens___events___opened)",
            "gadget_tracer_opens___events___oped)",
            "struct",
        ),
        ("gadget_mapiter_totals___counts", "gadget_mapiter_totals___counted", "no map counted"),
        ("gadget_param_smallest", "gadget_param_small", "no variable small"),
        ("gadget_map_tracer_events", "gadget_map_tracer_event", "no map event"),
        ("NAME_OF(gadget_param_smallest)", "int gadget_param_smallest", "has no effect"),
        ("int (*type)[1];\n    int (*max_entries)[1024];\n    struct", "", "must be HASH"),
        (
            "[1024];\n    gadget_mntns_id",
            "[1000];\n    gadget_mntns_id",
            "gadget_mntns_filter_map has",
        ),
        ('SEC("tracepoint/', 'SEC("kprobe.multi/', "attaches nothing to kprobe.multi"),
        ('SEC("tracepoint/syscalls/', 'SEC("uprobe/', "is not FILE:SYMBOL"),
        ("__u32 process;", "__u32 calls;", "meets the key's calls"),
        ("gadget_uid uid;", "gadget_uid uid, other;", "adds a field user"),
        (
            "const volatile __u32 smallest",
            "const volatile __u32 gadget_var_x = 1;\nconst volatile __u32 smallest",
            "gadget_var_x",
        ),
    ],
)
def test_objects_that_are_not_taken(tmp_path: Path, old: str, new: str, words: str) -> None:
    folder = tiny.copy(tmp_path)
    if words == "must be HASH":
        new = old.replace("[1]", "[9]")
    if "calls" in new:
        tiny.change(folder, PROGRAM, ".process = id", ".calls = id")
    if "gadget_var_x" in new:
        tiny.change(
            folder, PROGRAM, "row.thread < smallest", "row.thread < smallest + gadget_var_x"
        )
    _, cause = tiny.complaints(folder, PROGRAM, old, new)
    assert words in cause


def test_doubts_are_told(tmp_path: Path) -> None:
    folder = tiny.copy(tmp_path)
    tiny.change(folder, PROGRAM, "Dual BSD/GPL", "MIT")
    tiny.change(folder, PROGRAM, "struct opened {", "typedef struct place hidden;\nstruct opened {")
    tiny.change(folder, PROGRAM, "__u32 numbers[3];", "__u32 numbers[3];\n    hidden more;")
    warnings = " ".join(build(str(folder)).warnings)
    assert "license 'MIT'" in warnings
    assert "more becomes no field" in warnings


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("opens:", "module:", ""),
        ("how:", "answer:", ""),
        ("metrics.collect: true", "profiles.value-field: answer", ""),
        ("columns.width: 10", "columns.with: 10", "no annotation 'columns.with'"),
        ("columns.width: 10", "columns.width: wide", "has to be a whole number"),
        ("smallest:", "largest:", "no parameter 'largest'"),
    ],
)
def test_a_module_makes_fields_that_nobody_knows(old: str, new: str, words: str) -> None:
    """Words and values are compared beside one too, and what the program alone has."""
    data = (tiny.SOURCE / YAML).read_text().replace(old, new, 1)
    said = document.load(data.encode(), YAML)
    if words:
        with pytest.raises(GadgetInvalid, match=words):
            check(said, {"amd64": tiny.compiled()}, is_open=True)
    else:
        assert check(said, {"amd64": tiny.compiled()}, is_open=True) == []


def test_a_gadget_without_a_program(tmp_path: Path) -> None:
    """Inspektor Gadget's own operators make its data."""
    (tmp_path / YAML).write_text("name: some stats\noperator: {ebpf: {emitstats: true}}\n")
    made = build(str(tmp_path))
    assert made.name == "ghcr.io/inspektor-gadget/gadget/some_stats:latest"
    index = json.loads(made.layout.blob(made.layout.image()))
    manifests = [json.loads(made.layout.blob(entry)) for entry in index["manifests"]]
    assert [one["layers"] for one in manifests] == [[], []]
    (tmp_path / YAML).write_text("name: nothing\n")
    with pytest.raises(GadgetInvalid, match=r"no program\.bpf\.c"):
        build(str(tmp_path))


def test_lenient_only_warns(tmp_path: Path) -> None:
    """Of what has no effect; what breaks the gadget stays an error."""
    folder = tiny.copy(tmp_path)
    line = tiny.change(folder, YAML, "columns.width: 10", "columns.with: 10")
    [warning] = build(str(folder), lenient=True).warnings
    assert f"gadget.yaml:{line}: there is no annotation 'columns.with'" in warning
    tiny.change(folder, PROGRAM, 'SEC("tracepoint/', 'SEC("kprobe.multi/')
    with pytest.raises(GadgetInvalid, match=r"attaches nothing to kprobe\.multi"):
        build(str(folder), lenient=True)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        *(("True", "true"), ("TRUE", "true"), ("'True'", "True"), ("yes", "yes"), ("'yes'", "yes")),
        *(("10", "10"), ("0x10", "16"), ("1_000", "1000"), ("'0x10'", "0x10"), ("1.0", "1")),
        *(("0.50", "0.5"), ("~", ""), ("null", ""), ("5s", "5s"), ("1:30", "1:30")),
    ],
)
def test_texts_are_those_that_inspektor_gadget_makes(text: str, means: str) -> None:
    assert document.load(f"key: {text}".encode(), YAML).text("key") == means


def test_parameters_and_their_usual_names() -> None:
    found = sources.declared(elf.read(tiny.compiled(), "it"))
    one = found.parameters["smallest"]
    assert (one.kind, one.default, one.key) == ("uint32", "7", "smallest")
    assert found.problems == []
