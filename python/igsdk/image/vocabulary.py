# SPDX-License-Identifier: Apache-2.0
"""The words that gadget.yaml may use, and what may stand behind each of them.

Inspektor Gadget takes any annotation and acts on those that it knows; a misspelt one
has no effect, without a word. So here an unknown one is an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from igsdk.image.document import meant
from igsdk.image.fields import FORMATTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from igsdk.image.fields import Field

    #: a text and the fields of the data source by name -> what is wrong, or nothing
    Check = Callable[[str, Mapping[str, Field]], str]

TOP_LEVEL = (
    *("name", "description", "homepageURL", "documentationURL", "sourceURL", "annotations"),
    *("datasources", "params", "paramDefaults", "programs", "ebpfParams", "operator"),
)
#: annotations of these beginnings are for other programs, which show gadgets' output
FOREIGN = ("flamegraph.", "views.")
TEMPLATES = (
    *("timestamp", "bytes", "duration", "node", "pod", "container", "namespace"),
    *("containerImageName", "containerPid", "containerImageDigest", "containerStartedAt"),
    *("comm", "pcomm", "pid", "ppid", "tid", "ptid", "uid", "gid", "ns", "mntns_id", "netns_id"),
    *("l4endpoint", "syscall", "errorString", "user_stack"),
)
_MODES = ("columns", "json", "jsonpretty", "yaml", "none", "raw", "pcap-ng", "histogram")
_DURATION = re.compile(r"0|[+]?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+")


def _any(text: str, known: Mapping[str, Field]) -> str:  # noqa: ARG001
    return ""


def _bool(text: str, known: Mapping[str, Field]) -> str:  # noqa: ARG001
    return "" if text.lower() in ("true", "false") else "has to be true or false"


def _count(text: str, known: Mapping[str, Field]) -> str:  # noqa: ARG001
    return "" if text.isdecimal() else "has to be a whole number"


def _duration(text: str, known: Mapping[str, Field]) -> str:  # noqa: ARG001
    return "" if _DURATION.fullmatch(text) else "has to be a duration: 500ms, 10s, 1m"


def _numbers(text: str, known: Mapping[str, Field]) -> str:  # noqa: ARG001
    try:
        list(map(float, text.split(",")))
    except ValueError:
        return "has to be numbers with commas between them"
    return ""


def _one_of(*words: str) -> Check:
    def check(text: str, known: Mapping[str, Field]) -> str:  # noqa: ARG001
        if text in words:
            return ""
        return f"has to be one of {', '.join(words)}{meant(text, words)}"

    return check


def _some_of(*words: str) -> Check:
    one = _one_of(*words)
    return lambda text, known: next(
        filter(None, (one(w.strip(), known) for w in text.split(","))), ""
    )


def field_named(text: str, known: Mapping[str, Field]) -> str:
    """Whether there is a field of that name."""
    if text.lower() in known:
        return ""
    names = [one.name for one in known.values()]
    return f"names a field {text!r} that does not exist{meant(text, names)}"


def _fields(text: str, known: Mapping[str, Field]) -> str:
    return next(filter(None, (field_named(w.strip(), known) for w in text.split(","))), "")


def _integer_field(text: str, known: Mapping[str, Field]) -> str:
    wrong = field_named(text, known)
    if wrong or known[text.lower()].is_integer:
        return wrong
    return f"has to name an integer, and {text} is of type {known[text.lower()].kind}"


OF_SOURCES: dict[str, Check] = {
    "fetch-interval": _duration,
    "fetch-count": _count,
    "ebpf.map.flush-on-stop": _bool,
    "ebpf.iter.fetch-on-stop": _bool,
    "ebpf.rest.name": _any,
    "ebpf.rest.len": _integer_field,
    "cli.clear-screen-before": _bool,
    "cli.supported-output-modes": _some_of(*_MODES),
    "cli.default-output-mode": _one_of(*_MODES),
    "pcap.payload": field_named,
    "pcap.timestamp": field_named,
    "pcap.packet-length": field_named,
    "metrics.collect": _bool,
    "metrics.print": _bool,
    "metrics.implicit-counter.name": _any,
    "metrics.implicit-counter.description": _any,
    "profiles.stack-fields": _fields,
    "profiles.value-field": _integer_field,
    "profiles.name": _any,
    "profiles.type": _any,
    "profiles.unit": _any,
    "logs.name": _any,
    "logs.array-handling": _one_of("array", "elements"),
    "logs.body": _any,
    "logs.severity": _any,
    "kubenameresolver.enable": _bool,
    "generate_networkpolicy.enable": _bool,
}
ENVIRONMENT = "env.fields."
OF_FIELDS: dict[str, Check] = {
    "description": _any,
    "value.one-of": _any,
    "template": _one_of(*TEMPLATES),
    "columns.width": _count,
    "columns.minwidth": _count,
    "columns.maxwidth": _count,
    "columns.alignment": _one_of("left", "right"),
    "columns.ellipsis": _one_of("none", "end", "start", "middle"),
    "columns.hidden": _bool,
    "columns.fixed": _bool,
    "columns.hex": _bool,
    "columns.alias": _any,
    "columns.precision": _count,
    "columns.replace": _any,
    "json.skip": _bool,
    "metrics.type": _one_of("key", "counter", "gauge", "histogram"),
    "metrics.name": _any,
    "metrics.description": _any,
    "metrics.unit": _any,
    "metrics.boundaries": _numbers,
    "profiles.sample-attribute": _bool,
    "logs.name": _any,
    "uidgidresolver.target": _any,
    "ebpf.formatter.enum": _any,
    "ebpf.formatter.kstack": _any,
    "ebpf.formatter.bitfield.separator": _any,
    "formatters.timestamp.format": _any,
    **{f"formatters.{name}.target": _any for name in FORMATTED.values()},
    "pcap.interface-key": _any,
    "pcap.interface-var": _any,
}
OF_PROGRAMS = ("attach_to", "perf.type", "perf.config", "perf.sampleType", "sampler.frequency")
#: what a program that samples has to be given, the only values that are taken
SAMPLING = {"perf.type": "software", "perf.config": "count_sw_cpu_clock"}
SAMPLING |= {"perf.sampletype": "sample_raw"}
OF_PARAMETERS = (
    *("key", "alternativeKey", "alias", "title", "defaultValue", "description", "isMandatory"),
    *("tags", "type", "typeHint", "valueHint", "possibleValues"),
)
OF_CUSTOM = ("description", "defaultValue", "alias", "values", "patch")
EMITTING = {
    "ebpf": ("emitstats",),
    "process": ("emitstats", "interval", "first-interval", "fields", "count"),
    "cgroup": ("emitstats", "interval", "first-interval", "count"),
}
