# SPDX-License-Identifier: Apache-2.0
"""Our object as Inspektor Gadget will read it, one test for each trap that is known.

The reader is bpftool's and pyelftools', not ours. What Inspektor Gadget asks for is in
docs/inspektor-gadget.md; ``igsdk gadget build`` looks for some of it in any gadget.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.support import gadgethost
from tests.support.bpf_objects import BpfObject, Member, Type

from igsdk import _abi

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "bpf/gadget.bpf.c"
ROWS = {
    "events": ("cuda_event",),
    "heap": ("heap_key", "heap_row"),
    "processes": ("process_key", "process_row"),
    "losses": ("loss_key", "loss_row"),
}
MAP_ITERATORS = {"heap": "heap_rows", "processes": "process_rows", "losses": "loss_rows"}
PARAMETERS = {
    "events_wanted": b"failures" + bytes(8),
    "collect_ustack": b"\1",
    "collect_build_id": b"\0",
    "collect_otel_stack": b"\0",
    "ig_build_id_max_entries": (1024).to_bytes(4, "little"),
    "live_table_max_entries": (262144).to_bytes(4, "little"),
    "keep_ended_ms": (15000).to_bytes(4, "little"),
    "resend_ms": (4000).to_bytes(4, "little"),
    "targ_pid": bytes(4),
    "targ_uid": b"\xff" * 4,
    "targ_gid": b"\xff" * 4,
    "targ_comm": bytes(16),
}


@pytest.fixture(scope="module", params=["amd64", "arm64"])
def program(request: pytest.FixtureRequest) -> BpfObject:
    return BpfObject(gadgethost.compiled(SOURCE, request.param))


@pytest.fixture(scope="module")
def metadata() -> dict[str, object]:
    return dict(yaml.safe_load((ROOT / "gadget/gadget.yaml").read_text()))


def structs(program: BpfObject, source: str) -> list[Type]:
    return [program.named("STRUCT", name) for name in ROWS[source]]


def fields(program: BpfObject, of: Type, path: str = "") -> Iterator[tuple[str, Member]]:
    """Members by whole name, those of nested structs after their parent."""
    for member in program.members(of):
        yield path + member.name, member
        if member.type["kind"] in ("STRUCT", "UNION"):
            yield from fields(program, member.type, f"{path}{member.name}.")


def every_field(program: BpfObject) -> Iterator[tuple[str, Member]]:
    for source in ROWS:
        for struct in structs(program, source):
            for name, member in fields(program, struct):
                yield f"{source}.{name}", member


# The file -------------------------------------------------------------------------------


def test_an_object_for_this_loader(program: BpfObject) -> None:
    assert program.header["e_machine"] == "EM_BPF"
    assert program.header["e_ident"]["EI_DATA"] == "ELFDATA2LSB"
    assert program.types
    assert program.sections["license"][1].rstrip(b"\0") == b"Dual BSD/GPL"


def test_both_architectures_say_the_same() -> None:
    """Clients take layouts from the first node that answers: all have to have them."""
    one, other = (BpfObject(gadgethost.compiled(SOURCE, name)) for name in ("amd64", "arm64"))
    for source in ROWS:
        for left, right in zip(structs(one, source), structs(other, source), strict=True):
            shapes = [
                [(name, m.offset, m.size) for name, m in fields(program, struct)]
                for program, struct in ((one, left), (other, right))
            ]
            assert shapes[0] == shapes[1]
    assert one.programs == other.programs
    assert {name: shape(table) for name, table in one.maps.items()} == {
        name: shape(table) for name, table in other.maps.items()
    }


def shape(table: object) -> tuple[object, ...]:
    names = ("type", "key_size", "value_size", "entries", "flags")
    return tuple(getattr(table, name) for name in names)


# Markers --------------------------------------------------------------------------------


def markers(program: BpfObject) -> set[str]:
    """Variables of global linkage that are ``const void *``."""
    return {
        name
        for name, variable in program.variables.items()
        if variable["linkage"] == "global"
        and program.chain(variable)[1:] == ["PTR", "CONST", "VOID"]
        and name.startswith("gadget_")
    }


def test_markers(program: BpfObject) -> None:
    assert markers(program) == {
        "gadget_tracer_events___cuda_events___cuda_event",
        "gadget_map_tracer_cuda_events",
        *(f"gadget_mapiter_{source}___{table}" for source, table in MAP_ITERATORS.items()),
        *(f"gadget_param_{name}" for name in PARAMETERS),
    }
    known = ("gadget_tracer_", "gadget_map_tracer_", "gadget_mapiter_", "gadget_param_")
    meant = {name for name in program.variables if name.startswith(known)}
    assert meant == markers(program), "a marker of another type is passed over in silence"


def test_no_name_has_what_separates_the_parts_of_a_marker(program: BpfObject) -> None:
    rows = {name for names in ROWS.values() for name in names}
    for name in {*program.maps, *program.programs, *rows, *PARAMETERS}:
        assert "___" not in name


def test_tables_of_rows(program: BpfObject) -> None:
    """Hashes exactly, of structs that are spelled as such."""
    for source, table in MAP_ITERATORS.items():
        found = program.maps[table]
        assert found.type == "HASH"
        assert [found.key, found.value] == structs(program, source)
        assert found.flags == 0
    assert program.maps["cuda_events"].type == "RINGBUF"
    assert program.maps["cuda_events"].entries.bit_count() == 1


def test_losses_of_the_ring_are_counted_where_they_are_read(program: BpfObject) -> None:
    """Trap 11: by what is not told of a ring nobody would see that something is missing."""
    assert shape(program.maps["cuda_events_lost_samples"]) == ("PERCPU_ARRAY", 4, 8, 1, 0)
    assert "losses" in MAP_ITERATORS, "and in a data source of our own"


# Fields ---------------------------------------------------------------------------------


def test_every_member_becomes_a_field(program: BpfObject) -> None:
    """Trap 6: structs and enums behind a typedef vanish, or stay numbers."""
    for name, member in every_field(program):
        kinds = [word.split()[0] for word in program.chain(member.type)]
        assert member.name, f"{name} has no name"
        assert not member.name.startswith("__"), name
        bare = program.bare(member.type)
        if bare["kind"] in ("STRUCT", "UNION", "ENUM"):
            assert kinds[0] == bare["kind"], f"{name} is behind a typedef"
        elif bare["kind"] == "ARRAY":
            element = program.bare(program.types[bare["type_id"]])
            assert element["kind"] == "INT", name
            assert bare["nr_elems"] > 0, name
        else:
            assert kinds[-1] == "INT", name


def added(program: BpfObject, names: list[tuple[str, Member]]) -> Iterator[str]:
    """Fields that operators put beside those of the program."""
    for name, member in names:
        words = program.chain(member.type)
        parent = name.rpartition(".")[0]
        inside = parent + "." if parent else ""
        if name.endswith("_raw") and "STRUCT gadget_user_stack" not in words:
            yield name.removesuffix("_raw")
        if "TYPEDEF gadget_uid" in words:
            yield inside + "user"
        if "TYPEDEF gadget_gid" in words:
            yield inside + "group"
        if "STRUCT gadget_user_stack" in words:
            yield from (f"{name}.{one}" for one in ("addresses", "buildid", "symbols"))
    yield from ("k8s", "runtime")


@pytest.mark.parametrize("source", ROWS)
def test_no_two_fields_of_one_name(source: str, program: BpfObject) -> None:
    """Trap 7, with what it says of short names: a key's meets a nested value's."""
    *keys, value = structs(program, source)
    key_names = {name for key in keys for name, _ in fields(program, key)}
    value_fields = list(fields(program, value))
    short = {member.name for _, member in value_fields}
    assert not key_names & short
    assert not key_names & {"pid", "tid", "comm", "uid", "gid", "mntns_id", "inode"}
    names = [*key_names, *(name for name, _ in value_fields)]
    names += added(program, value_fields)
    assert len(names) == len(set(names))


def test_names_of_enums_are_ours(program: BpfObject) -> None:
    """Trap 13: the running kernel's enum of that name would say what our numbers mean."""
    if not Path("/sys/kernel/btf/vmlinux").exists():
        pytest.skip("this kernel does not describe its types")
    command = ["bpftool", "btf", "dump", "file", "/sys/kernel/btf/vmlinux", "format", "raw"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    kernels = {line.split("'")[1] for line in text.splitlines() if "] ENUM" in line}
    ours = {
        member.type["name"] for _, member in every_field(program) if member.type["kind"] == "ENUM"
    }
    assert len(kernels) > 1000
    assert ours
    assert not ours & kernels
    assert all(name.startswith("igsdk_") and not name.endswith("_set") for name in ours)


def test_numbers_of_enums_have_one_name(program: BpfObject) -> None:
    seen = {}
    for _, member in every_field(program):
        if member.type["kind"] == "ENUM":
            seen[member.type["name"]] = [one["val"] for one in member.type["values"]]
    for name, values in seen.items():
        assert len(values) == len(set(values)), name
    assert seen["igsdk_memory_kind"] == list(range(len(_abi.KINDS)))
    assert seen["igsdk_memory_host"] == list(range(len(_abi.HOSTS)))


def test_keys_have_no_holes(program: BpfObject) -> None:
    """Trap 8: keys are compared byte by byte; those of all hashes, not of rows alone."""
    checked = []
    for name, table in program.maps.items():
        if table.type not in ("HASH", "LRU_HASH") or not table.key:
            continue
        if table.key["kind"] == "STRUCT":
            at = 0
            for member in program.members(table.key):
                assert member.offset == at, f"{name}: a hole before {member.name}"
                at += member.size
            assert at == table.key_size, f"{name}: a hole at the end"
            checked.append(name)
    assert set(checked) >= set(MAP_ITERATORS.values())


def test_rows_are_not_found_by_the_number_of_a_stack(program: BpfObject) -> None:
    """Trap 10: numbers of Inspektor Gadget's table collide and run out."""
    for source in MAP_ITERATORS:
        key, _ = structs(program, source)
        assert [name for name, _ in fields(program, key) if "stack" in name] == []


def test_rows_have_no_hidden_holes(program: BpfObject) -> None:
    """What the compiler puts between members would go out to readers as it is."""
    for source in ROWS:
        for struct in structs(program, source):
            at = 0
            for member in program.members(struct):
                assert member.offset == at, f"{struct['name']}: a hole before {member.name}"
                at += member.size
            assert at == struct["size"], f"{struct['name']}: a hole at the end"


PROCESS = {
    "comm": (0, 16),
    "pid": (16, 4),
    "tid": (20, 4),
    "mntns_id": (24, 8),
    "creds": (32, 8),
    "creds.uid": (32, 4),
    "creds.gid": (36, 4),
    "parent": (40, 24),
    "parent.comm": (40, 16),
    "parent.pid": (56, 4),
    "parent.tid": (60, 4),
}
STACK = {
    "major": (0, 4),
    "minor": (4, 4),
    "inode": (8, 8),
    "mtime_sec": (16, 8),
    "mtime_nsec": (24, 4),
    "base_addr_hash": (28, 4),
    "stack_id": (32, 4),
    "tgid_level0": (36, 4),
    "pid_level0": (40, 4),
    "pidns_level0": (44, 4),
    "pid_level1": (48, 4),
    "pidns_level1": (52, 4),
    "otel_correlation_id": (56, 8),
    "boot_timestamp": (64, 8),
}


@pytest.mark.parametrize(
    ("name", "layout"), [("gadget_process", PROCESS), ("gadget_user_stack", STACK)]
)
def test_structs_that_inspektor_gadget_knows(
    name: str, layout: dict[str, tuple[int, int]], program: BpfObject
) -> None:
    struct = program.named("STRUCT", name)
    found: dict[str, tuple[int, int]] = {}
    bases: dict[str, int] = {"": 0}
    for full, member in fields(program, struct):
        base = bases[full.rpartition(".")[0]]
        bases[full] = base + member.offset
        found[full] = (bases[full], member.size)
    assert found == layout


def test_types_have_the_names_that_mean_something(program: BpfObject) -> None:
    words = {name: program.chain(member.type)[0] for name, member in every_field(program)}
    expected = {
        "TYPEDEF gadget_mntns_id": ["heap.proc.mntns_id", "processes.proc.mntns_id"],
        "TYPEDEF gadget_pid": ["heap.proc.pid"],
        "TYPEDEF gadget_timestamp": ["heap.time_raw", "events.time_raw", "processes.started_raw"],
        "TYPEDEF gadget_bytes": ["heap.in_use_raw", "processes.peak_raw", "events.bytes_raw"],
        "TYPEDEF gadget_duration": ["events.latency_raw"],
        "TYPEDEF gadget_counter__u64": ["processes.mem_alloc_bytes", "processes.mem_free_bytes"],
        "STRUCT gadget_user_stack": ["heap.ustack_raw", "events.ustack_raw"],
        "STRUCT gadget_process": ["heap.proc", "processes.proc", "events.proc"],
    }
    for word, names in expected.items():
        assert {words[name] for name in names} == {word}


# Maps with a meaning --------------------------------------------------------------------


WELL_KNOWN = {
    # Traps 1 and 2: without it a first stack ends Inspektor Gadget; its size is a variable
    "ig_build_id": ("HASH", 4, 127 * 32, 0, 0),
    # Trap 4: one bit that differs, and the empty map of our own filters everybody out
    "gadget_mntns_filter_map": ("HASH", 8, 4, 1024, 0),
    "otel_generic_params": ("PERCPU_ARRAY", 4, 8, 1, 0),
    "otel_tc_kprobe": ("PROG_ARRAY", 4, 4, 1, 0),
}


@pytest.mark.parametrize("name", WELL_KNOWN)
def test_maps_that_inspektor_gadget_knows(name: str, program: BpfObject) -> None:
    assert shape(program.maps[name]) == WELL_KNOWN[name]


def test_the_stack_table(program: BpfObject) -> None:
    kind, *sizes, entries, flags = shape(program.maps["ig_ustack"])
    assert (kind, sizes, flags) == ("STACK_TRACE", [4, 127 * 8], 0)
    assert isinstance(entries, int)
    assert entries >= 10_000


def test_maps_by_other_known_names_are_not_there(program: BpfObject) -> None:
    for name in ("ig_kstack", "gadget_sockets", "otel_tc_perf"):
        assert name not in program.maps


def test_no_map_is_pinned(program: BpfObject) -> None:
    """By name it would be shared with every other gadget of that name."""
    for variable in program.named("DATASEC", ".maps")["vars"]:
        definition = program.types[program.types[variable["type_id"]]["type_id"]]
        assert "pinning" not in {member.name for member in program.members(definition)}


def test_sizes_that_variables_set(program: BpfObject) -> None:
    """Trap 2: what has no entries gets them by a variable of its name, an int."""
    sized = {name.removesuffix("_max_entries") for name in program.variables if is_size(name)}
    assert sized == {"ig_build_id", "live_table"}
    assert sized <= program.maps.keys()
    for name in sized:
        words = program.chain(program.variables[f"{name}_max_entries"])
        assert words[1:] == ["CONST", "VOLATILE", "INT int"]
    for name, table in program.maps.items():
        assert table.entries or name in sized or table.type == "TASK_STORAGE", name


def is_size(name: str) -> bool:
    return name.endswith("_max_entries") and not name.startswith("gadget_")


# Variables ------------------------------------------------------------------------------


def test_no_name_that_keeps_a_gadget_from_starting(program: BpfObject) -> None:
    """Trap 3."""
    assert not [name for name in program.variables if name.startswith("gadget_var_")]


def test_the_filter_is_switched_on_by_a_variable(program: BpfObject) -> None:
    words = program.chain(program.variables["gadget_filter_by_mntns"])
    assert words[1:4] == ["CONST", "VOLATILE", "TYPEDEF bool"] or words[3] == "INT _Bool"
    assert program.section_of("gadget_filter_by_mntns") == ".rodata"
    assert program.initial("gadget_filter_by_mntns") == b"\0"


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_parameter_is_a_constant_with_its_default(name: str, program: BpfObject) -> None:
    variable = program.variables[name]
    assert variable["linkage"] == "global"
    assert program.section_of(name) == ".rodata"
    assert program.initial(name) == PARAMETERS[name]
    words = program.chain(variable)
    assert {"CONST", "VOLATILE"} <= set(words)
    assert program.bare(program.types[variable["type_id"]])["kind"] in ("INT", "ARRAY")


def test_no_parameter_is_an_endpoint(program: BpfObject) -> None:
    """Trap 9: of that type none can be set."""
    for name in PARAMETERS:
        assert "STRUCT gadget_l3endpoint_t" not in program.chain(program.variables[name])


def test_parameters_have_the_types_of_their_usual_names(program: BpfObject) -> None:
    usual = {
        "targ_pid": "TYPEDEF gadget_pid",
        "targ_uid": "TYPEDEF gadget_uid",
        "targ_gid": "TYPEDEF gadget_gid",
        "targ_comm": "TYPEDEF gadget_comm",
    }
    for name, word in usual.items():
        assert word in program.chain(program.variables[name])
    for name in ("collect_ustack", "collect_build_id", "collect_otel_stack"):
        assert program.chain(program.variables[name])[-1] == "INT _Bool"


def test_a_text_has_its_default_in_the_metadata_too(
    program: BpfObject, metadata: dict[str, dict[str, dict[str, dict[str, str]]]]
) -> None:
    """Texts of the program are overwritten with nothing where the metadata say none."""
    for name, said in metadata["params"]["ebpf"].items():
        initial = PARAMETERS[name]
        if program.bare(program.types[program.variables[name]["type_id"]])["kind"] == "ARRAY":
            assert said.get("defaultValue", "").encode() == initial.rstrip(b"\0")
    assert metadata["params"]["ebpf"].keys() == PARAMETERS.keys()


def test_numbers_have_the_same_default_in_both(
    metadata: dict[str, dict[str, dict[str, dict[str, str]]]],
) -> None:
    texts = {"events_wanted", "targ_comm"}
    for name, said in metadata["params"]["ebpf"].items():
        value = str(said.get("defaultValue", ""))
        if name not in texts and value:
            number = {"true": 1, "false": 0}[value] if value in ("true", "false") else int(value)
            assert number == int.from_bytes(PARAMETERS[name], "little"), name


# Programs -------------------------------------------------------------------------------


def test_programs(program: BpfObject) -> None:
    """A pair for each symbol, and nothing in a section that is not known."""
    pairs = {
        f"{program_}_{symbol}": f"{kind}/libcuda:{symbol}"
        for symbol in _abi.sites()
        for program_, kind in (("enter", "uprobe"), ("leave", "uretprobe"))
    }
    assert program.programs == pairs | {
        "call_entry": "uprobe/libcuda:igsdk_entry",
        "call_return": "uretprobe/libcuda:igsdk_return",
        "on_exit": "raw_tracepoint/sched_process_exit",
        "on_exec": "raw_tracepoint/sched_process_exec",
        "on_rename": "raw_tracepoint/task_rename",
        "on_fork": "raw_tracepoint/sched_process_fork",
        "tick": "perf_event/tick",
    }


def test_who_is_called_by_others_is_not_attached(
    program: BpfObject, metadata: dict[str, dict[str, dict[str, object]]]
) -> None:
    """Symbols that no library has would be passed over, but by a line in a log each."""
    called = {"call_entry", "call_return"}
    for name in called:
        assert metadata["programs"][name]["attach_to"] == "gadget_program_disabled"
    assert {name for _, name in program.references[".maps"]} == called
    assert shape(program.maps["handlers"])[0] == "PROG_ARRAY"


def test_a_sampler_is_described(metadata: dict[str, dict[str, dict[str, object]]]) -> None:
    said = metadata["programs"]["tick"]
    wanted = {"type": "software", "config": "count_sw_cpu_clock", "sampleType": "sample_raw"}
    assert said["perf"] == wanted
    assert said["sampler"] == {"frequency": 4}


def test_probes_get_containers_to_attach_to(program: BpfObject) -> None:
    """Trap 5: without the map or a namespace in a row nobody asks for them at all."""
    words = [word for _, member in every_field(program) for word in program.chain(member.type)]
    assert "TYPEDEF gadget_mntns_id" in words
    assert "gadget_mntns_filter_map" in program.maps


def test_a_probe_takes_the_otel_call(program: BpfObject) -> None:
    """The slot is only filled where a program of the right kind refers to the map."""
    users = {
        section
        for section, references in program.references.items()
        if section != ".BTF" and any(name == "otel_tc_kprobe" for _, name in references)
    }
    assert users == {".text"}, "in a function of its own, whose caller goes on behind the call"


# Metadata -------------------------------------------------------------------------------


def test_helper_columns_are_hidden(
    program: BpfObject, metadata: dict[str, dict[str, dict[str, dict[str, dict[str, object]]]]]
) -> None:
    """Trap 14: members that are nobody's business become columns unless they are hidden."""
    for source in ROWS:
        listed = metadata["datasources"][source]["fields"]
        for struct in structs(program, source):
            for name, _ in fields(program, struct):
                if name.rpartition(".")[2] in ("pad", "boot", "epoch"):
                    said = listed[name]["annotations"]
                    assert isinstance(said, dict)
                    assert said.get("columns.hidden") is True, f"{source}.{name}"


def test_readings_do_not_end(metadata: dict[str, dict[str, dict[str, dict[str, object]]]]) -> None:
    """Trap 15: after a number of readings a gadget would go on without telling anything."""
    for source in MAP_ITERATORS:
        said = metadata["datasources"][source]["annotations"]
        assert said.get("fetch-count", 0) == 0
        assert said["ebpf.map.flush-on-stop"] is True
