# SPDX-License-Identifier: Apache-2.0
"""Instances: runs without a client, whose last events wait for whoever attaches.

The state needs no keeping, since whoever attaches is sent all of it. They live as long as
the agent.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from igsdk._errors import RunRefused
from igsdk._proto import gadget_pb2 as pb
from igsdk.agent import wanted as wants

if TYPE_CHECKING:
    from igsdk.agent.hub import Hub, Subscriber
    from igsdk.agent.wanted import Wanted

#: events that each one keeps, a packet each
KEPT = 1024
MOST = 64
_LARGEST = 1 << 16
_ID = re.compile("[0-9a-f]{32}")
_NAME = re.compile("[a-z0-9_-]{1,32}")
_WHY = "Use 1 to 32 of a-z, 0-9, - and _"


@dataclass
class Instance:
    """One instance: as it was asked for, and what it keeps."""

    told: pb.GadgetInstance
    wanted: Wanted
    kept: Subscriber
    attached: set[Subscriber]

    def state(self) -> pb.GadgetInstance:
        """As the service tells of it."""
        told = pb.GadgetInstance()
        told.CopyFrom(self.told)
        told.state.status = pb.StatusRunning
        return told


class Instances:
    """All instances of an agent."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._lock = threading.Lock()
        self._by_id: dict[str, Instance] = {}

    def create(self, asked: pb.GadgetInstance) -> pb.GadgetInstance:
        """Makes one.

        Raises:
            RunRefused: the image is not ours, a parameter, id or name makes no sense or is
                taken, or there are too many.
        """
        if asked.ByteSize() > _LARGEST:
            raise RunRefused("the description of the instance is too long.", "Shorten it")
        config = asked.gadgetConfig
        wants.check_image(config.imageName)
        wanted = wants.read(config.paramValues)
        told = pb.GadgetInstance()
        told.CopyFrom(asked)
        told.id = asked.id or secrets.token_hex(16)
        told.name = asked.name or f"{wants.IMAGE}-{told.id[:6]}"
        told.timeCreated = asked.timeCreated or int(time.time())
        told.state.Clear()
        with self._lock:
            self._check(told)
            kept = self._hub.subscribe(wanted, keep_last=KEPT)
            self._by_id[told.id] = Instance(told, wanted, kept, set())
        return told

    def _check(self, told: pb.GadgetInstance) -> None:
        if not _ID.fullmatch(told.id):
            raise RunRefused(f"{told.id!r} is no id of an instance.", "Use 32 of 0-9 and a-f")
        if not _NAME.fullmatch(told.name):
            raise RunRefused(f"{told.name!r} is no name of an instance.", _WHY)
        if told.id in self._by_id or any(one.told.name == told.name for one in self.all()):
            raise RunRefused(f"an instance {told.name!r} is there already.", "Use another name")
        if len(self._by_id) >= MOST:
            raise RunRefused(f"there are {MOST} instances already.", "Remove some of them")

    def all(self) -> list[Instance]:
        """All of them."""
        return list(self._by_id.values())

    def list(self) -> list[pb.GadgetInstance]:
        """As the service tells of them."""
        return [one.state() for one in self.all()]

    def find(self, which: str) -> Instance:
        """The one of this id, name or beginning of an id.

        Raises:
            RunRefused: there is none, in the words that clients know.
        """
        known = self.all()
        for one in known:
            if which in (one.told.id, one.told.name):
                return one
        begun = [one for one in known if which and one.told.id.startswith(which)]
        if len(begun) == 1:
            return begun[0]
        raise RunRefused(f"gadget {which} not found", "")

    def by_id(self, number: str) -> Instance:
        """The one of exactly this id; raises like `find`."""
        one = self._by_id.get(number)
        if one is None:
            raise RunRefused(f"gadget {number} not found", "")
        return one

    def remove(self, number: str) -> None:
        """Ends one, and with it the streams of those who are attached; raises like `find`."""
        with self._lock:
            one = self.by_id(number)
            del self._by_id[number]
        self._hub.unsubscribe(one.kept)
        for subscriber in list(one.attached):
            subscriber.stop()
