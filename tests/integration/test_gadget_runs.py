# SPDX-License-Identifier: Apache-2.0
"""The local runtime with the program of an image: the same figures and stacks as with its own.

Real kernel, real registry, the simulated driver.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.integration.test_kinds import BEHAVIOURS, CASES, check
from tests.support import images, simdriver, tiny
from tests.support import registry as real
from tests.support.recording import own_driver, recording
from tests.support.simdriver import Driver
from tests.support.unwilling import always, unwilling

import igsdk
from igsdk import _native
from igsdk._run import Run
from igsdk.cli.app import run as igsdk_command
from igsdk.image import layout
from igsdk.profile import Profile
from igsdk.runtime.kernel import QUICK_DETACH, kernel_version
from igsdk.runtime.program import architecture, own_object

EXAMPLE = images.ROOT / "examples/hold_and_fail.py"
#: Link mode as the program numbers them. The image has no session program.
MODES = {"multi": 2, "single": 3}
#: What tells two rows of a profile apart and does not differ from run to run.
SAME = ("kind", "device", "host", "inuse_space", "alloc_space", "peak_space", "failed_space")

#: The smallest ring; tables of programs are as large as what stands in them.
PAGE = os.sysconf("SC_PAGESIZE")


class Shape(NamedTuple):
    """What a map is, but for its name."""

    map_type: int
    key_size: int
    value_size: int
    max_entries: int


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Our gadget in a tar file, as anybody builds it."""
    path = tmp_path_factory.mktemp("image") / "gadget.tar"
    command = ["gadget", "build", str(images.ROOT / "gadget"), "-o", str(path)]
    assert igsdk_command([*command, "--tag", images.NAME]) == 0
    return str(path)


@pytest.fixture(scope="module")
def digest(image: str) -> str:
    return str(layout.read(image).image()["digest"])


@pytest.fixture(autouse=True)
def no_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logins of whoever runs the tests stay out of them."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "nobody"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to record in, with the simulated driver for what is started."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name, value in simdriver.build().environment(base={}).items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module", params=MODES)
def run(request: pytest.FixtureRequest, driver: Driver, image: str) -> Iterator[Run]:
    """One run for all scripts."""
    if request.param == "multi" and kernel_version() < QUICK_DETACH:
        pytest.skip("this kernel has no uprobe-multi links, which came with 6.6")
    mode = {"link_mode": MODES[request.param]}
    with recording(driver, events="all", gadget=image, settings=mode) as run:
        assert run._session.tracer.mode == request.param
        yield run


@pytest.mark.parametrize("symbol", CASES)
def test_every_function(symbol: str, run: Run, driver: Driver, tmp_path: Path) -> None:
    """To the byte and call as the driver's books have it, and nothing lost."""
    check(CASES[symbol], run, driver, tmp_path)


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_behaviour(name: str, run: Run, driver: Driver, tmp_path: Path) -> None:
    check(BEHAVIOURS[name], run, driver, tmp_path)


def test_stacks_are_the_same_as_with_our_own_program(here: Path, image: str, digest: str) -> None:
    """Every row of a Python program: its stack with lines, its figures, its failures."""
    profiles = [example_profile(gadget) for gadget in (None, image)]
    own, given = map(described, profiles)
    assert len(own) >= 4
    assert any("load_weights" in name for row in own for name in row[0])
    assert given == own
    metadata = [profile.metadata for profile in profiles]
    assert [one.gadget for one in metadata] == ["", f"{images.NAME}@{digest}"]
    assert [one.peak for one in metadata] == ["exact", "exact"]
    assert not any(metadata[1].losses.values())
    assert {site.symbol for site in metadata[1].attached[0].sites} == CASES.keys()


def example_profile(gadget: str | None) -> Profile:
    with igsdk.connect("local:") as gpu:
        argv = [sys.executable, str(EXAMPLE)]
        with gpu.profile_cuda_memory(argv=argv, events="all", gadget=gadget) as run:
            assert run.command
            run.command.wait()
        profile = run.profile()
        run.close()
    return profile


def described(profile: Profile) -> list[Any]:
    """The rows, with Python frames whole and native ones by name."""
    return sorted(
        (
            [f"{frame.function} {frame.line}" for frame in row["stack"]],
            *(row[name] for name in SAME),
        )
        for row in profile.samples()
    )


def test_tables_are_as_large_as_our_own_program_s(image: str) -> None:
    """And what only Inspektor Gadget fills or reads is as small as can be."""
    own, given = own_object("local"), images.own_program(architecture())
    missing, changed, extra = _native.compare_objects(own, given)
    assert (missing, changed) == ([], [])
    assert {"ig_ustack", "heap_rows", "process_rows", "cuda_events"} <= set(extra)
    tables = [tables_of(gadget) for gadget in (None, image)]
    assert len(tables[0]) > 10
    assert not tables[0] - tables[1], "tables that are smaller with the image"
    larger = [shape for shape in tables[1] - tables[0] if shape.max_entries > PAGE]
    assert not larger, "tables that our own program does not need"


def tables_of(gadget: str | None) -> Counter[Shape]:
    """The maps that a run adds to this process, without those of a single value."""
    before = Counter(shapes())
    with igsdk.connect("local:") as gpu:
        run = gpu.profile_cuda_memory(command="nobody", gadget=gadget)
        with run:
            made = Counter(shapes()) - before
        run.close()
    return Counter({shape: n for shape, n in made.items() if shape.max_entries > 1})


def shapes() -> Iterator[Shape]:
    """Of each open map, as the kernel describes it; they have no names there."""
    for path in Path("/proc/self/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):
            words = dict(re.findall(r"^(\w+):\s*(\d+)$", path.read_text(), re.M))
            if "map_id" in words and "max_entries" in words:
                yield Shape(*(int(words[name]) for name in Shape._fields))


def test_a_folder_and_the_report(
    here: Path, image: str, digest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    layout.write(layout.read(image), "folder/", 0)
    options = ["--json", "--gadget", "folder", "-o", "a.pb.gz"]
    assert ended(["record", *options, "--", sys.executable, str(EXAMPLE)]) == 0
    summary = json.loads(capsys.readouterr().err.splitlines()[0])
    assert summary["gadget"] == f"{images.NAME}@{digest}"
    assert igsdk_command(["report", "a.pb.gz"]) == 0
    text = capsys.readouterr().out
    assert f"@{digest}" in text
    assert images.NAME in text
    assert max(map(len, text.splitlines())) <= 100
    assert igsdk_command(["report", "a.pb.gz", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["metadata"]["gadget"] == f"{images.NAME}@{digest}"


def test_events(here: Path, image: str, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["events", "--gadget", image, "--json", "--", sys.executable, str(EXAMPLE)]
    assert ended(command) == 0
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    (event,) = map(json.loads, lines)
    assert event["result_name"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert any(frame["function"] == "grow_cache" for frame in event["stack"])


def ended(command: list[str]) -> int:
    """Runs igsdk in this process; the code it would end with, also as its command did."""
    ending = igsdk_command(command)
    return ending if isinstance(ending, int) else ending.status


def test_from_registries(
    here: Path, image: str, digest: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Open, with password and TLS, by tag and by digest; what is recorded says which it was."""
    for tls in (False, True):
        with real.registry(tmp_path / f"registry{tls}", password=tls, tls=tls) as server:
            name, plain = f"{server.address}/team/gadget", [] if tls else ["--plain-http"]
            if tls:
                login = real.log_in(tmp_path / "login", server.address)
                monkeypatch.setenv("DOCKER_CONFIG", str(login))
                monkeypatch.setenv("SSL_CERT_FILE", str(server.authority))
            assert igsdk_command(["gadget", "push", image, f"{name}:v1", *plain]) == 0
            for reference in (f"{name}:v1", f"{name}@{digest}"):
                command = ["record", "-o", "a.pb.gz", "--gadget", reference, *plain]
                assert ended([*command, "--", sys.executable, str(EXAMPLE)]) == 0
                profile = Profile.read("a.pb.gz")
                tag = ":v1" if reference.endswith(":v1") else ""
                assert profile.metadata.gadget == f"{name}{tag}@{digest}"
                assert profile.total("failed_objects") == 1


def test_only_this_machine_s_part_is_fetched(image: str, tmp_path: Path) -> None:
    found = layout.read(image)
    kind = {"Content-Type": found.image()["mediaType"]}

    def answers(
        method: str, path: str, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        wanted = path.rpartition("/")[2]
        data = found.blobs.get(wanted) or found.blob(found.image())
        return 200, kind, data

    with unwilling(answers) as server, igsdk.connect("local:") as gpu:
        gadget = f"{server.address}/team/gadget:v1"
        gpu.profile_cuda_memory(command="nobody", gadget=gadget, plain_http=True)
        blobs = [path for _, path in server.asked if "/blobs/" in path]
        assert len(server.asked) == 4  # index, manifest, metadata, program
        assert len(blobs) == 2


def refused(capsys: pytest.CaptureFixture[str], gadget: str, *more: str) -> tuple[int, str]:
    """How `record` and `record -- CMD` end with this gadget, and that nothing was done."""
    before = sorted(Path().iterdir())
    capsys.readouterr()
    code = ended(["record", "-o", "a.pb.gz", "--gadget", gadget, *more])
    said = capsys.readouterr().err
    assert said.startswith("igsdk: ")
    assert "Traceback" not in said
    command = ["record", "-o", "a.pb.gz", "--gadget", gadget, *more, "--", "touch", "done"]
    with_command = ended(command)
    assert with_command == (2 if code == 2 else 125)
    assert capsys.readouterr().err == said
    assert sorted(Path().iterdir()) == before
    return code, said


def test_no_image(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No such file, a file of another kind, a name that is none."""
    code, said = refused(capsys, "nothing.tar")
    assert (code, "No such file" in said) == (11, True)
    code, said = refused(capsys, str(EXAMPLE))
    assert (code, "is no tar file" in said) == (11, True)
    code, said = refused(capsys, str(tmp_path))
    assert (code, "has no index.json" in said) == (11, True)
    for name in ("No Image", ""):
        code, said = refused(capsys, name)
        assert (code, "no image name" in said) == (2, True)


def test_no_program_for_this_machine(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = images.write(images.pack({"riscv64": b"x", "s390x": b"y"}), tmp_path / "others.tar")
    code, said = refused(capsys, others)
    assert code == 11
    assert f"has no program for {architecture()}, only for riscv64, s390x" in said
    without = images.write(images.pack({architecture(): b""}), tmp_path / "without.tar")
    code, said = refused(capsys, without)
    assert (code, "has no BPF program" in said) == (10, True)


def test_other_bytes_than_the_digest_s(
    here: Path, image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = layout.read(image)
    program = images.own_program(architecture())
    (digest,) = (name for name, data in found.blobs.items() if data == program)
    found.blobs[digest] = program[:-1] + b"\x01"
    code, said = refused(capsys, images.write(found, tmp_path / "damaged.tar"))
    assert (code, f"has other bytes than those of {digest}" in said) == (11, True)


def test_another_gadget_has_no_local_runtime(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a file, and under the name that Inspektor Gadget's own gadgets have."""
    path = tmp_path / "tiny.tar"
    assert igsdk_command(["gadget", "build", str(tiny.SOURCE), "-o", str(path)]) == 0
    code, said = refused(capsys, str(path))
    assert (code, "has no local runtime" in said) == (10, True)
    with real.registry(tmp_path / "registry") as server:
        name = f"{server.address}/inspektor-gadget/gadget/trace_open:latest"
        assert igsdk_command(["gadget", "push", str(path), name, "--plain-http"]) == 0
        code, said = refused(capsys, name, "--plain-http")
        assert (code, f"{name}@sha256:" in said, "has no local runtime" in said) == (10, True, True)


@pytest.mark.parametrize(
    ("file", "old", "new", "what"),
    [
        ("abi.h", "u64 untracked_bytes;", "u64 untracked_bytes, more;", "accounts, igsdk_account"),
        ("abi.h", "u32 exec_id;\n\tgadget_uid uid;", "gadget_uid uid;\n\tu32 exec_id;", "_process"),
        ("abi.h", "\tIGSDK_CALL_MEM_CREATE,\n\tIGSDK_CALL_MEM_RELEASE,",
         "\tIGSDK_CALL_MEM_RELEASE,\n\tIGSDK_CALL_MEM_CREATE,", "igsdk_call"),
        ("abi.h", "s32 lasti; /*", "s64 lasti; /*", "igsdk_python_frame"),
        ("gadget.bpf.c", "int on_rename(", "int on_name(", "on_rename"),
        ("contract.h", "const struct igsdk_contract *", "int ", "igsdk_event"),
    ],
)  # fmt: skip
def test_another_version(
    here: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    old: str,
    new: str,
    what: str,
) -> None:
    """Garbage would be the alternative."""
    program = images.altered(file, old, new)
    path = images.write(images.pack({architecture(): program}), tmp_path / "other.tar")
    code, said = refused(capsys, path)
    assert (code, "built for another version" in said, what in said) == (10, True, True), said


def test_what_is_no_bpf_object(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for data in (b"x", Path(sys.executable).read_bytes()[:100000], images.own_program()[:5000]):
        path = images.write(images.pack({architecture(): data}), tmp_path / "other.tar")
        code, said = refused(capsys, path)
        assert (code, "no BPF object" in said) == (10, True), said


def test_what_the_verifier_refuses(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    senseless = images.without_sense(images.own_program(architecture()))
    path = images.write(images.pack({architecture(): senseless}), tmp_path / "other.tar")
    code, said = refused(capsys, path)
    assert (code, f"does not load the program of {images.NAME}@sha256:" in said) == (4, True)
    assert "--gadget" in said


def test_session_links_are_for_our_own_program(here: Path, image: str) -> None:
    with igsdk.connect("local:") as gpu:
        run = gpu.profile_cuda_memory(command="x", gadget=image, settings={"link_mode": 1})
        with pytest.raises(igsdk.KernelUnsupported, match="call_session"), run:
            pass


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(401, 12, "asks for a login"), (404, 12, "no such image"), (403, 12, "refuses this")],
)
def test_a_registry_that_refuses(
    here: Path, capsys: pytest.CaptureFixture[str], status: int, code: int, words: str
) -> None:
    with unwilling(always(status, {}, b"")) as server:
        given, said = refused(capsys, f"{server.address}/team/gadget:v1", "--plain-http")
        assert (given, words in said) == (code, True)


def test_a_registry_that_is_not_there_or_says_nothing(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = refused(capsys, f"127.0.0.1:{real.free_port()}/team/gadget", "--plain-http")
    assert (code, "cannot be reached" in said) == (9, True)
    monkeypatch.setattr("igsdk.image.places.PATIENCE", 0.3)  # thirty seconds otherwise
    with unwilling(lambda *_: None) as server:
        code, said = refused(capsys, f"{server.address}/team/gadget", "--plain-http")
        assert (code, "did not answer within 0.3 s" in said) == (9, True)


def test_a_part_that_another_one_was_put_in_place_of(
    here: Path, image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = layout.read(image)
    kind = {"Content-Type": found.image()["mediaType"]}

    def answers(
        method: str, path: str, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        wanted = path.rpartition("/")[2]
        data = found.blobs.get(wanted) or found.blob(found.image())
        return 200, kind, data + (b" " if "/blobs/" in path else b"")

    with unwilling(answers) as server:
        code, said = refused(capsys, f"{server.address}/team/gadget:v1", "--plain-http")
        assert (code, "was asked for" in said) == (11, True)
