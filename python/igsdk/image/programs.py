# SPDX-License-Identifier: Apache-2.0
"""Programs: what Inspektor Gadget attaches them to, and what gadget.yaml says of that.

It attaches every program of an object by its section's name, once for all but those of
user space, which it attaches by container. gadget.yaml can name another place, or none
for those that are only called by others; what samples has to be told how often.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from igsdk.image import fields as f
from igsdk.image import findings, vocabulary
from igsdk.image.document import flat, texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from igsdk.image.document import Document
    from igsdk.image.elf import Map, Object, Program
    from igsdk.image.findings import Checked
    from igsdk.image.sources import Declared

DISABLED = "gadget_program_disabled"
FILTER = "gadget_mntns_filter_map"
_SECTIONS = re.compile(
    r"(kprobe|kretprobe|uprobe|uretprobe|usdt|tracepoint|tp|raw_tracepoint|raw_tp|fentry|fexit"
    r"|tp_btf|lsm|lsm\.s|perf_event)/.+"
    r"|iter/(task|task_file|tcp|udp|ksym|bpf_map_elem)"
    r"|classifier/(ingress|egress)/[^/]+"
    r"|(socket|sockops|sk_skb|sk_msg).*"
)
_OF_USERS = ("uprobe/", "uretprobe/", "usdt/")
_SAMPLES = "perf_event/"
#: where gadget.yaml may name another place; elsewhere only that it shall be none
_MOVABLE = (
    *_OF_USERS,
    *("kprobe/", "kretprobe/", "tracepoint/", "tp/", "raw_tracepoint/", "raw_tp/", "iter/"),
)
#: sections of programs that can call one another
_FAMILIES = {
    **dict.fromkeys(("kprobe", "kretprobe", "uprobe", "uretprobe", "usdt"), "probe"),
    **dict.fromkeys(("tracepoint", "tp"), "tracepoint"),
    **dict.fromkeys(("raw_tracepoint", "raw_tp"), "raw_tracepoint"),
}


def check_said(about: Checked) -> None:
    """What gadget.yaml says below `programs`."""
    for name, said in about.items("programs"):
        functions = [one for one in about.program.programs if one.name.lower() == name.lower()]
        samplers = [one for one in about.program.programs if _sampler(one).lower() == name.lower()]
        if not functions and not samplers:
            known = [one.name for one in about.program.programs]
            about.tell(said, findings.no("program", name, known, " in the object"))
            continue
        for key, value in flat(said):
            wrong = _wrong_key(name, key, value.text(), functions, samplers)
            if wrong:
                about.tell(value, wrong)


def _sampler(one: Program) -> str:
    """By which name gadget.yaml says how a program samples: its section's, not its own."""
    return one.section.removeprefix(_SAMPLES) if one.section.startswith(_SAMPLES) else ""


def _wrong_key(
    name: str, key: str, text: str, functions: list[Program], samplers: list[Program]
) -> str:
    if key.lower() == "attach_to":
        if functions:
            return _wrong_place(functions[0], text)
        return f"attach_to of {name} has no effect, it goes by the function's name"
    if key.lower() not in map(str.lower, vocabulary.OF_PROGRAMS):
        return findings.no("key", key, vocabulary.OF_PROGRAMS, f" in program {name}")
    if not samplers:
        return f"{key} has no effect, {name} is no name of a section {_SAMPLES}{name}"
    wanted = vocabulary.SAMPLING.get(key.lower())
    if wanted and text != wanted:
        return f"{key} of program {name} has to be {wanted}"
    if not wanted and not (text.isdecimal() and int(text)):
        return f"{key} of program {name} has to be a whole number above 0"
    return ""


def _wrong_place(one: Program, text: str) -> str:
    if text == DISABLED:
        return ""
    if not one.section.startswith(_MOVABLE):
        return (
            f"attach_to of program {one.name} has no effect, a program of section {one.section} "
            f"can only be {DISABLED}"
        )
    if one.section.startswith(("tracepoint/", "tp/")) and not re.fullmatch("[^/]+/[^/]+", text):
        return f"attach_to of program {one.name} has to be GROUP/NAME of a tracepoint"
    if not text:
        return f"attach_to of program {one.name} is empty, which has no effect"
    wrong = _wrong_probe(text) if one.section.startswith(_OF_USERS) else ""
    return f"attach_to of program {one.name}: {wrong}" if wrong else ""


def traps(document: Document, program: Object, declared: Declared) -> Iterator[str]:
    """Programs that Inspektor Gadget does not attach, or not load."""
    for one in program.programs:
        place = attached_to(document, one.name)
        if place != DISABLED:
            yield from _section(one, place)
            if one.section.startswith(_SAMPLES):
                yield from _sampling(document, one)
    for each in program.maps.values():
        if each.type == "PROG_ARRAY":
            yield from _called(program, each)
    yield from _never_attached(document, program, declared)


def _said_of(document: Document, name: str) -> dict[str, str]:
    return texts(findings.under(document.root, "programs", name))


def attached_to(document: Document, name: str) -> str:
    """What gadget.yaml says a program is attached to, or nothing."""
    return _said_of(document, name).get("attach_to", "")


def frequency(document: Document, one: Program) -> str:
    """How often a second a sampler runs on each processor; nothing for other programs."""
    return _said_of(document, _sampler(one)).get("sampler.frequency", "") if _sampler(one) else ""


def _section(one: Program, place: str) -> Iterator[str]:
    if not _SECTIONS.fullmatch(one.section):
        yield f"program {one.name}: Inspektor Gadget attaches nothing to {one.section}"
    if one.section.startswith(_OF_USERS) and not place:
        wrong = _wrong_probe(one.section.partition("/")[2])
        if wrong:
            yield f"program {one.name}: {wrong}"


def _wrong_probe(place: str) -> str:
    file, colon, symbol = place.partition(":")
    if not colon or not symbol or not file:
        return f"{place} is not FILE:SYMBOL, which a probe of user space needs"
    if "/" in file and not file.startswith("/"):
        return f"{file} is neither a library's name nor a whole path"
    return ""


def _sampling(document: Document, one: Program) -> Iterator[str]:
    name, needed = _sampler(one), [*vocabulary.SAMPLING, "sampler.frequency"]
    said = _said_of(document, name)
    for key in vocabulary.OF_PROGRAMS:
        if key.lower() in needed and key.lower() not in said:
            yield (
                f"program {one.name} samples, for which gadget.yaml has to say "
                f"programs.{name}.{key}"
            )


def _called(program: Object, array: Map) -> Iterator[str]:
    """Functions in an array for tail calls; the kernel takes one kind of program there."""
    sections = {one.name: one.section for one in program.programs}
    for name in array.programs:
        if name not in sections:
            yield f"map {array.name}: {name} is no program with a section of its own"
    kinds = [sections[name].partition("/")[0] for name in array.programs if name in sections]
    if len({_FAMILIES.get(kind, kind) for kind in kinds}) > 1:
        yield f"map {array.name} holds programs of different kinds: {', '.join(sorted(set(kinds)))}"
    if array.max_entries < len(array.programs):
        yield f"map {array.name} has {array.max_entries} entries for {len(array.programs)} programs"


def _never_attached(document: Document, program: Object, declared: Declared) -> Iterator[str]:
    """Probes of user space are attached by container; nobody asks for them otherwise."""
    probes = [
        one
        for one in program.programs
        if one.section.startswith(_OF_USERS) and attached_to(document, one.name) != DISABLED
    ]
    types = {name for one in declared.sources.values() for f_ in one.fields for name in f_.types}
    if probes and FILTER not in program.maps and not types & set(f.NAMESPACES):
        yield (
            f"program {probes[0].name} is never attached: a probe of user space needs the map "
            f"{FILTER} or a field of type gadget_mntns_id"
        )


def doubts(document: Document, program: Object) -> Iterator[str]:
    """Programs that others call and that are attached all the same."""
    called = {name: one.name for one in program.maps.values() for name in one.programs}
    for one in program.programs:
        array = called.get(one.name)
        if array and attached_to(document, one.name) != DISABLED:
            yield (
                f"program {one.name} is called through the map {array}, and Inspektor Gadget "
                f"attaches it to {one.section} too; programs.{one.name}.attach_to: {DISABLED} "
                "keeps it from that"
            )
