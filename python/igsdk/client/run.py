# SPDX-License-Identifier: Apache-2.0
"""A gadget that runs in a daemon, from its start to its stop."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from igsdk._errors import AnswerInvalid, IgsdkError, TargetUnavailable, UsageError
from igsdk._proto import gadget_pb2 as pb
from igsdk.client.inbox import Inbox
from igsdk.client.reading import LEAVE_TIMEOUT, STOP_TIMEOUT, Reading, from_now, left_until
from igsdk.client.rows import RowReader
from igsdk.client.stream import Stream
from igsdk.client.transport import RUN_GADGET, RpcError, explain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from igsdk.client.columns import ColumnReader, Columns
    from igsdk.client.gadget import Gadget
    from igsdk.client.rows import Row
    from igsdk.client.schema import DataSource
    from igsdk.client.stream import Journal, LogLine, Packet
    from igsdk.client.transport import Channel


class GadgetRun(Reading):
    """A run of any gadget, to be used as a context manager; it starts when entered.

    Rows wait in memory until they are taken, up to 64 MiB of packets. Who takes them too
    slowly loses some in the daemon, and `losses` says how many packets.
    """

    def __init__(
        self, channel: Channel, request: pb.GadgetControlRequest, start_timeout: float
    ) -> None:
        super().__init__()
        self._channel = channel
        self._request = request
        self._start_timeout = start_timeout
        self._attaches = request.HasField("attachRequest")
        self._stream = Stream(request.runRequest.imageName)
        self._inbox = Inbox()
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        self._started = threading.Event()
        self._call: Any = None
        self._stopped = self._cut = False
        self._error: IgsdkError | None = None
        self._unreadable = {"unreadable_packets": 0, "unreadable_rows": 0}
        self._row_readers: dict[str, RowReader] = {}
        self._column_readers: dict[str, ColumnReader] = {}

    def deliver_to(self, inbox: Inbox, journal: Journal, node: str) -> None:
        """Before the start: puts packets and log lines where their owner reads them.

        Args:
            node: whose they are.
        """
        self._inbox = inbox
        self._stream.journal, self._stream.node = journal, node

    def __enter__(self) -> GadgetRun:
        if self._call is not None:
            raise UsageError("A run starts only once.", "Make another one.")
        self._send(self._request)
        self._call = self._channel.stream(RUN_GADGET, iter(self._requests.get, None))
        threading.Thread(target=self._read, name="igsdk run", daemon=True).start()
        try:
            self._wait_for_description()
        except BaseException:
            self._leave()
            raise
        return self

    @property
    def error(self) -> IgsdkError | None:
        """What ended the stream before its time; None while it goes on or ended well."""
        return self._error

    @property
    def ended(self) -> bool:
        """Whether nothing comes any more, and all that came was taken."""
        return self._inbox.ended

    @property
    def logs(self) -> list[LogLine]:
        """What the daemon logged for this run: the latest 1,000 lines."""
        return self._stream.journal.lines()

    def losses(self) -> dict[str, int]:
        """What was lost or could not be read, by cause; all zero on a good day.

        packets: dropped by the daemon, because we or the network were slow. repeated: came
        a second time, and were given. unreadable_packets, unreadable_rows and
        unreadable_events: did not fit their description. unknown_events: of a type that
        this version does not know. unread: found no room after the stop. log_lines: older
        than those in `logs`.
        """
        lost = {**self._stream.losses, "unread": self._inbox.dropped}
        return {cause: count + self._unreadable.get(cause, 0) for cause, count in lost.items()}

    def batches(self, timeout: float | None = None) -> Iterator[Columns]:
        """Packets as columns, as they come; empty ones too. Ends and raises as `rows`."""
        while (packet := self._inbox.get(timeout)) is not None:
            yield self.read_columns(packet.source, [packet.payload])
        self._complain()

    def collect(self, seconds: float | None = None) -> dict[str, Columns]:
        """All that comes in so many seconds, or until the run ends.

        Where the stream breaks in between, what came before is returned, and `error` says
        why; with nothing to return it is raised.

        Returns:
            The columns of each data source by name, without rows for those that gave none.
        """
        until = from_now(seconds)
        payloads: dict[str, list[bytes]] = {name: [] for name in self.gadget.sources}
        while (left := left_until(until)) != 0 and (packet := self._inbox.get(left)) is not None:
            payloads[packet.source.name].append(packet.payload)
        if not any(payloads.values()):
            self._complain()
        sources = self.gadget.sources
        return {name: self.read_columns(sources[name], packed) for name, packed in payloads.items()}

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Ends the gadget and waits for the daemon to be done; what came stays to be taken.

        An instance that this is attached to runs on.

        Args:
            timeout: how many seconds to wait; then the stream is cut.
        """
        if self._stopped or self._call is None:
            return
        self._stopped = True
        if self._attaches:  # nobody listens there to what we say
            self._leave()
            return
        self._inbox.hurry()
        self._send(pb.GadgetControlRequest(stopRequest=pb.GadgetStopRequest()))
        try:
            self._inbox.wait_closed(timeout)
        finally:
            self._leave()

    def _send(self, request: pb.GadgetControlRequest) -> None:
        self._requests.put(request.SerializeToString())

    def _leave(self) -> None:
        """Cuts the stream if it goes on still, and lets gRPC's threads and ours end."""
        self._cut = True
        self._inbox.hurry()
        self._call.cancel()
        self._requests.put(None)
        self._inbox.wait_closed(LEAVE_TIMEOUT)

    def _read(self) -> None:
        """The reading thread: from the first event to the stream's end."""
        try:
            for data in self._call:
                packet = self._stream.take(data)
                if packet is not None:
                    self._inbox.put(packet)
                elif self._stream.gadget is not None:
                    self._started.set()
        except RpcError as error:
            if not self._cut:
                self._error = explain(error, self._channel.target)
        except IgsdkError as error:
            self._error = error
        except Exception as error:
            self._error = AnswerInvalid(
                f"What {self._channel.target} sends is beyond igsdk: {error!r}.", "Report it."
            )
        finally:
            self._call.cancel()
            self._inbox.close()
            self._started.set()
            self._requests.put(None)

    def _wait_for_description(self) -> None:
        if not self._started.wait(self._start_timeout):
            raise TargetUnavailable(
                f"{self._channel.target} did not start the gadget within "
                f"{self._start_timeout:g} s.",
                "Allow more time: the daemon may have an image to fetch first.",
            )
        if self._stream.gadget is None:
            raise self._error or AnswerInvalid(
                f"{self._channel.target} ended the run without saying what it gives.",
                "Look into the daemon's log.",
            )

    def _complain(self) -> None:
        if self._error is not None and self._inbox.ended:
            raise self._error

    def _described(self) -> Gadget | None:
        return self._stream.gadget

    def _more_rows(self, timeout: float | None) -> Iterator[Row] | None:
        packet = self._inbox.get(timeout)
        return None if packet is None else iter(self.read_rows(packet))

    def read_rows(self, packet: Packet) -> list[Row]:
        if packet.source.name not in self._row_readers:
            self._row_readers[packet.source.name] = RowReader(packet.source)
        read = self._row_readers[packet.source.name].packet(packet.payload)
        if read is None:
            self._unreadable["unreadable_packets"] += 1
            return []
        rows, unreadable = read
        self._unreadable["unreadable_rows"] += unreadable
        return rows

    def read_columns(self, source: DataSource, payloads: list[bytes]) -> Columns:
        from igsdk.client.columns import ColumnReader

        if source.name not in self._column_readers:
            self._column_readers[source.name] = ColumnReader(source)
        columns, broken = self._column_readers[source.name].read(payloads)
        self._unreadable["unreadable_packets"] += broken
        self._unreadable["unreadable_rows"] += columns.unreadable
        return columns


def config_for(
    image: str, values: Mapping[str, str], log_level: int = 0, timeout: float | None = None
) -> pb.GadgetRunRequest:
    """What to run, in the service's words.

    Args:
        timeout: seconds after which the daemon ends it by itself.
    """
    return pb.GadgetRunRequest(
        imageName=image,
        paramValues=dict(values),
        version=1,
        logLevel=log_level,
        timeout=round((timeout or 0) * 1e9),
    )
