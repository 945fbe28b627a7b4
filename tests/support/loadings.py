# SPDX-License-Identifier: Apache-2.0
"""All ways in which somebody may load our objects that make different code."""

from __future__ import annotations

import functools
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.switches import Value, covering, groups, variables
from tests.support.verifier import Loading, Object, Refused

from igsdk.image import clang

ROOT = Path(__file__).resolve().parents[2]
ANY_ID = 0xFFFFFFFF
SESSION_LINK = 57  # BPF_TRACE_UPROBE_SESSION
EVERYONES = frozenset({"call_entry", "call_return", "on_exit", "on_exec", "on_rename", "on_fork"})
#: numbers that change how much is done, not what
SIZES = frozenset(
    {
        *("accounts_max", "usages_max", "processes_max", "keep_ended_ms"),
        *("ig_build_id_max_entries", "live_table_max_entries"),
    }
)
#: what Inspektor Gadget, or who runs it, may set
AS_GADGET: Mapping[str, Sequence[Value]] = {
    "collect_ustack": (1, 0),
    "collect_build_id": (0, 1),
    "collect_otel_stack": (0, 1),
    "events_wanted": ("failures", "all", "none"),
    "use_perf_buffer": (0, 1),
    "gadget_filter_by_mntns": (0, 1),
    "targ_pid": (0, 7),
    "targ_uid": (ANY_ID, 7),
    "targ_gid": (ANY_ID, 7),
    "targ_comm": ("", "python3"),
}
#: what the local runtime may set, of whatever object
AS_LOCAL: Mapping[str, Sequence[Value]] = {
    "events_mode": (1, 2, 0),
    "collect_ustack": (1, 0),
    "use_templates": (1, 0),
    "filter_tracked": (0, 1),
    "spare_filtered": (0, 1),
    "gadget_filter_by_mntns": (0, 1),
    "targ_comm": ("", "python3"),
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
    programs, attach_types, values = USERS[user]
    read = groups(data)
    unknown = set(variables(data)).difference(SIZES, AS_GADGET, AS_LOCAL, OF_IMAGE)
    assert not unknown, f"say in loadings.py what values of {unknown} make other code"
    fixed = OF_IMAGE if user == "gadget by the local runtime" else {}
    known = {name: choices for name, choices in values.items() if name in variables(data)}
    return [
        Loading(
            {**switches, **fixed},
            programs,
            attach_types,
            frozenset({"cuda_events"} if switches.get("use_perf_buffer") else ()),
        )
        for switches in covering(list(read.values()), known)
    ]


def few_of(user: str, data: bytes) -> list[Loading]:
    """Each value of each switch at least once: for compilers beside the package's own."""
    chosen: list[Loading] = []
    seen: set[tuple[str, Value]] = set()
    for loading in sorted(all_of(user, data), key=lambda one: -len(one.switches)):
        if loading.switches.items() - seen:
            chosen.append(loading)
            seen |= loading.switches.items()
    return chosen


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
