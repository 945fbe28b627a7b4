# SPDX-License-Identifier: Apache-2.0
"""What the machine allows, told as data, and NVML where there is none."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from igsdk import IgsdkError, KernelUnsupported, PermissionMissing
from igsdk.runtime import kernel, nvml
from igsdk.runtime.program import load_tracer
from igsdk.runtime.session import Options, Selection


def test_every_check_says_what_and_how_to_mend_it() -> None:
    results = kernel.checks()
    assert len({check.name for check in results}) == len(results) >= 10
    for check in results:
        assert check.detail
        assert (check.remedy == "") == (check.state == "ok"), check


@pytest.mark.parametrize(
    ("release", "version"),
    [("6.1.0-18-amd64", (6, 1)), ("6.18.44-fc", (6, 18)), ("5.15", (5, 15)), ("odd", (0, 0))],
)
def test_kernel_version(release: str, version: tuple[int, int]) -> None:
    assert kernel.kernel_version(release) == version


@pytest.mark.parametrize(
    ("release", "state"), [("5.15.0-1", "fail"), ("6.1.0", "warn"), ("6.6.1", "ok")]
)
def test_check_kernel(monkeypatch: pytest.MonkeyPatch, release: str, state: str) -> None:
    monkeypatch.setattr("platform.release", lambda: release)
    assert kernel.check_kernel().state == state


def test_return_probes_on_the_kernels_that_refuse_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    states: dict[bool | None, list[str]] = {}
    for passes in (False, None, True):
        monkeypatch.setattr(kernel, "return_probe_passes", lambda passes=passes: passes)
        for release in ("6.10.0", "6.11.0", "6.13.2", "6.14.0"):
            monkeypatch.setattr("platform.release", lambda release=release: release)
            states.setdefault(passes, []).append(kernel.check_return_probes().state)
    refused = ["ok", "fail", "warn", "ok"]
    assert states == {False: refused, None: refused, True: ["ok"] * 4}


def raised(monkeypatch: pytest.MonkeyPatch) -> IgsdkError:
    with pytest.raises(IgsdkError) as caught:
        kernel.require()
    assert caught.value.remedy
    return caught.value


def test_require_names_the_first_thing_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "capabilities", set)
    assert isinstance(raised(monkeypatch), PermissionMissing)
    monkeypatch.setattr("platform.release", lambda: "5.4.0")
    assert isinstance(raised(monkeypatch), KernelUnsupported)
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert "Darwin" in raised(monkeypatch).cause


@pytest.mark.parametrize(
    ("driver", "package", "remedy"),
    [
        (False, True, "nothing is missing"),
        (True, False, "pip install nvidia-ml-py"),
        (True, True, "nvidia-smi"),
    ],
)
def test_the_remedy_for_nvml_depends_on_the_driver(
    monkeypatch: pytest.MonkeyPatch, driver: bool, package: bool, remedy: str
) -> None:
    monkeypatch.setattr(nvml, "driver_version", lambda: None)
    monkeypatch.setattr(kernel, "has_driver", lambda: driver)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object() if package else None)
    check = kernel.check_nvml()
    assert check.state == "warn"
    assert remedy in check.remedy


def test_without_root_libcuda_is_not_the_whole_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "only our own processes" in kernel.check_libcuda().detail
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert "only our own processes" not in kernel.check_libcuda().detail


@pytest.mark.parametrize(("number", "remedy"), [(12, "--live-entries"), (22, "igsdk doctor")])
def test_the_kernels_refusal_is_one_line(
    monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, "loading: no\nlibbpf: a long story\n")

    monkeypatch.setattr("igsdk._native.Tracer", refuse)
    with pytest.raises(KernelUnsupported) as caught:
        load_tracer(Options(), Selection())
    assert "\n" not in str(caught.value)
    assert caught.value.cause.endswith("loading: no.")
    assert remedy in caught.value.remedy
    assert "long story" in str(caught.value.__cause__)


def test_without_nvml_all_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.driver_version() is nvml.devices() is nvml.uses() is nvml.used_bytes(1) is None


class FakeError(Exception):
    pass


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A driver's library with one plain GPU and one that is cut into two MIG instances."""
    module = ModuleType("pynvml")
    process = SimpleNamespace(pid=7, usedGpuMemory=1000)
    parts: dict[str, object] = {
        "NVMLError": FakeError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"550.163.01",
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: f"gpu{index}",
        "nvmlDeviceGetMaxMigDeviceCount": lambda gpu: 3 if gpu == "gpu1" else fail(),
        "nvmlDeviceGetMigDeviceHandleByIndex": lambda _, i: f"mig{i}" if i < 2 else fail(),
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=100, used=10),
        "nvmlDeviceGetName": lambda handle: "GPU",
        "nvmlDeviceGetUUID": lambda handle: f"UUID-{handle}",
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [process],
        "nvmlDeviceGetGraphicsRunningProcesses": lambda handle: fail(),
    }
    for name, value in parts.items():
        setattr(module, name, value)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def fail() -> object:
    raise FakeError


def test_nvml_devices_and_processes(fake: ModuleType) -> None:
    assert nvml.driver_version() == "550.163.01"
    uuids = ["UUID-gpu0", "UUID-mig0", "UUID-mig1"]
    assert [device.uuid for device in nvml.devices() or ()] == uuids
    assert nvml.used_bytes(7) == dict.fromkeys(uuids, 1000)
    assert nvml.used_bytes(8) == {}


def test_an_nvml_that_fails_reads_as_absent(fake: ModuleType) -> None:
    fake.nvmlDeviceGetCount = fail  # type: ignore[attr-defined]
    assert nvml.devices() is None
    fake.nvmlInit = fail  # type: ignore[attr-defined]
    assert nvml.driver_version() is None
