# SPDX-License-Identifier: Apache-2.0
"""The profile: what a user holds in hand."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk._errors import UsageError
from igsdk._events import Frame, marker
from igsdk._units import format_bytes, plural
from igsdk.profile.driver import asked, without_driver
from igsdk.profile.metadata import Metadata, ProcessRow, merged, noted
from igsdk.profile.names import ALLOCATED, DEFAULT_VALUE, HOSTS, LABELS, VALUES
from igsdk.profile.shown import VIEWS, View, shown, shown_failure
from igsdk.profile.stacks import Stacks
from igsdk.profile.table import KEYS, Table, build, combine, without_addresses
from igsdk.profile.top import By, TopRow, top

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from os import PathLike

    from igsdk.ledger import Ledger
    from igsdk.ledger.columns import Column
    from igsdk.sinks.delivery import Pushed

#: filters that choose processes, and so lines of the process table too
_PROCESS_FILTERS = ("process", "node", "namespace", "pod", "container")


class Profile:
    """Stacks x labels x values. Every operation gives a new profile.

    Values are exact int64 in bytes or calls, in the order of ``Profile.values``.
    ``default_value`` is what views show when nothing else is asked for.
    """

    values = VALUES
    labels = KEYS

    def __init__(
        self, table: Table, metadata: Metadata | None = None, default_value: str = DEFAULT_VALUE
    ) -> None:
        self._table = table
        self.metadata = metadata or Metadata()
        self.default_value = _known_value(default_value)

    @classmethod
    def from_samples(
        cls, samples: Iterable[dict[str, Any]], metadata: Metadata | None = None
    ) -> Profile:
        """A profile from rows as :meth:`samples` gives them; what a row lacks is empty or 0."""
        rows = list(samples)
        stacks: dict[tuple[Frame, ...], int] = {}
        stack = [stacks.setdefault(tuple(row["stack"]), len(stacks)) for row in rows]
        labels = {name: [row.get(name, "") for row in rows] for name in LABELS}
        labels |= {name: [row.get(name, 0) for row in rows] for name in KEYS if name not in LABELS}
        values = np.array([[row.get(name, 0) for name in VALUES] for row in rows], dtype=np.int64)
        return cls(build(list(stacks), labels, stack, values), metadata)

    @classmethod
    def from_ledger(cls, ledger: Ledger, metadata: Metadata | None = None) -> Profile:
        """All accounts of a ledger as they stand now.

        The ledger adds losses, notes, failures, how stacks were taken and the process
        table to ``metadata``; the runtime gives what only it knows (``attached``,
        ``peak``, ``time_ns``, ``duration_ns``, ``target``, ``command``, ``driver``).
        """
        from igsdk.profile.accounts import from_ledger

        return cls(*from_ledger(ledger, metadata or Metadata()))

    @classmethod
    def merge(cls, *profiles: Profile) -> Profile:
        """All profiles added up, row by row of the same stack and labels."""
        table = combine([profile._table for profile in profiles])
        default = profiles[0].default_value if profiles else DEFAULT_VALUE
        return cls(table, merged(profile.metadata for profile in profiles), default)

    def filter(
        self,
        *,
        pid: int | None = None,
        function: str | None = None,
        **labels: str | None,
    ) -> Profile:
        """The rows that match all of the given patterns.

        Args:
            pid: one process id.
            function: glob; a row stays if any frame of its stack has such a name.
            labels: globs by label: ``process``, ``kind``, ``device``, ``host``, ``node``,
                ``namespace``, ``pod``, ``container``.

        Raises:
            UsageError: a label of that name does not exist.
        """
        wanted = {name: pattern for name, pattern in labels.items() if pattern is not None}
        for name in wanted:
            _known_name(name, LABELS)
        keep = np.ones(len(self._table), dtype=bool)
        for name, pattern in wanted.items():
            keep &= _matching(self._table.strings, pattern)[self._table.labels[name]]
        if pid is not None:
            keep &= self._table.labels["pid"] == pid
        if function is not None:
            keep &= self._calling(function)[self._table.stack]
        metadata = _filtered(self.metadata, pid, function, wanted)
        return self._with(self._table.taken(np.flatnonzero(keep)), metadata)

    def group(self, by: Sequence[str]) -> Profile:
        """Rows added up by labels, ``function`` (the leaf) or ``stack``.

        Labels not in ``by`` become empty and, without ``function`` or ``stack``, so does
        the stack (``[all]``). The host class is always kept: what is registered or
        imported is never added to what a process allocated.

        Raises:
            UsageError: a name in ``by`` is neither.
        """
        for name in by:
            _known_name(name, (*KEYS, "stack", "function"))
        table = self._table
        zero = np.zeros(len(table), dtype=np.int64)
        labels = {
            name: column if name in by or name == "host" else zero
            for name, column in table.labels.items()
        }
        table = replace(table, labels=labels, **self._stacks_for(by))
        return self._with(table.grouped(), self.metadata)

    def subtract(self, other: Profile) -> Profile:
        """This minus the other, signed: what grew is positive, what shrank negative."""
        negative = replace(other._table, values=-other._table.values)
        metadata = noted(self.metadata, "Values are differences between two profiles.")
        return self._with(combine([self._table, negative]), metadata)

    def peak(self) -> Profile:
        """The same profile, shown by what was in use at the peak."""
        return Profile(self._table, self.metadata, "peak_space")

    def of_stack(self, frames: Sequence[Frame]) -> Profile:
        """The rows that stand under exactly these frames (leaf first)."""
        return self._with(self._table.of_stack(frames), self.metadata)

    def without_driver(self) -> Profile:
        """The same without libcuda's and libcudart's own frames at the leaf.

        Self is then what a function asked the driver for, not the driver's own.
        """
        return self._with(without_driver(self._table), self.metadata)

    def asked(self) -> Profile:
        """The same with each stack cut down to the frame that asked for the memory.

        That is the innermost Python frame, whatever native code it went through; in a stack
        without one the innermost frame that is not the driver's. Self is then what a line
        or function asked for. The interpreter's own frames stay: see :meth:`shown`.
        """
        return self._with(asked(self._table), self.metadata)

    def shown(self, view: View = "default") -> Profile:
        """The same with the frames of one view; a profile has all of them.

        Args:
            view: ``default``: Python frames, each where the interpreter ran it, between
                native frames of programs and extensions; ``native``: all native frames,
                with the interpreter's own and without Python's; ``python``: only Python's;
                ``full``: everything. Markers (reasons in square brackets) are in each.

        Raises:
            UsageError: there is no such view.
        """
        _known_name(view, tuple(VIEWS))
        failures = tuple(shown_failure(record, view) for record in self.metadata.failures)
        metadata = replace(self.metadata, failures=failures)
        return self._with(shown(self._table, view), metadata)

    def without_addresses(self) -> Profile:
        """The same with stacks that read alike as one: same functions, files and lines.

        One function calls from several addresses, which people are not shown.
        """
        return self._with(without_addresses(self._table), self.metadata)

    def total(self, value: str | None = None, host: str | None = None) -> int:
        """A value added up over one host class, or over all that the processes allocated.

        Registered and imported memory is only in the sum when ``host`` names it.

        Raises:
            UsageError: value or host class does not exist.
        """
        column = self._column(value)
        return int(column[self._of_host(host)].sum())

    def totals(self, value: str | None = None) -> dict[str, int]:
        """A value added up by host class: own, pinned, registered, imported, managed."""
        return {host: self.total(value, host) for host in HOSTS}

    def top(
        self,
        n: int = 10,
        value: str | None = None,
        by: By = "function",
        host: str | None = None,
    ) -> list[TopRow]:
        """The largest holders with self and total, largest total first.

        Args:
            n: how many at most.
            value: one of ``Profile.values``, the default value if not given.
            by: ``function`` (name and file), ``line`` or ``stack``.
            host: one host class; without it all that the processes allocated.

        Raises:
            UsageError: value, host class or ``by`` does not exist.
        """
        _known_name(by, ("function", "line", "stack"))
        rows = np.flatnonzero(self._of_host(host))
        return top(self._table.taken(rows), self._column(value)[rows], n, by)

    def frames(self) -> tuple[Frame, ...]:
        """The different frames of all rows' stacks."""
        table = self._table
        used = np.unique(table.stacks.taken(np.unique(table.stack)).members)
        return tuple(table.frames[number] for number in used.tolist())

    def samples(self) -> Iterator[dict[str, Any]]:
        """Rows one by one: labels, values and ``stack`` (frames, leaf first)."""
        table = self._table
        texts = {name: table.text(name) for name in LABELS}
        for row in range(len(table)):
            sample: dict[str, Any] = {name: texts[name][row] for name in LABELS}
            sample.update({n: int(table.labels[n][row]) for n in KEYS if n not in LABELS})
            sample.update(zip(VALUES, table.values[row].tolist(), strict=True))
            frames = table.stacks.frames(int(table.stack[row]))
            sample["stack"] = tuple(table.frames[number] for number in frames)
            yield sample

    def write(self, path: str | PathLike[str], owner: tuple[int, int] | None = None) -> None:
        """Write a file whose suffix picks the format: ``.pb.gz``, ``.folded``, ``.json``.

        The file is whole or not there. ``owner`` is the (uid, gid) that it shall belong to.

        Raises:
            UsageError: the suffix stands for no format.
            OutputUnwritable: the folder is missing, full or read-only.
        """
        from igsdk.profile.store import write

        write(self, path, owner)

    def push(
        self, url: str, *, since: Profile | None = None, at: float | None = None, **settings: Any
    ) -> Pushed:
        """Push to a Pyroscope: what is in use, and what was allocated.

        A server adds up what it is sent, so a second push of the same run has to name the
        profile that was pushed before it; :class:`igsdk.Pyroscope` remembers by itself.

        Args:
            url: ``http://HOST:4040`` or ``https://…``.
            since: an earlier profile of the same run, whose allocations are counted already.
            at: the time to push it under, in seconds of the wall clock; else its own.
            settings: ``name``, ``labels``, ``tenant``, ``user``, ``password``, ``token``,
                ``headers``, ``timeout``, and what else :class:`igsdk.Pyroscope` takes. It is
                patient for 30 s, and asks whether the server shows what it took.

        Raises:
            UsageError: an address, name or label that can't be.
            TargetUnavailable: the server is not there, is silent or fails.
            PushRefused: it says no, or took the profile and shows nothing of it.
            AnswerInvalid: what answers is no Pyroscope.
            ExtensionMissing: urllib3 is not installed.
        """
        from igsdk.sinks.pyroscope import push_once

        settings = {"patience": 30.0, "verify": True, **settings}
        return push_once(self, url, since=since, at=at, **settings)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Profile:
        """Read a ``.pb.gz`` (ours or another tool's heap profile) or our ``.json``.

        Raises:
            ProfileUnreadable: missing, cut short, damaged or nothing that we know.
        """
        from igsdk.profile.store import read

        return read(path)

    def __len__(self) -> int:
        return len(self._table)

    def __eq__(self, other: object) -> bool:
        """Same rows, same metadata, same default; how they are stored does not matter."""
        if not isinstance(other, Profile):
            return NotImplemented
        return (
            self.default_value == other.default_value
            and self.metadata == other.metadata
            and self._content() == other._content()
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        value = self.default_value
        size = self.total()
        shown = format_bytes(size) if value.endswith("space") else plural(size, "block")
        stacks = plural(len(np.unique(self._table.stack)), "stack")
        return f"<Profile {value} {shown}, {plural(len(self), 'row')}, {stacks}>"

    def _content(self) -> tuple[Any, ...]:
        table = self._table.canonical()
        keys = tuple(column.tobytes() for column in table.keys)
        stacks = (table.stacks.offsets.tobytes(), table.stacks.members.tobytes())
        return (table.frames, table.strings, stacks, keys, table.values.tobytes())

    def _with(self, table: Table, metadata: Metadata) -> Profile:
        return Profile(table, metadata, self.default_value)

    def _column(self, value: str | None) -> Column:
        name = _known_value(self.default_value if value is None else value)
        column: Column = self._table.values[:, VALUES.index(name)]
        return column

    def _of_host(self, host: str | None) -> Column:
        """A mask of the rows of one host class, or of all that was allocated."""
        if host is not None:
            _known_name(host, HOSTS)
        wanted = ALLOCATED if host is None else (host,)
        matching = np.array([text in wanted for text in self._table.strings], dtype=bool)
        mask: Column = matching[self._table.labels["host"]]
        return mask

    def _calling(self, pattern: str) -> Column:
        """Per stack, whether a frame's name matches."""
        stacks = self._table.stacks
        hits = _matching([frame.name for frame in self._table.frames], pattern)
        found = np.zeros(len(stacks), dtype=bool)
        found[stacks.owners[hits[stacks.members]]] = True
        return found

    def _stacks_for(self, by: Sequence[str]) -> dict[str, Any]:
        """Frames, stacks and the rows' stacks as far as a grouping keeps them."""
        table = self._table
        if "stack" in by:
            return {}
        if "function" not in by:
            zero = np.zeros(len(table), dtype=np.int64)
            return {"frames": (marker("all"),), "stacks": Stacks.of([[0]]), "stack": zero}
        bare = {replace(f, line=0, address=0): 0 for f in table.frames}
        numbers = {frame: number for number, frame in enumerate(bare)}
        names = np.array(
            [numbers[replace(f, line=0, address=0)] for f in table.frames], dtype=np.int64
        )
        leaves = names[table.stacks.members[table.stacks.offsets[table.stack]]]
        each = Stacks.of([[number] for number in range(len(bare))])
        return {"frames": tuple(bare), "stacks": each, "stack": leaves}


def _known_value(name: str) -> str:
    return _known_name(name, VALUES)


def _known_name(name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise UsageError(f"A profile has no {name!r}.", f"Use one of {', '.join(names)}.")
    return name


def _matching(texts: Sequence[str], pattern: str) -> Column:
    return np.array([fnmatchcase(text, pattern) for text in texts], dtype=bool)


def _filtered(
    metadata: Metadata, pid: int | None, function: str | None, labels: dict[str, str]
) -> Metadata:
    """The metadata with the processes and failures that a filter leaves."""

    def process_stays(row: ProcessRow) -> bool:
        texts = {name: getattr(row, name) for name in _PROCESS_FILTERS if name in labels}
        same = all(fnmatchcase(text, labels[name]) for name, text in texts.items())
        return same and pid in (None, row.pid)

    def failure_stays(record: dict[str, Any]) -> bool:
        told = [name for name in labels if name not in ("host", "device")]
        same = all(fnmatchcase(str(record.get(name) or ""), labels[name]) for name in told)
        names = [frame.get("function", "") for frame in record.get("stack", ())]
        called = function is None or any(fnmatchcase(name, function) for name in names)
        return same and called and pid in (None, record.get("pid"))

    return replace(
        metadata,
        processes=tuple(row for row in metadata.processes if process_stays(row)),
        failures=tuple(record for record in metadata.failures if failure_stays(record)),
    )
