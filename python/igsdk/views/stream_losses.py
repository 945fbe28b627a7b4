# SPDX-License-Identifier: Apache-2.0
"""What can be lost between a runtime far away and us, in words."""

from __future__ import annotations

from igsdk.views.meaning import Meaning

_HEALS = "totals are in later rows again, within 30 s"
_VERSIONS = "Use igsdk of the same version on both sides."
STREAM_MEANINGS = {
    "packets": Meaning(
        "{n} packets did not reach us, since we or the network were slow",
        f"{_HEALS}; events among them are missing, and a peak may be",
        "Choose fewer processes, or only failures as events.",
    ),
    "unread": Meaning(
        "{n} of the last packets found no room",
        "the last changes of some accounts are missing",
        "Choose fewer processes.",
        figures="incomplete",
    ),
    "gaps": Meaning(
        "the rows of a node stopped {n} times and came again",
        "an agent goes on meanwhile and nothing is missing but events; Inspektor Gadget begins "
        "anew (restarts)",
        "Look into the node's log, or at its network.",
    ),
    "gap_seconds": Meaning(
        "so long rows were missing, in seconds: {n}",
        "see gaps",
        "Nothing needs to be done.",
        lost=False,
    ),
    "restarts": Meaning(
        "the gadget was started anew {n} times",
        "what happened in between is missing, and what was freed since may still count as in use",
        "Run `igsdk agent` on the node, which goes on while nobody looks.",
        figures="incomplete",
    ),
    "attic_full": Meaning(
        "{n} times an account found no room, as too many are kept",
        "its bytes stand under [not attributed]",
        "Choose fewer processes, or a shorter time.",
    ),
    "unreadable_packets": Meaning(
        "{n} packets did not fit their description",
        "what they had is missing",
        _VERSIONS,
        figures="incomplete",
    ),
    "unreadable_rows": Meaning(
        "{n} rows did not fit their description",
        "what they had is missing",
        _VERSIONS,
        figures="incomplete",
    ),
    "unreadable_events": Meaning(
        "{n} messages of the daemon could not be read",
        "what they had is missing",
        _VERSIONS,
        figures="incomplete",
    ),
    "repeated": Meaning(
        "{n} packets came twice",
        "rows replace one another, so nothing counts twice",
        "Nothing needs to be done.",
        lost=False,
    ),
    "unknown_events": Meaning(
        "{n} messages are of a type that this version does not know",
        "they are no rows",
        "Nothing needs to be done.",
        lost=False,
    ),
    "log_lines": Meaning(
        "{n} lines of the daemons' logs made room for later ones",
        "they are no rows",
        "Nothing needs to be done.",
        lost=False,
    ),
}
