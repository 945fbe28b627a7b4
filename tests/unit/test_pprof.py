# SPDX-License-Identifier: Apache-2.0
"""pprof: round trip, same bytes, other tools' files, and an independent reader."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.profile_cases import LIBCUDA, A, B, C, profiles, sample

from igsdk import ProfileUnreadable
from igsdk._events import event_record
from igsdk._proto import pprof_pb2
from igsdk.ledger import AttachedLibrary, Event, Frame, ProcessInfo, Site, Stack, marker
from igsdk.profile import Metadata, ProcessRow, Profile
from igsdk.profile.pprof_read import decode
from igsdk.profile.pprof_write import encode
from igsdk.profile.wire import varint

ROOT = Path(__file__).resolve().parents[2]
GO = shutil.which("go") or "/usr/local/go/bin/go"
needs_go = pytest.mark.skipif(not Path(GO).exists(), reason="Go is not on this machine")


def message_of(data: bytes) -> pprof_pb2.Profile:
    return pprof_pb2.Profile.FromString(gzip.decompress(data))


@given(profiles)
@settings(max_examples=100, deadline=None)
def test_our_files_read_back_whole(profile: Profile):
    assert decode(encode(profile), "x") == profile
    assert decode(encode(profile.peak()), "x") == profile.peak()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=8, max_size=8))
@settings(max_examples=100, deadline=None)
def test_any_number_is_encoded_as_protobuf_does(values: list[int]):
    row: dict[str, Any] = dict(zip(Profile.values, values, strict=True))
    message = message_of(encode(Profile.from_samples([sample(A, **row)])))
    again = pprof_pb2.Sample(value=values)
    assert [list(item.value) for item in message.sample] == ([values] if any(values) else [])
    assert b"".join(map(varint, values)) in again.SerializeToString()


@given(profiles, profiles)
@settings(max_examples=50, deadline=None)
def test_the_same_content_gives_the_same_bytes(a: Profile, b: Profile):
    one = Profile(Profile.merge(a, b)._table)
    two = Profile(Profile.merge(b, a)._table)
    assert encode(one) == encode(two)
    assert encode(one) == encode(decode(encode(one), "x"))


@given(profiles, profiles)
@settings(max_examples=30, deadline=None)
def test_differences_keep_their_sign(a: Profile, b: Profile):
    difference = a.subtract(b)
    assert decode(encode(difference), "x") == difference


@given(profiles)
@settings(max_examples=60, deadline=None)
def test_files_are_what_strict_readers_want(profile: Profile):
    """The checks of pprof and Pyroscope: ids, indices, one value per type, a period type."""
    message = message_of(encode(profile))
    strings = len(message.string_table)
    assert message.string_table[0] == ""
    assert len(set(message.string_table)) == strings
    mappings = {mapping.id for mapping in message.mapping}
    functions = {function.id for function in message.function}
    locations = {location.id for location in message.location}
    assert 0 not in mappings | functions | locations
    for location in message.location:
        assert location.mapping_id in mappings | {0}
        assert {line.function_id for line in location.line} <= functions
    for item in message.sample:
        assert len(item.value) == 8
        assert set(item.location_id) <= locations
        assert all(0 < label.key < strings for label in item.label)
    types = [message.string_table[kind.type] for kind in message.sample_type]
    assert types == list(Profile.values)
    assert message.string_table[message.default_sample_type] == "inuse_space"
    assert message.string_table[message.period_type.type] == "space"
    assert message.string_table[message.period_type.unit] == "bytes"


def test_labels_mappings_and_times():
    row = sample(LIBCUDA, A, process="p", pid=5, start_ns=6, inuse_space=1, node="n")
    message = message_of(encode(Profile.from_samples([row], Metadata(time_ns=7, duration_ns=8))))
    text = message.string_table
    labels = {text[item.key]: text[item.str] or item.num for item in message.sample[0].label}
    assert labels == {
        "process": "p", "kind": "device", "device": "0", "node": "n", "pid": 5, "start_ns": 6,
    }  # fmt: skip
    (mapping,) = message.mapping
    assert (text[mapping.filename], text[mapping.build_id]) == ("/usr/lib/libcuda.so.1", "ab12")
    assert (mapping.has_functions, mapping.has_filenames) == (True, False)
    assert (message.time_nanos, message.duration_nanos) == (7, 8)
    native = next(item for item in message.location if item.mapping_id)
    assert native.address == 0x120


def test_memory_on_the_host_stays_apart_without_a_label_of_its_own():
    rows = [
        sample(A, kind="vmm", device="host", host="pinned", inuse_space=1),
        sample(A, kind="vmm", device="0", host="own", inuse_space=2),
        sample(A, kind="pool", device="0", host="managed", inuse_space=4),
    ]
    profile = Profile.from_samples(rows)
    back = decode(encode(profile), "x")
    assert back.totals() == profile.totals()
    assert back.total(host="pinned") == 1
    message = message_of(encode(profile))
    extra = [
        message.string_table[label.str]
        for item in message.sample
        for label in item.label
        if message.string_table[label.key] == "host"
    ]
    assert extra == ["managed"]


def test_names_that_are_no_unicode_do_not_spoil_the_file():
    profile = Profile.from_samples([sample(Frame("bad\udcffname"), inuse_space=1)])
    (frame,) = next(iter(decode(encode(profile), "x").samples()))["stack"]
    assert frame.function == "bad?name"


def comment_of(profile: Profile) -> str:
    message = message_of(encode(profile))
    (number,) = message.comment
    return message.string_table[number]


def oom(number: int, *stack: Frame) -> dict[str, Any]:
    event = Event(
        "failure", 10**13 + number, ProcessInfo(1, 4321, cmdline="python train.py"), 4321,
        "cuMemAlloc_v2", "device", 0, 0, 80 << 30, 2, "CUDA_ERROR_OUT_OF_MEMORY", 1500, 7 << 30,
        Stack.of(stack), 5857032016110123671,
    )  # fmt: skip
    return event_record(event)


def test_the_comment_is_short_and_nothing_is_lost():
    """pprof prints it above its tables."""
    deep = [LIBCUDA, *(Frame(f"function_{n}", "a.py", n) for n in range(40))]
    sites = tuple(
        Site(f"cuMemAllocThing_v{n}", 0x3F0000 + n, "entry" if n == 9 else "jump")
        for n in range(70)
    )
    library = AttachedLibrary("/usr/lib/libcuda.so.580.65", sites, ("cuNew",), "ab" * 20, "1:2")
    figures = dict.fromkeys(["in_use", "allocated", "freed", "failed_bytes", "failed_calls"], 9)
    row = ProcessRow("python train.py", 4321, 5, "python train.py", classes={"own": figures})
    metadata = Metadata(
        version="0.1.0", target="local:", command="python train.py", driver="real",
        boots=(5857032016110123671,), peak="exact", stacks=("frame pointers",),
        attached=(library,), losses={"nested": 4}, processes=(row,),
        failures=tuple(oom(number, *deep) for number in range(3)),
    )  # fmt: skip
    profile = Profile.from_samples([sample(*deep, failed_space=1, inuse_space=1)], metadata)
    quiet = Profile(profile._table, replace(metadata, failures=()))
    assert len(comment_of(quiet)) < 3000
    assert len(comment_of(profile)) < 4000
    assert "cuMemAllocThing_v3@3f0003 " in comment_of(profile)
    assert decode(encode(profile), "x") == profile


def test_failures_of_stacks_that_the_file_lacks_come_through():
    others = (oom(1, A, B), oom(2, Frame("elsewhere", "b.py", 7)), {"boot": 1, "time_ns": 5})
    profile = Profile.from_samples([sample(A, C, inuse_space=1)], Metadata(failures=others))
    assert decode(encode(profile), "x").metadata.failures == others


def test_the_program_is_the_first_mapping_and_the_driver_the_last():
    """pprof names the first one as the file that a profile is of."""
    program = Frame("main", None, 0, 1, "/srv/bin/train")
    small = Frame("helper", None, 0, 1, "/lib/a-small.so.1")
    large = Frame("allocate", None, 0, 1, "/lib/z-large.so.2")
    rows = [
        sample(LIBCUDA, large, program, alloc_space=9),
        sample(LIBCUDA, small, program, alloc_space=1),
    ]
    message = message_of(encode(Profile.from_samples(rows)))
    files = [message.string_table[mapping.filename] for mapping in message.mapping]
    assert files == ["/srv/bin/train", large.mapping, small.mapping, LIBCUDA.mapping]


def foreign(*types: tuple[str, str]) -> pprof_pb2.Profile:
    """A heap profile as another tool writes it: inlined functions, labels, no comment."""
    message = pprof_pb2.Profile(string_table=["", "main", "inner", "m.go", "host", "web-1"])
    for name, unit in types:
        message.string_table.extend([name, unit])
        end = len(message.string_table)
        message.sample_type.add(type=end - 2, unit=end - 1)
    message.function.add(id=9, name=1, filename=3)
    message.function.add(id=4, name=2)
    location = message.location.add(id=77, address=0x99)
    location.line.add(function_id=4, line=12)
    location.line.add(function_id=9, line=30)
    item = message.sample.add(location_id=[77], value=range(10, 10 + len(types)))
    item.label.add(key=4, str=5)
    message.sample.add(value=range(20, 20 + len(types)))
    return message


def test_other_tools_heap_profiles_are_read():
    message = foreign(("alloc_objects", "count"), ("alloc_space", "bytes"), ("wall", "seconds"))
    profile = decode(gzip.compress(message.SerializeToString()), "heap")
    assert profile.total("alloc_space") == 11 + 21
    assert profile.total("alloc_objects") == 10 + 20
    stacks = {tuple(f.name for f in s["stack"]) for s in profile.samples()}
    assert stacks == {("inner", "main"), ("[no stack]",)}
    assert {s["host"] for s in profile.samples()} == {""}
    assert profile.metadata.notes == ("Left out of the other tool's profile: wall.",)
    assert profile.metadata.foreign
    assert set(profile.metadata.lacks) == {*Profile.values} - {"alloc_space", "alloc_objects"}
    assert decode(encode(profile), "x") == profile
    assert decode(message.SerializeToString(), "raw").total("alloc_space") == 32


def test_a_cpu_profile_is_of_another_tool():
    message = foreign(("cpu", "nanoseconds"))
    with pytest.raises(ProfileUnreadable, match=r"no memory values \(but cpu\).*another tool"):
        decode(message.SerializeToString(), "cpu.pb.gz")


@pytest.mark.parametrize("field", ["location_id", "string", "mapping", "function", "value"])
def test_parts_that_do_not_fit_are_damage(field: str):
    message = foreign(("alloc_space", "bytes"))
    if field == "location_id":
        message.sample[0].location_id[0] = 5
    elif field == "string":
        message.function[0].name = 999
    elif field == "mapping":
        message.location[0].mapping_id = 3
    elif field == "function":
        message.location[0].line[0].function_id = 3
    else:
        message.sample[0].value.append(1)
    with pytest.raises(ProfileUnreadable, match="damaged"):
        decode(message.SerializeToString(), "x")


def pprof(tmp_path: Path, profile: Profile, *options: str) -> str:
    path = tmp_path / "x.pb.gz"
    profile.write(path)
    run = subprocess.run(
        [GO, "tool", "pprof", *options, str(path)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PPROF_TMPDIR": str(tmp_path), "GOFLAGS": "-mod=mod"},
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@needs_go
def test_go_shows_self_and_total(tmp_path: Path):
    profile = Profile.from_samples(
        [
            sample(LIBCUDA, A, B, C, inuse_space=3 << 30, alloc_space=4 << 30, inuse_objects=3),
            sample(marker("not attributed"), inuse_space=1 << 30),
        ]
    )
    text = pprof(tmp_path, profile, "-top")
    assert "Type: inuse_space" in text
    found = {line.split()[-1]: line.split()[0] for line in text.splitlines() if "GB" in line}
    assert found["cuMemAlloc_v2"] == "3GB"
    assert found["<module>"] == "0"
    assert "[not attributed]" in text
    alloc = pprof(tmp_path, profile, "-top", "-sample_index=alloc_space")
    assert "Type: alloc_space" in alloc
    assert "4GB" in alloc
    assert "Type: peak_space" in pprof(tmp_path, profile.peak(), "-top", "-nodefraction=0")


@needs_go
def test_go_reads_every_value_label_and_place(tmp_path: Path):
    row = sample(LIBCUDA, A, process="python x.py", pid=5, start_ns=6)
    row |= {name: 10 + number for number, name in enumerate(Profile.values)}
    text = pprof(tmp_path, Profile.from_samples([row], Metadata(notes=("hello",))), "-raw")
    assert "inuse_space/bytes[dflt] inuse_objects/count alloc_space/bytes" in text
    assert re.search(r"10 +11 +12 +13 +14 +15 +16 +17: ", text)
    assert "device:[0] kind:[device] process:[python x.py]" in text
    assert "pid:[5] start_ns:[6]" in text
    assert "0x120 M=1 cuMemAlloc_v2" in text
    assert "alloc a.py:1" in text
    assert "/usr/lib/libcuda.so.1 ab12 [FN]" in text
    assert '"notes":["hello"]' in text
    assert "PeriodType: space bytes" in text


def test_the_generated_code_is_that_of_the_pinned_generator():
    generator = ROOT / ".work/proto/bin/python"
    if not generator.exists():
        pytest.skip("the generator is not installed: make lint puts it into .work/proto")
    script = ROOT / "build" / "generate_proto.py"
    run = subprocess.run(
        [generator, script, "--check"], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stdout


def test_the_import_of_the_package_loads_neither_numpy_nor_protobuf():
    code = (
        "import sys, igsdk; igsdk.Event;"
        "print([m for m in ('numpy', 'google.protobuf') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60
    )
    assert run.stdout.strip() == "[]", run.stderr


def test_the_interpreter_s_frames_cost_one_word_in_the_comment():
    path = "/usr/lib/libpython3.11.so.1.0"
    inner = [Frame(f"f{n}", None, 0, n, path, kind="interpreter") for n in range(300)]
    odd = Frame("PyInit_x", None, 0, 500, path)
    profile = Profile.from_samples([sample(LIBCUDA, A, *inner, odd, inuse_space=1)])
    about = json.loads(comment_of(profile))
    assert list(about["mapping_kinds"].values()) == ["interpreter"]
    assert list(about["frame_kinds"].values()) == ["native"]
    assert decode(encode(profile), "x") == profile
    message = message_of(encode(profile))
    functions = {f.id: f for f in message.function}
    python = [location for location in message.location if not location.mapping_id]
    text = message.string_table
    (line,) = python[0].line
    named = functions[line.function_id]
    assert (text[named.name], text[named.filename], line.line) == ("alloc", "a.py", 1)
