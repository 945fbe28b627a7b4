# SPDX-License-Identifier: Apache-2.0
"""The one place where errors become a line and an exit code, and what starting costs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import igsdk
from igsdk.cli import output
from igsdk.cli.app import run

HEAVY = ("numpy", "google", "pynvml", "igsdk._native", "igsdk._run", "igsdk.profile", "asyncio")


def igsdk_command(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "igsdk.cli", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload]


def raising(error: BaseException) -> object:
    def connect(target: str) -> object:
        raise error

    return connect


@pytest.mark.parametrize("arguments", [["--help"], ["record", "--help"], ["events", "-h"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys, atexit\n"
        "from igsdk.cli import main\n"
        "atexit.register(lambda: print(' '.join(sys.modules), file=sys.stderr))\n"
        f"main({arguments!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: igsdk")
    assert {"click", "igsdk.cli.events"} & set(done.stderr.split())
    assert set(done.stderr.split()).isdisjoint(HEAVY)


def test_without_arguments_the_help_is_shown_once() -> None:
    done = igsdk_command()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: igsdk")
    assert done.stderr.count("Usage:") == done.stderr.count("Exit codes:") == 1
    assert done.stderr.endswith("127  there is no such command\n")
    assert re.search(r"[^\n -~]|[ ]$", done.stderr, re.MULTILINE) is None
    assert igsdk_command("--help").stdout == done.stderr


def test_ctrl_c_during_the_imports(tmp_path: Path) -> None:
    code = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n"
    (tmp_path / "click.py").write_text(code)
    done = igsdk_command("doctor", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_help_documents_every_exit_code() -> None:
    shown = igsdk_command("--help").stdout
    codes = {int(code) for code in re.findall(r"^ +(\d+)  ", shown, re.MULTILINE)}
    errors = [getattr(igsdk, name) for name in igsdk.__all__ if name[0].isupper()]
    raised = {
        e.exit_code for e in errors if isinstance(e, type) and issubclass(e, igsdk.IgsdkError)
    }
    assert codes == raised | {0, 130}


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["record", "--nonsense"],
        ["record", "--duration", "soon"],
        ["record", "--duration", "0"],
        ["record", "--pid", "0"],
        ["record", "--pid", "1", "--", "true"],
        ["record", "--pid", "99999999"],
        ["record", "--command", "x", "true"],
        ["record", "--user", "nobody"],
        ["record", "-o", "profile.unknown"],
        ["record", "--target", "smoke:signal"],
        ["report", "x.pb.gz", "--by", "colour"],
        ["report", "x.pb.gz", "--top", "0"],
        ["events", "--live-entries", "-1"],
        ["record", "--live-entries", "67108865"],
    ],
)
def test_usage_errors(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    os.chdir(tmp_path)
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(r"^igsdk: \S.*[.]", captured.err, re.MULTILINE)
    assert "Traceback" not in captured.err


def test_our_errors_are_cause_remedy_and_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = igsdk.KernelUnsupported("The kernel is odd.", "Take another.")
    monkeypatch.setattr("igsdk._connect.connect", raising(error))
    assert run(["events"]) == 4
    assert capsys.readouterr().err == "igsdk: The kernel is odd. Take another.\n"


def test_with_a_command_the_code_is_125(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = igsdk.PermissionMissing("You are nobody.", "Become root.")
    monkeypatch.setattr("igsdk._connect.connect", raising(error))
    assert run(["events", "--", "true"]) == 125
    assert capsys.readouterr().err == "igsdk: You are nobody. Become root.\n"


@pytest.mark.parametrize("asked", [False, True])
def test_mistakes_ask_for_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: bool
) -> None:
    monkeypatch.setattr("igsdk._connect.connect", raising(ZeroDivisionError("two\nlines")))
    monkeypatch.setenv("IGSDK_TRACEBACK", "1" if asked else "0")
    assert run(["events"]) == 1
    shown = capsys.readouterr().err
    assert "ZeroDivisionError: two lines. Please report it" in shown
    assert ("Traceback (most recent call last)" in shown) is asked


def test_ctrl_c_before_anything_happened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("igsdk._connect.connect", raising(KeyboardInterrupt()))
    assert run(["events"]) == 130
    assert capsys.readouterr().err.strip() == ""


def test_names_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.put("a\x1b[2Jb\tc\nd\x9b")
    output.say("e\x07")
    captured = capsys.readouterr()
    assert captured.out == "a\\x1b[2Jb\tc\nd\\x9b\n"
    assert captured.err == "igsdk: e\\x07\n"


def test_nobody_reads_the_result() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        argv = [sys.executable, "-m", "igsdk.cli", "doctor"]
        done = subprocess.run(argv, stdout=closed, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_result_goes_to_a_full_disk() -> None:
    with Path("/dev/full").open("w") as full:
        argv = [sys.executable, "-m", "igsdk.cli", "doctor"]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 8
    assert done.stderr.startswith("igsdk: Standard output cannot be written: No space left")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_without_standard_streams(closed: str) -> None:
    line = f"{sys.executable} -m igsdk.cli --version {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "Error" not in done.stderr


def test_ascii_only_output() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = igsdk_command("report", "f\u00e4hlt.pb.gz", env=environment)
    assert done.returncode == 7
    assert "does not exist" in done.stderr or "No such file" in done.stderr


@pytest.mark.parametrize(("whole", "longest"), [("", 700), ("1", 200_000)])
def test_a_mistake_does_not_fill_the_terminal(
    whole: str,
    longest: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What went wrong may be about a whole file's bytes; nobody wants to scroll past them."""
    monkeypatch.setenv("IGSDK_TRACEBACK", whole)
    output.report_mistake(TypeError(f"not an integer: {b'x' * 50_000!r}"))
    text = capsys.readouterr().err
    assert "This is a mistake in igsdk: TypeError: not an integer: b'xxx" in text
    assert "Please report it" in text
    assert longest / 2 < len(text) < longest
