# SPDX-License-Identifier: Apache-2.0
"""Losses in words: what happened, what it means for the numbers, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from igsdk._units import format_bytes, format_duration

if TYPE_CHECKING:
    from igsdk.profile import Metadata, ProcessRow


@dataclass(frozen=True, slots=True)
class Meaning:
    """Of one cause; ``{n}`` stands for the count.

    ``bytes_exact``: totals are exact all the same. ``lost``: it is a loss at all.
    """

    what: str
    effect: str
    remedy: str
    bytes_exact: bool = True
    lost: bool = True


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
        bytes_exact=False,
    ),
    "accounts_full": Meaning(
        "{n} calls found no room for an account of their own",
        "their bytes are exact and stand under [accounts full], without their stacks",
        f"{_LARGER} of accounts.",
    ),
    "live_full": Meaning(
        "{n} allocations found no room in the table of live ones",
        "they count as in use until their context or process ends, freed or not",
        f"{_LARGER} of live allocations.",
        bytes_exact=False,
    ),
    "threads": Meaning(
        "{n} calls could not be followed because too many threads called at once",
        "their bytes are missing",
        f"{_LARGER} of threads.",
        bytes_exact=False,
    ),
    "contexts_full": Meaning(
        "{n} contexts found no room in their table",
        "what their end gives back may count as in use until the process ends",
        f"{_LARGER} of contexts.",
        bytes_exact=False,
    ),
    "read_fault": Meaning(
        "{n} results could not be read from the process's memory",
        "their bytes are missing",
        "Nothing can be done; the calls themselves worked.",
        bytes_exact=False,
    ),
    "stack_failed": Meaning(
        "{n} stacks could not be taken",
        "their bytes are exact and stand under the reason",
        "Build the program with frame pointers (-fno-omit-frame-pointer).",
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
        bytes_exact=False,
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
        bytes_exact=False,
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
        bytes_exact=False,
    ),
    "size_unknown": Meaning(
        "{n} imports have a size that nobody tells",
        "they count as 0 bytes",
        "Trace the exporting process too.",
        bytes_exact=False,
    ),
    "format_unknown": Meaning(
        "{n} arrays have a format whose size is not known",
        "they count as 0 bytes",
        "Report the array's format.",
        bytes_exact=False,
    ),
    "unmap_partial": Meaning(
        "{n} unmap calls covered more mappings than can be followed in one call",
        "some of what they gave back still counts as in use",
        "Unmap in smaller pieces.",
        bytes_exact=False,
    ),
    "seccomp": Meaning(
        "{n} calls of programs under a seccomp filter were left alone",
        "their bytes are missing; on this kernel a return probe could kill such a program",
        "Update to Linux 6.14 or later, or run the program without the filter.",
        bytes_exact=False,
    ),
    "accounts_ahead_bytes": Meaning(
        "stacks were read {bytes} ahead of the processes' own totals",
        "the two are read one after the other while the program runs",
        "Read again when it stands still.",
    ),
}


def loss_sentences(metadata: Metadata) -> list[str]:
    """One sentence of cause and effect and one of remedy, per loss and per late process."""
    sentences = [
        _sentence(cause, count) for cause, count in sorted(metadata.losses.items()) if _lost(cause)
    ]
    for row in metadata.processes:
        sentences += _late(row)
    return sentences


def note_sentences(metadata: Metadata) -> list[str]:
    """What was seen and cost nothing, and what the runtime has to say."""
    harmless = [(c, n) for c, n in sorted(metadata.losses.items()) if not _lost(c)]
    return [*(_sentence(cause, count) for cause, count in harmless), *metadata.notes]


def _lost(cause: str) -> bool:
    return cause not in MEANINGS or MEANINGS[cause].lost


def bytes_exact(metadata: Metadata) -> bool:
    """Whether the byte totals are exact for what ran under our probes."""
    unknown = Meaning("", "", "", bytes_exact=False)
    return all(MEANINGS.get(cause, unknown).bytes_exact for cause in metadata.losses)


def _sentence(cause: str, count: int) -> str:
    meaning = MEANINGS.get(cause)
    if meaning is None:
        return f"{cause}: {count:,}. A newer igsdk may know what that means."
    what = meaning.what.format(n=f"{count:,}", bytes=format_bytes(count))
    return f"{cause}: {what}: {meaning.effect}. {meaning.remedy}"


def _late(row: ProcessRow) -> list[str]:
    sentences = []
    if row.before_us:
        told = ""
        if row.nvml_bytes is not None:
            told = f"; the device itself says {format_bytes(row.nvml_bytes)} for it"
        sentences.append(
            f"before: {row.process} (pid {row.pid}) used CUDA before the probes were there: "
            f"what it allocated earlier is missing{told}. "
            "Start it under `igsdk record -- CMD`."
        )
    if row.late_ns:
        sentences.append(
            f"late: the probes came {format_duration(row.late_ns)} after {row.process} "
            f"(pid {row.pid}) had mapped its libcuda: calls in that time are missing. "
            "Start it under `igsdk record -- CMD`."
        )
    return sentences
