# SPDX-License-Identifier: Apache-2.0
"""The BPF program of a run: the package's own, or one that somebody hands over.

Where it comes from is no business of the runtime: it takes the bytes of an object.
"""

from __future__ import annotations

import errno
import platform
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from .._errors import ExtensionMissing, GadgetInvalid, KernelUnsupported
from . import kernel

if TYPE_CHECKING:
    from .._native import FileMappings, MapWatch, Tracer
    from .session import Options, Selection

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
#: A gadget's image is made for Inspektor Gadget: small tables, its stacks, rows that go up.
_TRACED_HERE = {
    "own_stacks": 1,
    "keep_rows": 0,
    "accounts_max": 65536,
    "usages_max": 16384,
    "processes_max": 4096,
    "handles_max": 16384,
    "live_max": 262144,
    "events_bytes": 16 << 20,
    "captures_bytes": 16 << 20,
    "codes_max": 65536,
    "spaces_max": 16384,
    "pids_max": 65536,
    "templates_max": 8192,
}
_NAMED = 4  # of the things that do not fit


@dataclass(frozen=True)
class Program:
    """A BPF object for this machine's architecture.

    Attributes:
        origin: the image that it is from, ``name@digest``.
    """

    data: bytes
    origin: str


def architecture() -> str:
    """This machine's, as images and the package's objects call it."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def load_tracer(options: Options, selection: Selection, watch: MapWatch | None = None) -> Tracer:
    """Loads the program for this machine; ``watch`` tells it of mappings as they come.

    Raises:
        ExtensionMissing: the BPF object for this architecture is not in the package.
        GadgetInvalid: the program that was handed over is none that this runtime can run.
        KernelUnsupported: the kernel refuses the program, and says why; or its return
            probes would kill processes, and it has no way to leave those out.
    """
    from .._native import Tracer

    given = options.program
    idle = check(given) if given else []
    texts = {"targ_comm": selection.command[:15]} if selection.command else {}
    settings = {"spare_filtered": int(kernel.return_probes_kill())}
    settings |= _TRACED_HERE if given else {}
    settings |= options.as_settings(selection)
    try:
        data = given.data if given else own_object("local")
        tracer = Tracer(data, settings, texts, watch, idle)
    except OSError as error:
        raise _refused(error, given) from error
    if settings["spare_filtered"] and tracer.mode != "session":
        tracer.close()
        raise _deadly(given)
    return tracer


def load_mappings() -> FileMappings:
    """Loads what lists the files that a process has mapped; errors as :func:`load_tracer`."""
    from .._native import FileMappings

    try:
        return FileMappings(own_object("mappings"))
    except OSError as error:
        raise _refused(error, None) from error


def own_object(name: str) -> bytes:
    """A BPF object of the package.

    Raises:
        ExtensionMissing: there is none for this architecture.
    """
    file = f"{name}.{architecture()}.bpf.o"
    source = files("igsdk") / "_bpf" / file
    if not source.is_file():
        raise ExtensionMissing(
            f"The package has no BPF object {file}.",
            "Install a wheel for this architecture, or build from source with clang installed.",
        )
    return source.read_bytes()


def check(given: Program) -> list[str]:
    """Finds out whether a program is one that this runtime can run, before it is loaded.

    Returns:
        Names of the maps that are for Inspektor Gadget, and of no use here.

    Raises:
        GadgetInvalid: it is no BPF object, another gadget's, or of another version of igsdk.
    """
    from .._native import compare_objects

    try:
        missing, changed, extra = compare_objects(own_object("local"), given.data)
    except OSError as error:
        cause = f"The program of {given.origin} is no BPF object with types."
        raise GadgetInvalid(cause, "Build the image again with `igsdk gadget build`.") from error
    if "call_entry" in missing:
        raise GadgetInvalid(
            f"{given.origin} has no local runtime: its program lacks {_some(missing)}, which "
            "igsdk's profile_cuda_memory has.",
            "Name an image of that gadget, or run this one with Inspektor Gadget.",
        )
    if missing or changed:
        raise GadgetInvalid(
            f"{given.origin} was built for another version of igsdk: its program has no "
            f"{_some(missing + changed)} like ours.",
            "Build or name an image of this version, or leave --gadget away.",
        )
    return extra


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _refused(error: OSError, given: Program | None) -> KernelUnsupported:
    """What libbpf said stands below the first line; the cause has all of it."""
    reason = (error.strerror or str(error)).partition("\n")[0]
    what = f"the program of {given.origin}" if given else "the tracing program"
    remedy = "Run `igsdk doctor`; if it finds nothing, report what IGSDK_TRACEBACK=1 shows."
    if given:
        remedy = (
            "Leave --gadget away: igsdk has a program of its own. IGSDK_TRACEBACK=1 shows "
            "what the kernel said."
        )
    if error.errno == errno.ENOMEM:
        remedy = "Free some memory, or make the tables smaller with --live-entries."
    return KernelUnsupported(f"The kernel does not load {what}: {reason}.", remedy)


def _deadly(given: Program | None) -> KernelUnsupported:
    if given and kernel.kernel_version() >= kernel.SESSION_LINKS:
        return KernelUnsupported(
            "A return probe kills processes with a seccomp filter on this kernel, and the "
            f"program of {given.origin} has none of the kind that leaves them alone.",
            f"{kernel.UPDATE_FOR_RETURNS} Or leave --gadget away.",
        )
    return KernelUnsupported(
        "A return probe kills processes with a seccomp filter on this kernel, "
        "which has no session links to leave them alone.",
        kernel.UPDATE_FOR_RETURNS,
    )
