# SPDX-License-Identifier: Apache-2.0
"""A daemon of the gadget service: Inspektor Gadget's own, or one that speaks as it does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from igsdk._errors import UsageError
from igsdk._proto import gadget_pb2 as pb
from igsdk.client import instances
from igsdk.client.address import parse
from igsdk.client.gadget import Gadget, read_gadget
from igsdk.client.knock import knock
from igsdk.client.parameters import needed_to_describe, settle
from igsdk.client.run import GadgetRun, config_for
from igsdk.client.stream import LEVELS
from igsdk.client.transport import GADGET_INFO, INFO, Channel
from igsdk.client.values import as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias, TypeVar

    from igsdk.client.instances import Instance
    from igsdk.client.tls import TLS

    Self = TypeVar("Self", bound="RemoteRuntime")
    #: values, or what makes them of what the daemon says of the gadget
    Params: TypeAlias = Mapping[str, Any] | Callable[[Gadget], Mapping[str, Any]] | None

_PROTOCOL = 1


class RemoteRuntime:
    """One daemon, to be used as a context manager.

    Args:
        target: ``unix:///PATH``, ``tcp://HOST:PORT`` or
            ``tcp+tls://HOST:PORT?ca=FILE&cert=FILE&key=FILE&server_name=NAME``.
        connect_timeout: seconds to wait for the connection.
        call_timeout: seconds to wait for an answer, and for a run to start: the daemon may
            have an image to fetch.
        tls: for ``tcp:``, how to know each other; True: by this system's authorities.
        name: what messages call it, instead of the target.

    Attributes:
        target: as given.
        handshake: what the daemon showed of itself over TLS; None without it.
        version: the daemon's own version.
        protocol: the version of the service that it says it speaks; "1.0" is the only one known.
        experimental: whether the daemon has experimental features on.

    Raises:
        UsageError: the target or a timeout makes no sense.
        TargetUnavailable: it cannot be reached.
        PermissionMissing: its socket is not for us.
        AnswerInvalid: what answers is no gadget daemon.
        ExtensionMissing: grpcio is not installed.
    """

    def __init__(
        self,
        target: str,
        connect_timeout: float = 5.0,
        call_timeout: float = 120.0,
        tls: TLS | bool | None = None,
        name: str = "",
    ) -> None:
        if connect_timeout <= 0 or call_timeout <= 0:
            raise UsageError("A timeout has to be positive.", "Give seconds, such as 5.")
        self.target = target
        self._call_timeout = call_timeout
        address = parse(target, tls)
        self.handshake = knock(address, connect_timeout)
        self._channel = Channel(replace(address, shown=name) if name else address)
        try:
            self._channel.wait_ready(connect_timeout)
            info = self._channel.ask(INFO, pb.InfoRequest(), pb.InfoResponse, connect_timeout)
        except BaseException:
            self._channel.close()
            raise
        self.version = info.serverVersion
        self.protocol = info.version
        self.experimental = info.experimental

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, and with it runs that still go on."""
        self._channel.close()

    def describe(self, image: str, params: Mapping[str, Any] | None = None) -> Gadget:
        """What a gadget takes and gives, without running it.

        Args:
            image: name of the gadget's image, as in ``trace_open:latest``.
            params: values, of which only those count that say how to get the image: pull,
                annotate, validate-metadata.

        Raises:
            RunRefused: the daemon has no such image, or does not take it.
            TargetUnavailable, AnswerInvalid: as for the connection.
        """
        request = pb.GetGadgetInfoRequest(
            imageName=as_text(image, ""),
            paramValues=needed_to_describe(params or {}),
            version=_PROTOCOL,
        )
        answer = self._channel.ask(
            GADGET_INFO, request, pb.GetGadgetInfoResponse, self._call_timeout
        )
        return read_gadget(answer.gadgetInfo, image)

    def run(
        self,
        image: str,
        params: Params = None,
        *,
        timeout: float | None = None,
        log_level: str = "info",
    ) -> GadgetRun:
        """Makes a run, to be used as a context manager; it starts when it is entered.

        The gadget is described first, and the parameters are checked against that.

        Args:
            image: name of the gadget's image.
            params: values by full name, short name or alias: text, or Python's own (bool,
                numbers, seconds for a duration, lists), or what makes them of the gadget's
                description. What is not given has its default.
            timeout: seconds after which the daemon ends the run by itself.
            log_level: the least of what to log: error, warning, info, debug, trace; none.

        Raises:
            UsageError: a parameter that is unknown, has two meanings or does not fit.
            RunRefused, TargetUnavailable, AnswerInvalid: as `describe`.
        """
        level = _level(log_level)
        if timeout is not None and timeout <= 0:
            raise UsageError("A timeout has to be positive.", "Give seconds, or None.")
        config = config_for(image, self._settle(image, params), level, timeout)
        request = pb.GadgetControlRequest(runRequest=config)
        return GadgetRun(self._channel, request, self._call_timeout)

    def create(
        self,
        image: str,
        params: Mapping[str, Any] | None = None,
        *,
        name: str = "",
        tags: Sequence[str] = (),
    ) -> Instance:
        """Makes an instance: a gadget that runs without us, until it is removed.

        Args:
            image, params: as for `run`.
            name: 1 to 32 of a-z, 0-9, - and _; the daemon makes one up without it.
            tags: for people.

        Raises:
            UsageError, RunRefused, TargetUnavailable, AnswerInvalid: as `run`.
        """
        config = config_for(image, self._settle(image, params))
        words = tuple(as_text(tag, "") for tag in tags)
        return instances.create(self._channel, config, name, words, self._call_timeout)

    def instances(self) -> list[Instance]:
        """The instances of this daemon.

        Raises:
            RunRefused: one of them is broken, and so the daemon lists none.
        """
        return instances.list_all(self._channel, self._call_timeout)

    def attach(self, instance: Instance | str) -> GadgetRun:
        """Makes a run of an instance's rows, to be used as `run`'s.

        It waits until the instance is ready: daemons die of being asked too early. At first
        come the packets that the daemon kept, at most 1,024, then new ones. There are no log
        lines, and the end of this leaves the instance as it is.

        Args:
            instance: one, or its id or name.

        Raises:
            RunRefused: it failed, or there is none of this name.
            TargetUnavailable: it was not ready within `call_timeout`.
        """
        ready = instances.wait_ready(self._channel, _which(instance), self._call_timeout)
        request = pb.GadgetAttachRequest(id=ready.id, version=_PROTOCOL)
        control = pb.GadgetControlRequest(attachRequest=request)
        return GadgetRun(self._channel, control, self._call_timeout)

    def remove(self, instance: Instance | str) -> None:
        """Ends an instance, and forgets it.

        Raises:
            UsageError, RunRefused: there is none of this id or name.
        """
        instances.remove(self._channel, _which(instance), self._call_timeout)

    def _settle(self, image: str, params: Params) -> dict[str, str]:
        gadget = self.describe(image, None if callable(params) else params)
        values = params(gadget) if callable(params) else params
        return settle(gadget.parameters, values or {})


def _which(instance: Instance | str) -> str:
    return as_text(instance, "") if isinstance(instance, str) else instance.id


def _level(name: str) -> int:
    choices = ("none", *LEVELS[2:])
    if name not in choices:
        raise UsageError(f"There is no log level {name!r}.", f"Use one of {', '.join(choices)}.")
    return 0 if name == "none" else LEVELS.index(name)
