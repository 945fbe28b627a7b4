# SPDX-License-Identifier: Apache-2.0
"""The instances of a daemon for tests, with the weaknesses that a real one has.

It dies when somebody attaches to an instance that is not ready; it describes one once it is
ready, and never where it failed; with a broken one it lists none.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support import gadget_packets as gp
from tests.support.gadget_server import GadgetServer, Refusal, Session
from tests.support.opens import SOURCE, opens

from igsdk._proto import gadget_pb2 as pb


@dataclass
class Daemon:
    """What it keeps.

    Attributes:
        starting: seconds until a new instance is ready.
        failing: what new ones fail with; empty: they don't.
        lists: whether it can list.
        died: whether somebody asked too early.
    """

    starting: float = 0.0
    failing: str = ""
    lists: bool = True
    died: bool = False
    kept: dict[str, pb.GadgetInstance] = field(default_factory=dict)
    ready: dict[str, threading.Event] = field(default_factory=dict)

    def serve_on(self, server: GadgetServer) -> None:
        server.instances = {
            "CreateGadgetInstance": self.create,
            "ListGadgetInstances": self.list_all,
            "RemoveGadgetInstance": self.remove,
        }
        server.describe = self.describe
        server.run = self.run

    def create(self, request: bytes) -> pb.CreateGadgetInstanceResponse:
        made = pb.CreateGadgetInstanceRequest.FromString(request).gadgetInstance
        if made.gadgetConfig.version != 1:
            raise Refusal("expected version to be 1")
        made.id = f"{len(self.kept) + 1:032x}"
        made.name = made.name or "made-up"
        made.state.status = pb.StatusError if self.failing else pb.StatusRunning
        made.state.message = self.failing
        self.kept[made.id] = made
        self.ready[made.id] = threading.Event()
        if not self.failing:
            threading.Timer(self.starting, self.ready[made.id].set).start()
        return pb.CreateGadgetInstanceResponse(gadgetInstance=made)

    def list_all(self, request: bytes) -> pb.ListGadgetInstanceResponse:
        if not self.lists:
            raise Refusal("gadget not found")
        return pb.ListGadgetInstanceResponse(gadgetInstances=list(self.kept.values()))

    def remove(self, request: bytes) -> pb.StatusResponse:
        if self.kept.pop(pb.GadgetInstanceId.FromString(request).id, None) is None:
            return pb.StatusResponse(result=1, message="gadget instance not found")
        return pb.StatusResponse()

    def describe(self, request: pb.GetGadgetInfoRequest) -> pb.GadgetInfo:
        if not request.flags & 1:
            return pb.GadgetInfo(imageName=request.imageName)
        for one in self.kept.values():
            if request.imageName == one.name or one.id.startswith(request.imageName):
                self.ready[one.id].wait(20)
                return self._info(one)
        raise Refusal(f"gadget {request.imageName} not found")

    def run(self, session: Session) -> Iterator[Any]:
        """Attaching; the client's messages are not heard from here on."""
        number = session.request.attachRequest.id
        if number not in self.kept:
            raise Refusal(f"gadget {number} not found")
        if not self.ready[number].is_set():
            self.died = True
            raise Refusal("nil pointer dereference")
        info = self._info(self.kept[number])
        yield pb.GadgetEvent(type=4, payload=info.SerializeToString())
        for seq in itertools.count(1):
            yield gp.packet(opens(seq), seq)
            time.sleep(0.01)
            if number not in self.kept:
                return

    def _info(self, one: pb.GadgetInstance) -> pb.GadgetInfo:
        return pb.GadgetInfo(
            id=one.id,
            name=one.name,
            imageName=one.gadgetConfig.imageName,
            dataSources=[SOURCE],
        )
