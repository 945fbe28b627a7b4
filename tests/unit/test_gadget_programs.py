# SPDX-License-Identifier: Apache-2.0
"""Programs that call one another or sample, and defaults, beside what gadget.yaml says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support import tiny

from igsdk.image import elf
from igsdk.image.build import build

SOURCE = tiny.SOURCE.with_name("calls")
DISABLED = "    attach_to: gadget_program_disabled\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SOURCE, tmp_path / "calls"))


def test_it_builds_without_a_word() -> None:
    assert build(str(SOURCE)).warnings == []


def test_arrays_tell_what_they_hold() -> None:
    found = elf.read(tiny.compiled(SOURCE / "program.bpf.c"), "it")
    assert found.maps["handlers"].programs == ("on_call", "on_return")
    assert found.maps["counts"].programs == ()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  beat:\n", "  on_beat:\n", "perf.type has no effect, on_beat is no name of a section"),
        ("  beat:\n", "  beet:\n", "no program 'beet' in the object"),
        ("      frequency: 4", "      frequency: 0", "has to be a whole number above 0"),
        ("      frequency: 4", "      frequency: often", "has to be a whole number above 0"),
        ("type: software", "type: hardware", "perf.type of program beat has to be software"),
        ("    sampler:", "    attach_to: x\n    sampler:", "attach_to of beat has no effect"),
        (
            f"  on_call:\n{DISABLED}",
            "  on_call:\n    attach_to: gadget_program_disable\n",
            "on_call: gadget_program_disable is not FILE:SYMBOL",
        ),
        ("  on_call:", "  on_cal:", "no program 'on_cal' in the object (did you mean 'on_call'"),
        ("defaultValue: all", "defaultValue: everything", "has 10 bytes, there is room for 8"),
        ("defaultValue: true", "defaultValue: maybe", "'maybe' is neither true nor false"),
        ("ebpf.map-fetch-interval", "ebpf.loud", "'5s' is neither true nor false"),
        ("ebpf.map-fetch-interval", "ebpf.map-fetch-intervall", "no parameter 'map-fetch-interv"),
        ("operator.oci.ebpf", "operator.oic.ebpf", "no operator with parameters 'operator.oic'"),
    ],
)
def test_what_has_no_effect(folder: Path, old: str, new: str, words: str) -> None:
    _, cause = tiny.complaints(folder, "gadget.yaml", old, new)
    assert words in cause


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "      type: software\n",
            "",
            "on_beat samples, for which gadget.yaml has to say programs.beat.perf.type",
        ),
        (
            "    sampler:\n      frequency: 4\n",
            "",
            "gadget.yaml has to say programs.beat.sampler.frequency",
        ),
    ],
)
def test_what_samples_has_to_be_told_how(folder: Path, old: str, new: str, words: str) -> None:
    _, cause = tiny.complaints(folder, "gadget.yaml", old, new)
    assert words in cause


def test_a_program_that_is_called_and_attached_is_doubtful(folder: Path) -> None:
    tiny.change(folder, "gadget.yaml", f"  on_call:\n{DISABLED}", "")
    [warning] = build(str(folder)).warnings
    assert "programs.on_call.attach_to: gadget_program_disabled" in warning


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            'SEC("uretprobe/libc:handler_of_returns")',
            'SEC("raw_tracepoint/sched_process_exit")',
            "map handlers holds programs of different kinds: raw_tracepoint, uprobe",
        ),
        (
            'SEC("uretprobe/libc:handler_of_returns")',
            "__attribute__((noinline))",
            "map handlers: on_return is no program with a section of its own",
        ),
        ("int (*max_entries)[2];", "int (*max_entries)[1];", "1 entries for 2 programs"),
        ('SEC("perf_event/beat")', 'SEC("iter/task_vma")', "attaches nothing to iter/task_vma"),
        (
            'SEC("perf_event/beat")',
            'SEC("classifier/sideways/x")',
            "attaches nothing to classifier/sideways/x",
        ),
        (
            "const volatile _Bool loud = 1;",
            "enum shade { pale };\nconst volatile enum shade loud = 1;",
            "parameter loud is of a type that Inspektor Gadget can't set",
        ),
    ],
)
def test_programs_that_are_not_taken(folder: Path, old: str, new: str, words: str) -> None:
    _, cause = tiny.complaints(folder, "program.bpf.c", old, new)
    assert words in cause


def test_a_program_that_nobody_attaches_may_be_anywhere(folder: Path) -> None:
    """The kernel loads it; gadget.yaml keeps Inspektor Gadget from doing more."""
    tiny.change(folder, "program.bpf.c", 'SEC("perf_event/beat")', 'SEC("iter/task_vma")')
    text = (folder / "gadget.yaml").read_text()
    start, end = text.index("  beat:\n"), text.index("paramDefaults")
    (folder / "gadget.yaml").write_text(f"{text[:start]}  on_beat:\n{DISABLED}{text[end:]}")
    assert build(str(folder)).digest


def test_defaults_that_do_not_come_to_be(folder: Path) -> None:
    """Of numbers the program's count, of texts and fractions gadget.yaml's or none."""
    tiny.change(folder, "gadget.yaml", "defaultValue: true", "defaultValue: false")
    tiny.change(folder, "gadget.yaml", "      defaultValue: all\n", "")
    tiny.change(folder, "program.bpf.c", "float share = 0;", "float share = 0.5;")
    kinds, loud, share = sorted(build(str(folder)).warnings)
    assert "kinds: the program's own value is lost" in kinds
    assert "loud: the default 'false' in gadget.yaml has no effect" in loud
    assert "share: the program's own value is lost" in share
