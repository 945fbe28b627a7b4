# SPDX-License-Identifier: Apache-2.0
"""Views: which frames are shown, and who asked for the memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from tests.unit.profile_cases import LIBCUDA, profiles, sample

from igsdk import UsageError
from igsdk._events import Event, FrameKind, ProcessInfo, event_record
from igsdk.cli.app import run
from igsdk.ledger import Frame, Stack, marker
from igsdk.profile import Metadata, Profile
from igsdk.profile.shown import VIEWS
from igsdk.views import report_record, report_text

GIB = 1 << 30
ENGINE = "/srv/vllm/v1/engine/core.py"
WORKER = "/srv/vllm/v1/worker/gpu_worker.py"
RUNNER = "/srv/vllm/v1/worker/gpu_model_runner.py"
TORCH = "/srv/torch/lib/libtorch_cuda.so"
PYTHON = "/usr/bin/python3.11"


def python(name: str, file: str, line: int) -> Frame:
    return Frame(name, file, line, kind="python")


def interpreter(name: str) -> Frame:
    return Frame(name, None, 0, 0x5000 + len(name), PYTHON, kind="interpreter")


MALLOC = Frame("c10::cuda::Native::malloc(unsigned long)", None, 0, 0x700, TORCH)
EMPTY = Frame("at::detail::empty_cuda", None, 0, 0x900, TORCH)
ASKED = python("GPUModelRunner._allocate_kv_cache_tensors", RUNNER, 4012)
EVAL, MAIN = interpreter("_PyEval_EvalFrameDefault"), interpreter("Py_BytesMain")
#: leaf first, as in the guide's example
KV_CACHE = (
    LIBCUDA, MALLOC, EMPTY, interpreter("cfunction_call"),
    ASKED,
    python("GPUModelRunner.initialize_kv_cache", RUNNER, 4117),
    python("Worker.initialize_from_config", WORKER, 301),
    python("EngineCore._initialize_kv_caches", ENGINE, 240),
    python("EngineCore.__init__", ENGINE, 112),
    python("EngineCoreProc.run_engine_core", ENGINE, 853),
    python("<module>", "/srv/serve.py", 7),
    EVAL, MAIN,
)  # fmt: skip
WEIGHTS = (
    LIBCUDA, MALLOC, python("LlamaMLP.__init__", "/srv/llama.py", 77),
    python("<module>", "/srv/serve.py", 5), EVAL, MAIN,
)  # fmt: skip
NATIVE_ONLY = (LIBCUDA, Frame("warm_up", None, 0, 0x10, "/srv/server"))


def vllm() -> Profile:
    rows = [
        sample(*KV_CACHE, inuse_space=55 * GIB, inuse_objects=2, process="vllm", pid=9),
        sample(*WEIGHTS, inuse_space=15 * GIB, inuse_objects=9, process="vllm", pid=9),
        sample(*NATIVE_ONLY, inuse_space=GIB, inuse_objects=1, process="vllm", pid=9),
    ]
    oom = Event(
        "failure", 5, ProcessInfo(1, 9), 9, "cuMemAlloc_v2", "device", 0, 0, 1, 2, "", 1, 1,
        Stack.of(KV_CACHE),
    )  # fmt: skip
    return Profile.from_samples(rows, Metadata(failures=(event_record(oom),)))


def stack_of(profile: Profile) -> tuple[Frame, ...]:
    row = max(profile.samples(), key=lambda sample: int(sample["inuse_space"]))
    frames: tuple[Frame, ...] = row["stack"]
    return frames


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_has_its_kinds_and_every_byte(view: Any) -> None:
    profile = vllm().shown(view)
    assert stack_of(profile) == tuple(f for f in KV_CACHE if f.kind in VIEWS[view])
    assert profile.total() == vllm().total()
    assert [f["kind"] for f in profile.metadata.failures[0]["stack"]] == [
        frame.kind for frame in stack_of(profile)
    ]


def test_every_kind_is_in_a_view() -> None:
    assert set(VIEWS["full"]) == set(get_args(FrameKind))


def test_what_a_view_leaves_nothing_of_stands_under_a_reason() -> None:
    rows = {row["stack"]: row["inuse_space"] for row in vllm().shown("python").samples()}
    assert rows[marker("no Python frames"),] == GIB
    hidden = Profile.from_samples([sample(EVAL, inuse_space=5)])
    assert stack_of(hidden.shown()) == (marker("only frames of the interpreter"),)
    assert stack_of(hidden.shown("native")) == (EVAL,)


def test_there_are_no_other_views() -> None:
    with pytest.raises(UsageError, match="'all'"):
        vllm().shown("all")  # type: ignore[arg-type]


def test_self_is_the_python_function_s_that_asked() -> None:
    """As the guide reads: wide bars orchestrate, the one with a high self is the target."""
    figures = {row.name: (row.self, row.total) for row in vllm().shown().asked().top(20)}
    assert figures["GPUModelRunner._allocate_kv_cache_tensors"] == (55 * GIB, 55 * GIB)
    assert figures["EngineCore.__init__"] == (0, 55 * GIB)
    assert figures["<module>"] == (0, 70 * GIB)
    assert figures["LlamaMLP.__init__"] == (15 * GIB, 15 * GIB)
    assert figures["warm_up"] == (GIB, GIB)
    assert not {"cuMemAlloc_v2", MALLOC.function, EMPTY.function} & set(figures)


def test_without_python_frames_it_is_the_native_function() -> None:
    figures = {row.name: row.self for row in vllm().shown("native").asked().top(20)}
    assert figures[MALLOC.function] == 70 * GIB
    only_driver = Profile.from_samples([sample(LIBCUDA, inuse_space=3)])
    assert [row.self for row in only_driver.asked().top()] == [3]
    assert len(Profile.from_samples([]).asked()) == 0


@given(profiles)
@settings(max_examples=60, deadline=None)
def test_no_byte_is_lost(profile: Profile) -> None:
    for view in VIEWS:
        shown = profile.shown(view)
        for value in Profile.values:
            assert shown.totals(value) == profile.totals(value)
            assert shown.asked().totals(value) == profile.totals(value)
        kinds = {frame.kind for row in shown.samples() for frame in row["stack"]}
        assert kinds <= set(VIEWS[view])
        assert shown.shown(view) == shown
    assert profile.shown("full") == profile


def test_the_report_begins_with_the_line_that_asked() -> None:
    text = report_text(vllm().shown(), width=120)
    lines = text[text.index("lines of code that asked") :].splitlines()
    assert lines[2].split()[:4] == ["55.00", "GiB", "77.5", "%"]
    assert lines[2].endswith(f"GPUModelRunner._allocate_kv_cache_tensors  {RUNNER}:4012")
    assert lines[3].endswith("LlamaMLP.__init__  /srv/llama.py:77")
    assert text.index("lines of code that asked") < text.index("functions, ")
    assert "lines of code that asked" not in report_text(vllm().shown("native"))
    first = report_record(vllm().shown())["lines"][0]
    assert (first["function"], first["line"], first["self"]) == (ASKED.function, 4012, 55 * GIB)


def test_a_stack_reads_like_the_guide_s() -> None:
    text = report_text(vllm().shown(), width=160)
    stack = text[text.index("1. 55.00 GiB") :].split("\n  2. ")[0].splitlines()[2:]
    told = [line.split("  ")[-2].strip() for line in stack]
    assert told[:7] == [
        "<module>", "EngineCoreProc.run_engine_core", "EngineCore.__init__",
        "EngineCore._initialize_kv_caches", "Worker.initialize_from_config",
        "GPUModelRunner.initialize_kv_cache", "GPUModelRunner._allocate_kv_cache_tensors",
    ]  # fmt: skip
    assert stack[6].split()[:4] == ["55.00", "GiB", "55.00", "GiB"]
    assert told[7:] == [EMPTY.function, MALLOC.shown_name, "cuMemAlloc_v2"]
    assert stack[7].split()[0] == EMPTY.function, "what Python called asked for nothing itself"


def test_deep_native_callees_do_not_push_the_line_out_of_sight() -> None:
    callees = [Frame(f"op{n}", None, 0, n, TORCH) for n in range(40)]
    callers = [python(f"f{n}", "deep.py", n) for n in range(200)]
    profile = Profile.from_samples([sample(LIBCUDA, *callees, *callers, inuse_space=8)])
    stack = report_text(profile)[report_text(profile).index("(root first") :]
    for shown in ("f199", "f14", "f0  deep.py", "op0", "cuMemAlloc_v2"):
        assert shown in stack
    for hidden in ("f100", "op20"):
        assert hidden not in stack
    assert stack.count("frames …") == 2


def test_a_refused_call_is_at_the_line_that_asked() -> None:
    text = report_text(vllm().shown(), width=160)
    at = text[text.index("Failed allocations") :].splitlines()
    assert at[2] == f"    at {ASKED.function}  {RUNNER}:4012"
    assert at[3] == f"    by GPUModelRunner.initialize_kv_cache  {RUNNER}:4117"


@pytest.mark.parametrize("suffix", [".pb.gz", ".json"])
def test_files_keep_all_kinds(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    vllm().write(path)
    assert Profile.read(path) == vllm()
    assert stack_of(Profile.read(path)) == KV_CACHE


def test_folded_lines_are_what_the_profile_has(tmp_path: Path) -> None:
    vllm().shown("python").write(tmp_path / "x.folded")
    lines = (tmp_path / "x.folded").read_text().splitlines()
    assert f"vllm;<module>;LlamaMLP.__init__ {15 * GIB}" in lines
    vllm().write(tmp_path / "y.folded")
    assert (
        "vllm;Py_BytesMain;_PyEval_EvalFrameDefault;<module>;LlamaMLP.__init__;"
        in (tmp_path / "y.folded").read_text()
    )


@pytest.mark.parametrize(
    ("options", "there", "absent"),
    [
        ([], [MALLOC.shown_name, "LlamaMLP.__init__"], [EVAL.function]),
        (["--python"], ["LlamaMLP.__init__"], [EVAL.function, MALLOC.shown_name]),
        (["--native"], [EVAL.function, MALLOC.shown_name], ["LlamaMLP.__init__"]),
        (["--full"], [EVAL.function, MALLOC.shown_name, "LlamaMLP.__init__"], []),
        (["--full", "--full", "--by", "stack"], [EVAL.function, MALLOC.shown_name], []),
    ],
)
def test_the_command_line_chooses(
    tmp_path: Path, capsys: Any, options: list[str], there: list[str], absent: list[str]
) -> None:
    vllm().write(tmp_path / "x.pb.gz")
    for more in ([], ["--json"]):
        assert run(["report", str(tmp_path / "x.pb.gz"), *options, *more]) == 0
        text = capsys.readouterr().out
        assert all(name in text for name in there)
        assert not any(name in text for name in absent)
        in_whole = bool(more) and MALLOC.shown_name in there
        assert (MALLOC.function in text) == in_whole, "text has short names, JSON whole ones"


def test_one_view_at_a_time(tmp_path: Path, capsys: Any) -> None:
    vllm().write(tmp_path / "x.pb.gz")
    assert run(["report", str(tmp_path / "x.pb.gz"), "--native", "--python"]) == 2
    assert "--python and --native are different views" in capsys.readouterr().err.replace(
        "--native and --python", "--python and --native"
    )
