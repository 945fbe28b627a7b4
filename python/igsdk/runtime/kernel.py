# SPDX-License-Identifier: Apache-2.0
"""What this machine allows, as data: for ``igsdk doctor`` and for errors."""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import os
import platform
import re
import struct
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .._check import Check
from .._errors import ExtensionMissing, KernelUnsupported, PermissionMissing

if TYPE_CHECKING:
    from collections.abc import Callable

OLDEST_KERNEL = (6, 1)
QUICK_DETACH = (6, 6)  # uprobe-multi links
SESSION_LINKS = (6, 13)
# The uretprobe system call came with 6.11; filters let it pass since 6.14.
URETPROBE_CALL = (6, 11)
URETPROBE_PASSES = (6, 14)
_URETPROBE_NUMBER = 335

_CAPABILITIES = {"SYS_ADMIN": 21, "PERFMON": 38, "BPF": 39}
_ROOT_REMEDY = "Run igsdk as root, with sudo."
_BPF_CALL = {"x86_64": 321, "aarch64": 280}
_BPF_MAP_CREATE, _BPF_MAP_TYPE_RINGBUF = 0, 27
_FAN_CLASS_CONTENT, _FAN_CLOEXEC = 4, 1
UPDATE_FOR_RETURNS = "Update to Linux 6.14 or later."
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"


def checks() -> list[Check]:
    """Everything that `local:` depends on, in the order in which it is needed."""
    return [check() for check in _CHECKS]


def require() -> None:
    """Stops before the kernel says something that nobody understands.

    Raises:
        KernelUnsupported: not Linux, too old, without BTF, uprobes or ring buffers, or its
            return probes kill processes and it has no way to leave those out.
        PermissionMissing: not root and without the capabilities.
        ExtensionMissing: the package was built without its native part.
    """
    for check, error in _REQUIRED:
        result = check()
        if result.state == "fail":
            raise error(f"{result.name}: {result.detail}.", result.remedy)


def kernel_version(release: str | None = None) -> tuple[int, int]:
    """Major and minor number of a kernel release such as "6.8.0-45-generic"."""
    found = re.match(r"(\d+)\.(\d+)", release or platform.release())
    return (int(found[1]), int(found[2])) if found else (0, 0)


def capabilities() -> set[str]:
    """Which of the capabilities that matter here this process has."""
    status = _read("/proc/self/status")
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    bits = int(found[1], 16) if found else 0
    return {name for name, bit in _CAPABILITIES.items() if bits >> bit & 1}


def check_kernel() -> Check:
    """Linux, and new enough."""
    name, release = "kernel", platform.release()
    if platform.system() != "Linux":
        return Check(name, "fail", f"{platform.system()} has no BPF", "Trace on Linux.")
    if kernel_version() < OLDEST_KERNEL:
        return Check(name, "fail", f"{release} is older than 6.1", "Update to Linux 6.1 or later.")
    if kernel_version() < QUICK_DETACH:
        remedy = "Update to Linux 6.6 or later, if that is in the way."
        detail = f"Linux {release}: removing the probes takes 10 seconds or more, in the background"
        return Check(name, "warn", detail, remedy)
    return Check(name, "ok", f"Linux {release}, {platform.machine()}; probes go at once")


def check_permission() -> Check:
    """CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN."""
    name, held = "permission", capabilities()
    if "SYS_ADMIN" in held:
        return Check(name, "ok", "may trace (CAP_SYS_ADMIN)")
    missing = sorted({"BPF", "PERFMON"} - held)
    if missing:
        names = " and ".join(f"CAP_{capability}" for capability in missing)
        detail = f"tracing takes root, and this is user id {os.geteuid()} without {names}"
        return Check(name, "fail", detail, _ROOT_REMEDY)
    detail = "without CAP_SYS_ADMIN no command can be started, nor a deleted driver file read"
    return Check(name, "warn", detail, _ROOT_REMEDY)


def check_btf() -> Check:
    """The kernel's type information, by which the programs adapt themselves."""
    name, path = "kernel BTF", Path("/sys/kernel/btf/vmlinux")
    try:
        with path.open("rb") as file:
            magic = file.read(2)
    except OSError as error:
        remedy = "Use a kernel that is built with CONFIG_DEBUG_INFO_BTF=y, as distributions' are."
        return Check(name, "fail", f"{path}: {error.strerror}", remedy)
    if magic not in (b"\x9f\xeb", b"\xeb\x9f"):
        return Check(name, "fail", f"{path} has no BTF in it", "Use a distribution's kernel.")
    return Check(name, "ok", f"the kernel describes its types in {path}")


def check_uprobes() -> Check:
    """Probes in user space."""
    path = Path("/sys/bus/event_source/devices/uprobe/type")
    if path.exists():
        return Check("uprobes", "ok", "the kernel can put probes on a library's functions")
    remedy = "Use a kernel that is built with CONFIG_UPROBE_EVENTS=y."
    return Check("uprobes", "fail", f"{path} does not exist", remedy)


def check_bpf() -> Check:
    """Whether the kernel makes a ring buffer for us: permission, lockdown, seccomp."""
    name, number = "BPF", _BPF_CALL.get(platform.machine())
    if number is None:
        return Check(name, "fail", f"{platform.machine()} is not supported", "Use x86-64 or arm64.")
    size = os.sysconf("SC_PAGESIZE")
    attributes = struct.pack("=IIII112x", _BPF_MAP_TYPE_RINGBUF, 0, 0, size)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(number, _BPF_MAP_CREATE, attributes, len(attributes))
    if fd >= 0:
        os.close(fd)
        return _check_lockdown(name)
    error = ctypes.get_errno()
    if error in (errno.EPERM, errno.EACCES):
        detail = "the kernel refuses BPF to this process"
        remedy = f"{_ROOT_REMEDY} In a container, allow bpf(2) to it."
        return Check(name, "fail", detail, remedy)
    detail = f"no ring buffer: {os.strerror(error)}"
    return Check(name, "fail", detail, "Use a kernel with CONFIG_BPF_SYSCALL=y.")


def _check_lockdown(name: str) -> Check:
    if "[confidentiality]" in _read("/sys/kernel/security/lockdown"):
        remedy = "Boot without lockdown=confidentiality."
        return Check(name, "fail", "the kernel is locked down (confidentiality)", remedy)
    return Check(name, "ok", "the kernel lets this process load tracing programs")


def check_extension() -> Check:
    """The native part of the package."""
    try:
        from .. import _native
    except ImportError as error:
        remedy = "Install a wheel of igsdk for Linux, or clang and libbpf before building it."
        return Check("extension", "fail", f"igsdk._native: {error}", remedy)
    path = getattr(_native, "__file__", "built in")
    return Check("extension", "ok", f"igsdk's native part is installed: {path}")


def check_hold() -> Check:
    """Permission events, by which a command waits at its libcuda."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.fanotify_init(_FAN_CLASS_CONTENT | _FAN_CLOEXEC, os.O_RDONLY)
    if fd >= 0:
        os.close(fd)
        detail = "a command that igsdk starts waits until its driver library has probes"
        return Check("hold at start", "ok", detail)
    error = ctypes.get_errno()
    detail = f"`igsdk record -- CMD` does not work (fanotify: {os.strerror(error)})"
    remedy = "Use a kernel that is built with CONFIG_FANOTIFY_ACCESS_PERMISSIONS=y."
    remedy = _ROOT_REMEDY if error == errno.EPERM else remedy
    return Check("hold at start", "warn", detail, remedy)


def check_return_probes() -> Check:
    """Kernels on which a return probe kills a process that has a seccomp filter."""
    name = "return probes"
    if not return_probes_kill():
        return Check(name, "ok", "harmless to sandboxed programs (seccomp)")
    detail = f"on Linux {platform.release()} they would kill sandboxed programs (seccomp)"
    if kernel_version() < SESSION_LINKS:
        return Check(name, "fail", detail, UPDATE_FOR_RETURNS)
    remedy = f"{UPDATE_FOR_RETURNS} Until then such processes are left alone, and counted."
    return Check(name, "warn", detail, remedy)


def return_probes_kill() -> bool:
    """Whether a return probe of ours may kill a process that has a seccomp filter.

    Tried out, but only on kernels whose version leaves it open.
    """
    affected = URETPROBE_CALL <= kernel_version() < URETPROBE_PASSES
    return platform.machine() == "x86_64" and affected and not return_probe_passes()


@cache
def return_probe_passes() -> bool | None:
    """Whether a child of ours survives it; None where that could not be tried."""
    try:
        from .. import _native
    except ImportError:
        return None
    return _native.return_probe_passes(_URETPROBE_NUMBER)


def check_libcuda() -> Check:
    """Which libcuda the linker would find, and which are mapped."""
    from .libraries import find_mapped

    mapped = {mapping.path for _, mapping in find_mapped()}
    found = sorted(mapped | set(linked_libraries()))
    limits = "" if os.geteuid() == 0 else "; without root, only our own processes were looked at"
    if found:
        return Check("libcuda", "ok", f"the driver library is {', '.join(found)}{limits}")
    detail = f"no driver library is installed here, and no process uses one{limits}"
    remedy = "Install the NVIDIA driver; containers bring their own and need nothing here."
    return Check("libcuda", "warn", detail, remedy)


def linked_libraries(name: str = "libcuda.so") -> list[str]:
    """Paths of the linker's cache whose file name starts with `name`, and WSL's own folder."""
    try:
        listing = subprocess.run(
            ["ldconfig", "-p"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
            env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL": "C"},
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        listing = ""
    paths = [line.rpartition(" => ")[2] for line in listing.splitlines() if " => " in line]
    paths += [str(path) for path in Path("/usr/lib/wsl/lib").glob(f"{name}*")]
    return [path for path in paths if Path(path).name.startswith(name)]


def check_nvml() -> Check:
    """NVML's answer, for device names and figures beside ours."""
    from . import nvml

    version, devices = nvml.driver_version(), nvml.devices()
    if version is not None and devices is not None:
        names = ", ".join(f"{device.name} ({device.uuid})" for device in devices)
        return Check("NVML", "ok", f"driver {version}: {names or 'no device'}")
    detail = "devices are shown by number only, without names and UUIDs"
    return Check("NVML", "warn", detail, _nvml_remedy())


def _nvml_remedy() -> str:
    if not has_driver():
        return "There is no NVIDIA driver here; without a GPU nothing is missing."
    if importlib.util.find_spec("pynvml") is None:
        return "Install nvidia-ml-py into igsdk's environment: pip install nvidia-ml-py."
    return "The driver does not answer: look at nvidia-smi."


def has_driver() -> bool:
    """Whether this machine has an NVIDIA driver, its kernel module or its libraries."""
    module = any(Path(path).exists() for path in ("/proc/driver/nvidia/version", "/dev/dxg"))
    return module or bool(linked_libraries("libnvidia-ml.so"))


def check_surroundings() -> Check:
    """Container, PID namespace, WSL."""
    name = "surroundings"
    if "microsoft" in platform.release().lower():
        remedy = "Use a WSL kernel with BTF and uprobes; its driver shows no processes to NVML."
        return Check(name, "warn", "WSL", remedy)
    container = container_kind()
    if container is None:
        return Check(name, "ok", "the machine itself")
    if is_initial_pid_namespace():
        return Check(name, "ok", f"{container} with the host's processes")
    remedy = "Start the container with the host's PID namespace (--pid=host)."
    return Check(name, "warn", f"{container}: only its own processes can be seen", remedy)


def container_kind() -> str | None:
    """What kind of container we are in, or None."""
    markers = {"/.dockerenv": "Docker container", "/run/.containerenv": "Podman container"}
    for path, kind in markers.items():
        if Path(path).exists():
            return kind
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "Kubernetes pod"
    return None if is_initial_pid_namespace() else "PID namespace"


def is_initial_pid_namespace() -> bool:
    """Whether process ids mean the same here as in the kernel."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def check_cgroups() -> Check:
    """Unified control groups, by which containers are named."""
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        return Check("cgroups", "ok", "containers can be named (version 2)")
    if list(Path("/sys/fs/cgroup").glob("*/cgroup.controllers")):
        return Check("cgroups", "ok", "containers can be named (version 2 beside version 1)")
    remedy = "Boot with systemd.unified_cgroup_hierarchy=1."
    return Check("cgroups", "warn", "containers may go without names (no version 2)", remedy)


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


_REQUIRED: tuple[
    tuple[
        Callable[[], Check],
        type[KernelUnsupported] | type[PermissionMissing] | type[ExtensionMissing],
    ],
    ...,
] = (
    (check_kernel, KernelUnsupported),
    (check_permission, PermissionMissing),
    (check_btf, KernelUnsupported),
    (check_uprobes, KernelUnsupported),
    (check_bpf, PermissionMissing),
    (check_extension, ExtensionMissing),
    (check_return_probes, KernelUnsupported),
)
_CHECKS: tuple[Callable[[], Check], ...] = (
    *(check for check, _ in _REQUIRED),
    check_hold,
    check_libcuda,
    check_nvml,
    check_surroundings,
    check_cgroups,
)
