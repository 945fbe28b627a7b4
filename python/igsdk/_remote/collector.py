# SPDX-License-Identifier: Apache-2.0
"""Takes columns in from any number of runtimes, and knows all that they said."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk._errors import AnswerInvalid
from igsdk._remote.books import Books
from igsdk._remote.feeds import Feeds
from igsdk._remote.highest import Highest
from igsdk._remote.occurrences import Moment, Occurrences
from igsdk.client import cuda_rows as rows
from igsdk.client.cuda_events import event_of
from igsdk.client.cuda_processes import caller_info, placed, process_info
from igsdk.client.cuda_stacks import agent_stacks, gadget_stack, has_texts, is_named, untold

if TYPE_CHECKING:
    from collections.abc import Callable

    from igsdk._events import Event, ProcessInfo, Stack
    from igsdk._remote.occurrences import Came
    from igsdk._remote.selection import RemoteSelection
    from igsdk.client.columns import Array, Columns
    from igsdk.client.member import PodRef

    PodOf = Callable[[str, str], PodRef | None]

_MOST_UNDECIDED = 4096  # events of processes that nobody has told of yet


class Collector:
    """Everything that came so far. One thread at a time may be in here.

    Args:
        selection: which processes are meant.
        wants: which events wait to be taken: all, failures or none.
        pod_of: ``Where.pod_of``, if there is somebody to ask.
        alone: whether there is one daemon only, whose target is no node's name.

    Attributes:
        books: by (boot, epoch).
        feeds: which of them count.
        stacks: by id.
        reports: the newest by node.
        came: packets by (node, data source).
        highest: the moment at which most was in use.
        events: the events.
    """

    def __init__(
        self,
        selection: RemoteSelection,
        wants: str = "failures",
        pod_of: PodOf | None = None,
        alone: bool = False,
    ) -> None:
        self._alone = alone
        self.selection = selection
        self.books: dict[tuple[int, int], Books] = {}
        self.feeds = Feeds()
        self.stacks: dict[int, Stack] = {}
        self.reports: dict[str, dict[str, Any]] = {}
        self.came: Counter[tuple[str, str]] = Counter()
        self.highest = Highest(self.counted)
        self.events = Occurrences(wants, self._moment)
        self._pod_of = pod_of
        # Those of runs that have told of no process yet too: they are said once only.
        self._losses: dict[tuple[int, int], dict[str, int]] = {}
        self._undecided: list[tuple[Came, str]] = []
        self._takers = {
            rows.STACKS: self._take_stacks,
            rows.PROCESSES: self._take_processes,
            rows.HEAP: self._take_heap,
            rows.EVENTS: self._take_events,
            rows.LOSSES: self._take_losses,
            rows.REPORT: self._take_report,
        }

    def take(self, columns: Columns, node: str = "") -> None:
        """Takes the rows of one data source in; data sources of others are not for us.

        Raises:
            AnswerInvalid: a row says what cannot be.
        """
        taker = self._takers.get(columns.source.name)
        if taker is None:
            return
        taker(columns, node)
        self.came[node, columns.source.name] += 1
        if columns.source.name == rows.PROCESSES:
            self.find_homes()
            self.decide()

    def counted(self) -> list[Books]:
        """The books that count: of each boot those of one daemon."""
        return [one for one in self.books.values() if self.feeds.counts(one.boot, one.epoch)]

    def process(self, boot: int, instance: int) -> ProcessInfo | None:
        """A process as the latest epoch of its machine knows it."""
        of_boot = [one for one in self.books.values() if one.boot == boot]
        found = [one for one in of_boot if instance in one.infos]
        return self._on_node(found[-1].infos[instance], found[-1].node) if found else None

    def _books(self, columns: Columns, node: str, boot: int, epoch: int) -> Books:
        key = (boot, epoch)
        if key not in self.books:
            ours = _is_ours(columns)
            self.books[key] = Books(
                boot,
                epoch,
                everything=not self.selection,
                ours=ours,
                node=node,
                losses=self._losses.setdefault(key, {}),
            )
        books = self.books[key]
        before = self.counted()
        if self.feeds.see(node, boot, epoch, books.ours):
            after = self.counted()
            if any(one not in after for one in before):
                self.highest.begin_anew()
        return books

    def _node_name(self, node: str) -> str:
        """As the agent there says; else the target's name, where there are several."""
        return str(self.reports.get(node, {}).get("node") or ("" if self._alone else node))

    def _on_node(self, info: ProcessInfo, node: str) -> ProcessInfo:
        return info if info.node else replace(info, node=self._node_name(node) or None)

    def infos(self, books: Books) -> list[ProcessInfo]:
        """Who the wanted processes of some books are."""
        return [self._on_node(info, books.node) for info in books.wanted_infos()]

    def _moment(self) -> Moment:
        return Moment({key: one.held() for key, one in self.books.items()})

    def _take_stacks(self, columns: Columns, _: str) -> None:
        self.stacks.update((one.id, one) for one in agent_stacks(columns, self.stacks))

    def _take_processes(self, columns: Columns, node: str) -> None:
        batch = rows.process_rows(columns)
        for boot, epoch, some in rows.runs(columns):
            books = self._books(columns, node, boot, epoch)
            part = rows.taken(batch, some)
            due = books.keep_processes(part)
            ended = np.flatnonzero(part["ended"] > 0).tolist()
            for row in sorted({*due, *ended}):
                self._meet(books, columns, int(some[row]))

    def _meet(self, books: Books, columns: Columns, row: int) -> None:
        info = process_info(columns, row)
        known = books.infos.get(info.instance)
        info = _later(known, info) if known else info
        asked = rows.word(columns, "container_id", row), rows.word(columns, "pod_uid", row)
        if self._pod_of and not info.pod and any(asked):
            books.homeless[info.instance] = asked
        if "start_ns" in columns:
            started = rows.number(columns, "started_raw", row)
            books.wall_minus_boot = started - info.start_ns
        if name := rows.word(columns, "device_name", row):
            books.devices[info.instance, rows.number(columns, "device", row)] = name
        self._know(books, info)

    def _know(self, books: Books, info: ProcessInfo) -> None:
        if books.know(info, self.selection.has(self._on_node(info, books.node))):
            self.highest.shifted()

    def find_homes(self) -> None:
        """Asks the cluster for the pods of processes that it did not know at first."""
        if self._pod_of is None:
            return
        for books in self.books.values():
            for instance, asked in list(books.homeless.items()):
                pod = self._pod_of(*asked)
                if pod is not None:
                    self._know(books, placed(books.infos[instance], pod))
                if pod is not None and pod.container:
                    del books.homeless[instance]

    def _take_heap(self, columns: Columns, node: str) -> None:
        batch = rows.heap_rows(columns)
        for boot, epoch, some in rows.runs(columns):
            books = self._books(columns, node, boot, epoch)
            part = rows.taken(batch, some)
            books.keep(part, self.highest.before_fall)
            self.events.moved()
            self.highest.rise(int(part["time"].max()))
            if has_texts(columns):
                self._make_stacks(books, columns, some)
            else:
                slots = books.heap.find(part["row"])
                books.heap.write("stack", slots[slots >= 0], part["key"][slots >= 0])

    def _make_stacks(self, books: Books, columns: Columns, some: Array) -> None:
        """Gives accounts the id of their stack, made of Inspektor Gadget's texts."""
        heap = books.heap
        slots = heap.find(columns["row"][some])
        some, slots = some[slots >= 0], slots[slots >= 0]
        wanted = untold(columns, some, heap.column("stack")[slots], heap.column("named")[slots])
        for place in np.flatnonzero(wanted).tolist():
            row = int(some[place])
            stack = gadget_stack(columns, row)
            if stack is not None:
                self.stacks.setdefault(stack.id, stack)
                slot = slots[place : place + 1]
                heap.write("stack", slot, np.array([stack.id], np.uint64))
                heap.write("named", slot, int(is_named(columns, row)))

    def _take_events(self, columns: Columns, node: str) -> None:
        for row in range(columns.rows):
            process = caller_info(columns, row, self._node_name(node))
            event = event_of(columns, row, process, None)
            if event is None:
                continue
            came = event, self._stack_number(columns, row)
            if self.selection and self.process(event.boot, process.instance) is None:
                if len(self._undecided) < _MOST_UNDECIDED:
                    self._undecided.append((came, node))
                else:
                    self.events.unread += 1
                continue
            self._keep_event(came, node)

    def _stack_number(self, columns: Columns, row: int) -> int:
        if not has_texts(columns):
            return rows.number(columns, "stack", row)
        stack = gadget_stack(columns, row)
        return self.stacks.setdefault(stack.id, stack).id if stack else 0

    def _keep_event(self, came: Came, node: str) -> None:
        """If its process is meant, and its feed is the one of its boot that counts."""
        event = came[0]
        chain = self.feeds.chosen().get(event.boot)
        process = self.process(event.boot, event.process.instance) or event.process
        if (chain is None or node in chain.nodes) and self.selection.has(process):
            self.events.take(came)

    def decide(self) -> None:
        """Takes or leaves events whose process was not known when they came; to be called at
        the end too, when nobody will tell of it any more."""
        undecided, self._undecided = self._undecided, []
        for came, node in undecided:
            self._keep_event(came, node)

    def told(self, came: Came) -> Event:
        """An event with its stack and its process, as they are known by now."""
        event, stack = came
        process = self.process(event.boot, event.process.instance) or event.process
        return replace(event, process=process, stack=self.stacks.get(stack))

    def wall_minus_boot(self, boot: int) -> int | None:
        """Of one machine: as its agent says, or as Inspektor Gadget's two clocks differ."""
        chain = self.feeds.chosen().get(boot)
        for node in chain.nodes if chain else ():
            if "wall_minus_boot_ns" in self.reports.get(node, {}):
                return int(self.reports[node]["wall_minus_boot_ns"])
        known = [one.wall_minus_boot for one in self.books.values() if one.boot == boot]
        return next((offset for offset in known if offset is not None), None)

    def failures(self) -> list[Event]:
        """The latest failures."""
        return [self.told(came) for came in self.events.failures]

    def _take_losses(self, columns: Columns, _: str) -> None:
        for key, counts in rows.loss_counts(columns).items():
            known = self._losses.setdefault(key, {})
            for cause, count in counts.items():
                known[cause] = max(known.get(cause, 0), count)

    def _take_report(self, columns: Columns, node: str) -> None:
        for row in range(columns.rows):
            try:
                said = json.loads(rows.word(columns, "json", row) or "{}")
            except ValueError as error:
                raise AnswerInvalid(
                    "The daemon's report of its run is no JSON.",
                    "Use igsdk of the same version on both sides.",
                ) from error
            if isinstance(said, dict):
                before = self._node_name(node)
                self.reports[node] = said
                if self._node_name(node) != before:
                    self._choose_again(node)

    def _choose_again(self, node: str) -> None:
        """Its processes run on a node that has another name than was known."""
        for books in self.books.values():
            for info in list(books.infos.values()) if books.node == node else ():
                self._know(books, info)


def _is_ours(columns: Columns) -> bool:
    """Whether the agent sends these: Inspektor Gadget knows no command lines."""
    if columns.source.name == rows.HEAP:
        return not has_texts(columns)
    return "cmdline" in columns


def _later(old: ProcessInfo, new: ProcessInfo) -> ProcessInfo:
    """The newer one, with what the older one knew and this one does not any more."""
    named = old.pod and not new.pod  # the cluster gave its container a name; this has its id
    return replace(
        new,
        cmdline=new.cmdline or old.cmdline,
        container=(old.container if named else new.container) or old.container,
        namespace=new.namespace or old.namespace,
        pod=new.pod or old.pod,
        node=new.node or old.node,
        ended_ns=old.ended_ns if old.ended_ns is not None else new.ended_ns,
        peak=max(old.peak, new.peak),
        unknown_frees=max(old.unknown_frees, new.unknown_frees),
    )
