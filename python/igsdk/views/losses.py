# SPDX-License-Identifier: Apache-2.0
"""Losses in words: what happened, what it means for the numbers, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from igsdk._units import format_bytes, format_duration, plural
from igsdk.views.meaning import Figures, Meaning
from igsdk.views.stream_losses import STREAM_MEANINGS

if TYPE_CHECKING:
    from igsdk.profile import Metadata, ProcessRow


_PEAKS = {
    "exact": "the peak is exact",
    "inexact": "the peak may have been higher, some events were lost",
    "interval": "the peak is the highest of the intervals' ends",
    "summed": "the peak is a sum of peaks at different moments",
}
_LARGER = "Give a larger table"
MEANINGS = {
    "events": Meaning(
        "{n} events did not reach us because their buffer was full",
        "totals are exact, the peak may have been higher",
        "Give the events a larger buffer.",
    ),
    "captures": Meaning(
        "{n} stacks did not reach us at first use because their buffer was full",
        "they are sent again at their next use; bytes are exact",
        "Give the stacks a larger buffer.",
    ),
    "processes_full": Meaning(
        "{n} calls of processes for which the table had no room are booked together",
        "their bytes stand under [process table full]",
        f"{_LARGER} of processes, or filter by process.",
    ),
    "usage_full": Meaning(
        "{n} calls found no room in the table of process, kind and device",
        "their bytes are missing",
        f"{_LARGER}, or filter by process.",
        figures="too low",
    ),
    "accounts_full": Meaning(
        "{n} calls found no room for an account of their own",
        "their bytes are exact and stand under [accounts full], without their stacks",
        f"{_LARGER} of accounts.",
    ),
    "live_full": Meaning(
        "{n} allocations found no room in the table of live ones",
        "they count as in use until their context or process ends, freed or not",
        "Give `--live-entries N` a larger N (262144 without it).",
        figures="too high",
    ),
    "threads": Meaning(
        "{n} calls could not be followed because too many threads called at once",
        "their bytes are missing",
        f"{_LARGER} of threads.",
        figures="incomplete",
    ),
    "contexts_full": Meaning(
        "{n} contexts found no room in their table",
        "what their end gives back may count as in use until the process ends",
        f"{_LARGER} of contexts.",
        figures="too high",
    ),
    "read_fault": Meaning(
        "{n} results could not be read from the process's memory",
        "their bytes are missing",
        "Nothing can be done; the calls themselves worked.",
        figures="incomplete",
    ),
    "stack_failed": Meaning(
        "{n} stacks were not taken because no memory to take them in was free",
        "their bytes are exact and stand under [stack not taken]",
        "Many threads called at the same moment; it passes by itself.",
    ),
    "stack_bytes": Meaning(
        "{n} stacks came without native frames because their buffer was full",
        "their bytes are exact; their Python frames are there where there are any",
        "Give the stacks a larger buffer.",
    ),
    "stack_table": Meaning(
        "{n} stacks found another one in their place of Inspektor Gadget's stack table",
        "their bytes are exact; they have no frames",
        "Start the gadget anew: Inspektor Gadget never empties that table.",
    ),
    "rows": Meaning(
        "{n} rows found no room in the copy that Inspektor Gadget takes away",
        "their totals come with the next row of the same account",
        "Make map-fetch-interval shorter.",
    ),
    "python_fault": Meaning(
        "{n} times Python frames could not be read from the process's memory",
        "their stacks end in a frame that says so; bytes are exact",
        "Memory that was swapped out can't be read at a probe; else report it.",
    ),
    "stacks_cut": Meaning(
        "{n} different stacks are deeper than what is copied of them",
        "native frames end in a frame that says so, Python frames go on; bytes are exact",
        "Nothing needs to be done; only the outermost native callers are missing.",
    ),
    "unwind_ended": Meaning(
        "{n} different stacks have native frames that do not go on to the start of their thread",
        "they end in a frame that says why; bytes are exact",
        "Code without unwind tables does that; compilers write them unless told not to.",
    ),
    "python_missing": Meaning(
        "{n} different stacks lack Python frames",
        "a frame says why, and the interpreter's own frames are shown instead; bytes are exact",
        "Use CPython 3.8 or later, with the GIL and without subinterpreters.",
    ),
    "code_unknown": Meaning(
        "{n} different stacks have native code that nobody can name",
        "a frame in brackets stands for each such function; bytes are exact",
        "Let the compiler write /tmp/perf-PID.map: node has --perf-basic-prof, CPython -X perf.",
    ),
    "names_missing": Meaning(
        "{n} Python frames have no name because their code objects could not be kept",
        "a frame in brackets stands for each; bytes are exact",
        "Filter by process: there were too many at once.",
    ),
    "stacks_full": Meaning(
        "{n} different stacks found no room in the table of stacks",
        "their bytes are exact and stand under [too many different stacks]",
        "Filter by process.",
    ),
    "nested": Meaning(
        "{n} driver calls were made inside other driver calls",
        "only the outer call is booked, so nothing counts twice",
        "Nothing needs to be done.",
        lost=False,
    ),
    "abandoned": Meaning(
        "{n} calls never came back to their probe",
        "what they allocated or freed is unknown",
        "A thread that is killed inside a call does that; else report it.",
        figures="incomplete",
    ),
    "unknown_free": Meaning(
        "{n} frees were of addresses that we never saw allocated",
        "those allocations were made before the probes were there",
        "Start the program under `igsdk record -- CMD` to see everything.",
    ),
    "missed_free": Meaning(
        "{n} addresses were handed out again without a free that we saw",
        "the earlier allocation is booked as freed then, later than it was",
        "Calls that the probes cannot see free memory too; totals are right again.",
    ),
    "not_booked_graph": Meaning(
        "{n} memory nodes were added to graphs",
        "graph memory is seen and not booked",
        "Compare with the device's own figure (nvidia-smi).",
        figures="too low",
    ),
    "not_booked_external": Meaning(
        "{n} imports of external memory were seen",
        "external memory is not booked",
        "It belongs to the API that exported it.",
    ),
    "not_booked_sparse": Meaning(
        "{n} mappings of sparse arrays were seen",
        "sparse arrays are not booked",
        "Compare with the device's own figure (nvidia-smi).",
        figures="too low",
    ),
    "size_unknown": Meaning(
        "{n} imports have a size that nobody tells",
        "they count as 0 bytes",
        "Trace the exporting process too.",
        figures="too low",
    ),
    "format_unknown": Meaning(
        "{n} arrays have a format whose size is not known",
        "they count as 0 bytes",
        "Report the array's format.",
        figures="too low",
    ),
    "unmap_partial": Meaning(
        "{n} unmap calls covered more mappings than can be followed in one call",
        "some of what they gave back still counts as in use",
        "Unmap in smaller pieces.",
        figures="too high",
    ),
    "seccomp": Meaning(
        "{n} calls of programs under a seccomp filter were left alone",
        "their bytes are missing; on this kernel a return probe could kill such a program",
        "Update to Linux 6.14 or later, or run the program without the filter.",
        figures="incomplete",
    ),
    "accounts_ahead_bytes": Meaning(
        "stacks were read {bytes} ahead of the processes' own totals",
        "the two are read one after the other while the program runs",
        "Read again when it stands still.",
    ),
    **STREAM_MEANINGS,
}


#: a free that matches nothing has another cause where the table of live ones was full
_UNKNOWN_FREE_WHEN_FULL = (
    "those allocations found no room in the table (live_full), or were made before the probes "
    "were there"
)


def loss_sentences(metadata: Metadata) -> list[str]:
    """One sentence of cause and effect and one of remedy, per loss and per late process."""
    causes = [cause for cause in sorted(metadata.losses) if _lost(cause)]
    if _frees_told(metadata):
        causes.remove("unknown_free")
    sentences = [_sentence(cause, metadata.losses) for cause in causes]
    for row in metadata.processes:
        sentences += _late(row)
    return sentences


def _frees_told(metadata: Metadata) -> bool:
    """Whether the processes that ran before us explain all frees that match nothing."""
    frees = sum(row.unknown_frees for row in metadata.processes if row.before_us or row.late_ns)
    losses = metadata.losses
    return 0 < losses.get("unknown_free", 0) <= frees and not losses.get("live_full")


def note_sentences(metadata: Metadata) -> list[str]:
    """What was seen and cost nothing, and what the runtime has to say."""
    harmless = [cause for cause in sorted(metadata.losses) if not _lost(cause)]
    return [*(_sentence(cause, metadata.losses) for cause in harmless), *metadata.notes]


def _lost(cause: str) -> bool:
    return cause not in MEANINGS or MEANINGS[cause].lost


def figures(metadata: Metadata) -> Figures:
    """What all losses together do to bytes in use, for what ran under our probes."""
    effects: set[Figures] = {
        MEANINGS[cause].figures if cause in MEANINGS else "incomplete" for cause in metadata.losses
    } - {"exact"}
    if len(effects) > 1:
        return "incomplete"
    return effects.pop() if effects else "exact"


def bytes_exact(metadata: Metadata) -> bool:
    """Whether the byte totals are exact for what ran under our probes."""
    return figures(metadata) == "exact"


def exactness(metadata: Metadata) -> str:
    """How far the figures of a recording can be trusted, as one sentence without its full stop."""
    found = figures(metadata)
    if found == "too high":
        return (
            "figures are too high: at most what stands here was in use, now and at the peak "
            "(see losses); what was allocated is exact"
        )
    if found == "too low":
        return (
            "figures are too low: at least what stands here was in use, now and at the peak "
            "(see losses)"
        )
    if found == "incomplete":
        return "byte counts and the peak are not complete (see losses)"
    if any(row.before_us or row.late_ns for row in metadata.processes):
        return (
            "bytes and the peak are only of what was seen from the moment the probes were there "
            "(see losses)"
        )
    peak = _PEAKS.get(metadata.peak)
    return f"bytes are exact; {peak}" if peak else "bytes are exact"


def _sentence(cause: str, losses: dict[str, int]) -> str:
    meaning, count = MEANINGS.get(cause), losses[cause]
    if meaning is None:
        return f"{cause}: {count:,}. A newer igsdk may know what that means."
    what = meaning.what.format(n=f"{count:,}", bytes=format_bytes(count))
    if cause == "unknown_free" and losses.get("live_full"):
        remedy = MEANINGS["live_full"].remedy
        return f"{cause}: {what}: {_UNKNOWN_FREE_WHEN_FULL}. {remedy}"
    return f"{cause}: {what}: {meaning.effect}. {meaning.remedy}"


def _late(row: ProcessRow) -> list[str]:
    """One sentence per process that ran before us, whichever way that is known."""
    who = f"{row.process} (pid {row.pid})"
    if row.late_ns:
        used = ", and it had used CUDA by then" if row.before_us else ""
        came = f"the probes came {format_duration(row.late_ns)} after {who} had mapped its libcuda"
        text = f"late: {came}{used}"
    elif row.before_us:
        text = f"before: {who} used CUDA before the probes were there"
    else:
        return []
    told = f", as {plural(row.unknown_frees, 'free')} of it showed" if row.unknown_frees else ""
    if row.nvml_bytes is not None:
        told += f"; the device itself says {format_bytes(row.nvml_bytes)} for it"
    remedy = "Start it under `igsdk record -- CMD`."
    return [f"{text}: what it allocated earlier is missing{told}. {remedy}"]
