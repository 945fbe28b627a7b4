# SPDX-License-Identifier: Apache-2.0
"""All ways in which somebody may load our objects that make different code."""

from __future__ import annotations

import functools
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.switches import Switches, Value, covering, groups, variables
from tests.support.verifier import Loading, Object, Refused

from igsdk.image import clang

ROOT = Path(__file__).resolve().parents[2]
ANY_ID = 0xFFFFFFFF
SESSION_LINK = 57  # BPF_TRACE_UPROBE_SESSION
EVERYONES = frozenset({"call_entry", "call_return", "on_exit", "on_exec", "on_rename", "on_fork"})
#: numbers that change how much is done, not what
SIZES = frozenset(
    {
        *("accounts_max", "usages_max", "processes_max", "keep_ended_ms", "resend_ms"),
        *("ig_build_id_max_entries", "live_table_max_entries"),
    }
)
#: what Inspektor Gadget, or who runs it, may set; that with the most code comes first
AS_GADGET: Mapping[str, Sequence[Value]] = {
    "collect_ustack": (1, 0),
    "collect_build_id": (1, 0),
    "collect_otel_stack": (1, 0),
    "events_wanted": ("all", "failures", "none"),
    "use_perf_buffer": (0, 1),
    "gadget_filter_by_mntns": (1, 0),
    "targ_pid": (7, 0),
    "targ_uid": (7, ANY_ID),
    "targ_gid": (7, ANY_ID),
    "targ_comm": ("python3", ""),
}
#: what the local runtime may set, of whatever object
AS_LOCAL: Mapping[str, Sequence[Value]] = {
    "events_mode": (2, 1, 0),
    "collect_ustack": (1, 0),
    "use_templates": (1, 0),
    "filter_tracked": (1, 0),
    "spare_filtered": (1, 0),
    "gadget_filter_by_mntns": (1, 0),
    "targ_comm": ("python3", ""),
}
OF_IMAGE = {"own_stacks": 1, "keep_rows": 0}
#: who loads -> programs, attach types, what may be set, what is set
USERS: Mapping[str, tuple[frozenset[str] | None, Mapping[str, int], Mapping[str, Sequence[Value]]]]
USERS = {
    "gadget": (EVERYONES | {"tick"}, {}, AS_GADGET),
    "gadget by the local runtime": (EVERYONES, {}, AS_LOCAL),
    "local": (EVERYONES, {}, AS_LOCAL),
    "local by session links": (
        EVERYONES - {"call_entry", "call_return"} | {"call_session"},
        {"call_session": SESSION_LINK},
        AS_LOCAL,
    ),
}


@dataclass(frozen=True)
class Compiler:
    """A clang, and the set of instructions that it is told to use."""

    clang: str
    cpu: str

    def __str__(self) -> str:
        return f"{Path(self.clang).name} {f'-mcpu={self.cpu}' if self.cpu else 'by itself'}"

    def compile(self, program: str) -> bytes:
        """The object of a program in bpf/, for this machine's architecture."""
        return _compile(self, program)


@functools.cache
def _compile(by: Compiler, program: str) -> bytes:
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    source, strip = ROOT / f"bpf/{program}.bpf.c", clang.find_strip(by.clang)
    made = clang.compile_object(by.clang, strip, source, architecture, root=ROOT, cpu=by.cpu)
    assert made.data, made.messages
    return made.data


def compilers() -> list[Compiler]:
    """The package's own first, then the oldest and newest ones that are promised, as found."""
    own = clang.find_clang()
    names = [own, *map(shutil.which, ("clang-16", "clang-19"))]
    found = [
        Compiler(name, cpu) for name in dict.fromkeys(filter(None, names)) for cpu in ("v3", "")
    ]
    assert found, "there is no clang"
    return found


def object_of(user: str, by: Compiler) -> bytes:
    return by.compile(user.partition(" ")[0])


def all_of(user: str, data: bytes) -> list[Loading]:
    """The fewest in which everything that acts together takes on all its combinations."""
    unknown = set(variables(data)).difference(SIZES, AS_GADGET, AS_LOCAL, OF_IMAGE)
    assert not unknown, f"say in loadings.py what values of {unknown} make other code"
    together = list(groups(data).values())
    return [_loading(user, one) for one in covering(together, _choices(user, data))]


def few_of(user: str, data: bytes) -> list[Loading]:
    """Each value of each switch: for compilers beside the package's own."""
    values = _choices(user, data)
    return [
        _loading(user, {name: choices[i % len(choices)] for name, choices in values.items()})
        for i in range(max(map(len, values.values())))
    ]


def _choices(user: str, data: bytes) -> Mapping[str, Sequence[Value]]:
    known = variables(data)
    return {name: choices for name, choices in USERS[user][2].items() if name in known}


def _loading(user: str, switches: Switches) -> Loading:
    programs, attach_types, _ = USERS[user]
    fixed = OF_IMAGE if user == "gadget by the local runtime" else {}
    buffers = {"cuda_events"} if switches.get("use_perf_buffer") else ()
    return Loading({**switches, **fixed}, programs, attach_types, frozenset(buffers))


def refusals(data: bytes, ways: Sequence[Loading]) -> list[str]:
    """What the kernel says of those that it does not take."""
    loaded = Object(data)
    return list(filter(None, (refusal(loaded, way) for way in ways)))


def refusal(loaded: Object, way: Loading) -> str:
    """Empty where the kernel takes it."""
    try:
        loaded.load(way)
    except Refused as refused:
        return f"{dict(way.switches)}\n{refused}"
    return ""
