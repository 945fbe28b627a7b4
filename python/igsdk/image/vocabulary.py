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

    #: the fields of a data source by name, or None where nobody knows them all
    Known = Mapping[str, Field] | None
    #: a text and those fields -> what is wrong, or nothing
    Check = Callable[[str, Known], str]

TOP_LEVEL = (
    *("name", "description", "homepageURL", "documentationURL", "sourceURL", "annotations"),
    *("datasources", "params", "paramDefaults", "programs", "ebpfParams", "operator"),
)
#: the annotation of a gadget that has a data source of containers
CONTAINERS = "enable-containers-datasource"
#: annotations of these beginnings are for other programs, which show gadgets' output
FOREIGN = ("flamegraph.", "views.")
TEMPLATES = (
    *("timestamp", "bytes", "duration", "node", "pod", "container", "namespace"),
    *("containerImageName", "containerPid", "containerImageDigest", "containerStartedAt"),
    *("comm", "pcomm", "pid", "ppid", "tid", "ptid", "uid", "gid", "ns", "mntns_id", "netns_id"),
    *("l4endpoint", "syscall", "errorString", "user_stack"),
)
#: those whose fields are hidden unless `columns.hidden` says otherwise; types have them too
HIDING = (
    *("timestamp", "containerPid", "containerStartedAt", "pcomm", "ppid", "ptid", "ns"),
    *("mntns_id", "netns_id", "user_stack"),
)
#: the ways to show rows that a data source has where it names none
USUAL_MODES = ("columns", "json", "jsonpretty", "none", "yaml")
_MODES = ("columns", "json", "jsonpretty", "yaml", "none", "raw", "pcap-ng", "histogram")
_DURATION = re.compile(r"0|[+]?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+")


def _any(text: str, known: Known) -> str:  # noqa: ARG001
    return ""


def _bool(text: str, known: Known) -> str:  # noqa: ARG001
    return "" if text in ("true", "false") else "has to be true or false"


def _count(text: str, known: Known) -> str:  # noqa: ARG001
    return "" if text.isdecimal() else "has to be a whole number"


def _width(text: str, known: Known) -> str:
    return "" if text == "type" else _count(text, known)


def _duration(text: str, known: Known) -> str:  # noqa: ARG001
    return "" if _DURATION.fullmatch(text) else "has to be a duration: 500ms, 10s, 1m"


def _numbers(text: str, known: Known) -> str:  # noqa: ARG001
    return next(filter(None, map(wrong_number, text.split(","))), "")


def wrong_number(text: str) -> str:
    """Whether Inspektor Gadget reads a number there; it knows more ways to write one."""
    try:
        float(text)
    except ValueError:
        return f"has {text!r} where a number has to be"
    return ""


def _one_of(*words: str) -> Check:
    def check(text: str, known: Known) -> str:  # noqa: ARG001
        if text in words:
            return ""
        return f"has to be one of {', '.join(words)}{meant(text, words)}"

    return check


def _mode(text: str, known: Known) -> str:
    """One way to show rows; a module brings words of its own."""
    return _one_of(*_MODES)(text, known) if known is not None else ""


def _modes(text: str, known: Known) -> str:
    return next(filter(None, (_mode(word, known) for word in text.split(","))), "")


def field_named(text: str, known: Known) -> str:
    """Whether there is a field of that name, which in a value counts with its case."""
    if known is None or (text.lower() in known and known[text.lower()].name == text):
        return ""
    names = [one.name for one in known.values()]
    return f"names a field {text!r} that does not exist{meant(text, names)}"


def _fields(text: str, known: Known) -> str:
    return next(filter(None, (field_named(word, known) for word in text.split(","))), "")


def _integer_field(text: str, known: Known) -> str:
    wrong = field_named(text, known)
    if wrong or known is None or known[text.lower()].is_integer:
        return wrong
    return f"has to name an integer, and {text} is of type {known[text.lower()].kind}"


OF_SOURCES: dict[str, Check] = {
    "description": _any,
    "fetch-interval": _duration,
    "fetch-count": _count,
    "ebpf.map.flush-on-stop": _bool,
    "ebpf.iter.fetch-on-stop": _bool,
    "ebpf.rest.name": _any,
    "ebpf.rest.len": _integer_field,
    "cli.clear-screen-before": _bool,
    "cli.supported-output-modes": _modes,
    "cli.default-output-mode": _mode,
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
    "content-type": _any,
    "value.one-of": _any,
    "template": _one_of(*TEMPLATES),
    "columns.width": _width,
    "columns.minwidth": _width,
    "columns.maxwidth": _width,
    "columns.alignment": _one_of("left", "right"),
    "columns.ellipsis": _one_of("none", "end", "start", "middle"),
    "columns.hidden": _bool,
    "columns.fixed": _bool,
    "columns.hex": _bool,
    "columns.alias": _any,
    "columns.precision": _count,
    "columns.replace": field_named,
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
#: parameters that every program has, or those with maps that are drained or on an interface
OF_EBPF = ("trace-pipe", "map-fetch-interval", "map-fetch-count", "iface")
#: whose parameters can have a default of the gadget's
OPERATORS = (
    *("oci", "kubemanager", "localmanager", "ustack", "filter", "sort", "limiter", "cli"),
    *("otel-metrics", "otel-logs", "otel-profiles", "formatters", "combiner", "ebpf", "process"),
    *("cgroup", "env", "uidgidresolver", "socketenricher", "kubeipresolver", "kubenameresolver"),
    "generate_networkpolicy",
)
