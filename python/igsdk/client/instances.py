# SPDX-License-Identifier: Apache-2.0
"""Gadgets that run in a daemon without a client: made, listed, looked into, removed.

A daemon dies when somebody attaches to an instance that is not ready yet. So nobody here
attaches before the daemon has described the instance, which it does once it is ready; it
never does for one that failed early, so that question has a deadline.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from igsdk._errors import AnswerInvalid, RunRefused, TargetUnavailable, UsageError
from igsdk._proto import gadget_pb2 as pb
from igsdk.client.gadget import Gadget, read_gadget
from igsdk.client.transport import GADGET_INFO, Channel

if TYPE_CHECKING:
    from collections.abc import Mapping

_CREATE = "/api.GadgetInstanceManager/CreateGadgetInstance"
_LIST = "/api.GadgetInstanceManager/ListGadgetInstances"
_REMOVE = "/api.GadgetInstanceManager/RemoveGadgetInstance"
_USE_INSTANCE = 1
_ID = re.compile("[0-9a-f]{32}")
_NAME = re.compile("[a-z0-9_-]{1,32}")
_STATES = {pb.StatusRunning: "running", pb.StatusError: "error"}


@dataclass(frozen=True)
class Instance:
    """A gadget that runs without a client.

    Attributes:
        id: 32 hex digits.
        name: given by who made it, or by the daemon.
        image: the gadget's image.
        params: values by full name.
        tags: as given.
        created: seconds since 1970.
        nodes: where it runs; empty: everywhere.
        state: running, error or unknown.
        message: why, for an error.
    """

    id: str
    name: str
    image: str
    params: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    created: int = 0
    nodes: tuple[str, ...] = ()
    state: str = "unknown"
    message: str = ""


def read_instance(told: pb.GadgetInstance) -> Instance:
    """Makes an instance of its description."""
    return Instance(
        id=told.id,
        name=told.name,
        image=told.gadgetConfig.imageName,
        params=dict(told.gadgetConfig.paramValues),
        tags=tuple(told.tags),
        created=told.timeCreated,
        nodes=tuple(told.nodes),
        state=_STATES.get(told.state.status, "unknown"),
        message=told.state.message,
    )


def create(
    channel: Channel, config: pb.GadgetRunRequest, name: str, tags: tuple[str, ...], timeout: float
) -> Instance:
    """Makes an instance; it may take a while to run.

    Raises:
        UsageError: a name that no daemon takes.
        IgsdkError: as `Channel.ask`.
    """
    if name and not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for an instance.", "Use 1 to 32 of a-z, 0-9, - and _."
        )
    # The daemon keeps our time, and has none of its own.
    wanted = pb.GadgetInstance(
        gadgetConfig=config, name=name, tags=tags, timeCreated=int(time.time())
    )
    request = pb.CreateGadgetInstanceRequest(gadgetInstance=wanted)
    answer = channel.ask(_CREATE, request, pb.CreateGadgetInstanceResponse, timeout)
    if answer.result != 0:
        raise RunRefused(
            f"{channel.target} did not make the instance.", "Look into the daemon's log."
        )
    return read_instance(answer.gadgetInstance)


def list_all(channel: Channel, timeout: float) -> list[Instance]:
    """All instances; raises as `Channel.ask`."""
    answer = channel.ask(
        _LIST, pb.ListGadgetInstancesRequest(), pb.ListGadgetInstanceResponse, timeout
    )
    return list(map(read_instance, answer.gadgetInstances))


def remove(channel: Channel, which: str, timeout: float) -> None:
    """Removes one, by id or name; raises as `find`, and RunRefused where it fails."""
    # With one broken instance a daemon lists none; by its id it can be removed still.
    number = which if _ID.fullmatch(which) else find(channel, which, timeout).id
    answer = channel.ask(_REMOVE, pb.GadgetInstanceId(id=number), pb.StatusResponse, timeout)
    if answer.result != 0:
        raise RunRefused(
            f"{channel.target} did not remove {which}: {answer.message}.",
            "List the daemon's instances, and name one of those.",
        )


def find(channel: Channel, which: str, timeout: float) -> Instance:
    """The instance of this id or name.

    Raises:
        UsageError: there is none.
    """
    known = list_all(channel, timeout)
    for one in known:
        if which in (one.id, one.name):
            return one
    names = ", ".join(one.name for one in known) or "none"
    raise UsageError(f"There is no instance {which!r}.", f"There are: {names}.")


def wait_ready(channel: Channel, which: str, timeout: float) -> Gadget:
    """Waits until an instance can be attached to; returns what it says of itself.

    Raises:
        RunRefused: it failed; or there is none of this id or name.
        TargetUnavailable: it is not ready in so many seconds.
        AnswerInvalid: the description contradicts itself.
    """
    request = pb.GetGadgetInfoRequest(imageName=which, version=1, flags=_USE_INSTANCE)
    try:
        answer = channel.ask(GADGET_INFO, request, pb.GetGadgetInfoResponse, timeout)
    except TargetUnavailable:
        _raise_its_error(channel, which, timeout)
        raise
    if not _ID.fullmatch(answer.gadgetInfo.id):
        raise AnswerInvalid(
            f"{channel.target} describes {which} as if it were no instance.",
            "Report it to whoever made the daemon; another version may be right.",
        )
    return read_gadget(answer.gadgetInfo)


def _raise_its_error(channel: Channel, which: str, timeout: float) -> None:
    one = find(channel, which, timeout)
    if one.state == "error":
        raise RunRefused(
            f"The instance {one.name} failed: {one.message}.", "Remove it, and make another one."
        )
