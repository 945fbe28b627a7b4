# SPDX-License-Identifier: Apache-2.0
"""The fields of a data source: the members of its structs, and what is added at run time.

Inspektor Gadget makes fields of struct members by rules of its own: members that begin
with two underscores are dropped, a struct behind a typedef is passed over, an enum
gets a text beside it, and types of certain names get more. `docs/reference` there and
the struct's BTF are all that is needed to know the fields before anything runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from igsdk.image import btf as b

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from igsdk.image.btf import Btf, Member, Type

#: typedef -> (what formats it, name of the text where the member does not end in _raw)
FORMATTED = {
    "gadget_timestamp": "timestamp",
    "gadget_signal": "signal",
    "gadget_errno": "errno",
    "gadget_syscall": "syscall",
    "gadget_bytes": "bytes",
    "gadget_duration": "duration",
    "gadget_file_mode": "file_mode",
    "gadget_file_flags": "file_flags",
}
USERS = {"gadget_uid": "user", "gadget_gid": "group"}
NAMESPACES = ("gadget_mntns_id", "gadget_netns_id")
STACK_TEXTS = ("addresses", "buildid", "symbols")
#: struct -> names and types of the texts that its field gets below it
ENDPOINTS = {
    "gadget_l3endpoint_t": ("addr",),
    "gadget_l4endpoint_t": ("addr", "proto", "endpoint"),
}
#: the union of addresses, one member of which is of 128 bits and for programs alone
_ADDRESS = "gadget_ip_addr_t"
_KUBERNETES = ("node", "namespace", "podName", "containerName", "hostnetwork", "podLabels")
_RUNTIME = (
    "containerName",
    "runtimeName",
    "containerId",
    "containerPid",
    "containerImageName",
    "containerImageDigest",
    "containerStartedAt",
)
_KINDS = {"hostnetwork": "bool", "containerPid": "uint32", "containerStartedAt": "int64"}
_DEEPEST = 16
_MOST_FIELDS = 4096


@dataclass(frozen=True)
class Field:
    """One field.

    Attributes:
        name: full, with dots.
        kind: bool, int8 … uint64, float32, float64, string, text (a C string of fixed
            length), bytes (a struct with fields of its own) or group (only a parent);
            `uint32[3]` for arrays.
        types: the names of its C types, the outermost first.
        offset, size: in bytes, in its struct; None for what is added at run time.
        part: which struct it is a member of: `key`, `value` or `event`; else `added`.
    """

    name: str
    kind: str
    types: tuple[str, ...] = ()
    offset: int | None = None
    size: int | None = None
    part: str = "added"

    @property
    def parent(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def is_integer(self) -> bool:
        return self.kind.startswith(("int", "uint")) and "[" not in self.kind


@dataclass
class Shape:
    """What a struct turns into."""

    fields: list[Field] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)


def of_struct(types: Btf, struct: Type, part: str) -> Shape:
    """The fields that a struct's members become, in their order, parents first."""
    shape = Shape()
    _walk(types, struct, Field("", "group", offset=0, part=part), shape, 0)
    return shape


def _walk(types: Btf, struct: Type, parent: Field, shape: Shape, depth: int) -> None:
    for member in struct.members:
        name = f"{parent.name}.{member.name}" if parent.name else member.name
        if member.name.startswith("__") or depth > _DEEPEST:
            continue
        made = _field(types, member, replace(parent, name=name))
        if made is None:
            if struct.name != _ADDRESS:
                shape.passed_over.append(name)
            continue
        shape.fields.append(made)
        if len(shape.fields) > _MOST_FIELDS:
            raise b.BtfError(f"struct {struct.name} has more than {_MOST_FIELDS} members")
        if made.kind == "bytes":
            _walk(types, types[member.type], made, shape, depth + 1)


def _field(types: Btf, member: Member, place: Field) -> Field | None:
    """The field of one member, or None for those that get none."""
    direct = types[member.type]
    names = tuple(type_names(types, member.type))
    inner = types.peel(member.type)
    if inner.kind in (b.STRUCT, b.UNION):
        kind = "bytes" if direct.kind in (b.STRUCT, b.UNION) else None
    elif inner.kind == b.ARRAY:
        kind = _array_kind(types, inner, names)
    else:
        kind = scalar_kind(inner)
    if kind is None or not member.name:
        return None
    offset = (place.offset or 0) + member.offset // 8
    return replace(place, kind=kind, types=names, offset=offset, size=types.size(member.type))


def type_names(types: Btf, number: int) -> Iterator[str]:
    """Every named type on the way down, the outermost first."""
    for _ in range(64):
        one = types[number]
        if one.name and one.kind != b.PTR:
            yield one.name
        if one.kind not in (*b.WRAPPERS, b.ARRAY):
            return
        number = one.type


def _array_kind(types: Btf, array: Type, names: tuple[str, ...]) -> str | None:
    element = scalar_kind(types.peel(array.type))
    if element is None or not array.count:
        return None
    return "text" if element == "int8" and "char" in names else f"{element}[{array.count}]"


def scalar_kind(one: Type) -> str | None:
    """The kind of a number, by C's size and sign."""
    if one.kind == b.FLOAT:
        return {4: "float32", 8: "float64"}.get(one.size)
    if one.kind == b.INT and one.encoding & b.BOOL:
        return "bool"
    if one.kind in (b.INT, b.ENUM, b.ENUM64) and one.size in (1, 2, 4, 8):
        return f"{'int' if one.encoding & b.SIGNED else 'uint'}{8 * one.size}"
    return None


def added(
    types: Btf, fields: Iterable[Field], targets: dict[tuple[str, str], str] | None = None
) -> list[Field]:
    """What Inspektor Gadget's operators add to the fields of a data source.

    Args:
        targets: names that gadget.yaml gives, by (field, annotation).
    """
    chosen, known = targets or {}, list(fields)
    made = [new for old in known for new in _added_to(types, old, chosen)]
    if any(name in one.types for one in known for name in NAMESPACES):
        made += _container_fields()
    return made


def hidden(
    types: Btf, fields: Iterable[Field], targets: dict[tuple[str, str], str] | None = None
) -> set[str]:
    """Names of fields that operators hide, whatever gadget.yaml says.

    They are enums and stacks of the kernel, which have a text, and users with their names.
    """
    found: set[str] = set()
    for one in fields:
        is_user = any(name in one.types for name in USERS)
        if is_user or "gadget_kernel_stack" in one.types or (one.types and _is_enum(types, one)):
            found.add(one.name)
        if is_user:
            found |= {made.name for made in _added_to(types, one, targets or {})}
    return found


def _added_to(types: Btf, one: Field, chosen: dict[tuple[str, str], str]) -> Iterator[Field]:
    for name in one.types:
        if name in FORMATTED:
            yield from _text(one, chosen.get((one.name, f"formatters.{FORMATTED[name]}.target")))
        if name in USERS:
            target = chosen.get((one.name, "uidgidresolver.target"))
            yield from _text(one, target, USERS[name])
        if name == "gadget_kernel_stack":
            yield from _text(one, chosen.get((one.name, "ebpf.formatter.kstack")))
        below = STACK_TEXTS if name == "gadget_user_stack" else ENDPOINTS.get(name, ())
        yield from (Field(f"{one.name}.{text}", "string") for text in below)
    if _ADDRESS not in one.types and one.types and _is_enum(types, one):
        yield from _text(one, chosen.get((one.name, "ebpf.formatter.enum")))


def _is_enum(types: Btf, one: Field) -> bool:
    """Enums get a text only where they are not behind a typedef."""
    name = one.types[0]
    return any(t.name == name for t in types.types if t.kind in (b.ENUM, b.ENUM64))


def _text(one: Field, target: str | None, usual: str = "") -> Iterator[Field]:
    """A text beside a number, under the name asked for, without _raw, or the usual one."""
    short = one.short.removesuffix("_raw")
    name = target or (short if short != one.short else usual)
    if name:
        yield Field(f"{one.parent}.{name}" if one.parent else name, "string")


def _container_fields() -> Iterator[Field]:
    yield Field("k8s", "group")
    yield from (Field(f"k8s.{name}", _KINDS.get(name, "string")) for name in _KUBERNETES)
    yield from (Field("k8s.owner", "group"), Field("k8s.owner.kind", "string"))
    yield from (Field("k8s.owner.name", "string"), Field("runtime", "group"))
    yield from (Field(f"runtime.{name}", _KINDS.get(name, "string")) for name in _RUNTIME)
