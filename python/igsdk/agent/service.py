# SPDX-License-Identifier: Apache-2.0
"""The gadget service over gRPC: what clients of Inspektor Gadget know, for one gadget."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import DecodeError

from igsdk._errors import IgsdkError, RunRefused
from igsdk._proto import gadget_pb2 as pb
from igsdk._version import __version__
from igsdk.agent import packets
from igsdk.agent import wanted as wants
from igsdk.agent.instances import Instances
from igsdk.agent.runs import Runs, described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from igsdk.agent.hub import Hub, Subscriber

_PROTOCOL = 1
_INFO = 4
_USE_INSTANCE = 1
_FIRST_WORDS = 10.0  # seconds
_PARSED: dict[str, Any] = {
    "GetInfo": pb.InfoRequest,
    "GetGadgetInfo": pb.GetGadgetInfoRequest,
    "CreateGadgetInstance": pb.CreateGadgetInstanceRequest,
    "ListGadgetInstances": pb.ListGadgetInstancesRequest,
    "GetGadgetInstance": pb.GadgetInstanceId,
    "RemoveGadgetInstance": pb.GadgetInstanceId,
}


class Service:
    """Answers calls.

    Args:
        hub: where rows come from.
        most_runs: how many streams there may be at once; each takes two threads.
    """

    def __init__(self, hub: Hub, most_runs: int) -> None:
        self._hub = hub
        self.runs = Runs(hub, most_runs)
        self.instances = Instances(hub)

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """For a server."""
        by_service: dict[str, dict[str, Callable[[Any], Any]]] = {
            "api.BuiltInGadgetManager": {"GetInfo": self._info},
            "api.GadgetManager": {"GetGadgetInfo": self._gadget_info},
            "api.GadgetInstanceManager": {
                "CreateGadgetInstance": self._create,
                "ListGadgetInstances": self._list,
                "GetGadgetInstance": lambda asked: self.instances.find(asked.id).state(),
                "RemoveGadgetInstance": self._remove,
            },
        }
        handlers: dict[str, dict[str, Any]] = {
            service: {name: _unary(name, answer) for name, answer in methods.items()}
            for service, methods in by_service.items()
        }
        run: Any = grpc.stream_stream_rpc_method_handler(self._run)
        handlers["api.GadgetManager"]["RunGadget"] = run
        return [
            grpc.method_handlers_generic_handler(service, methods)
            for service, methods in handlers.items()
        ]

    def _info(self, _: pb.InfoRequest) -> pb.InfoResponse:
        return pb.InfoResponse(version="1.0", serverVersion=__version__)

    def _gadget_info(self, asked: pb.GetGadgetInfoRequest) -> pb.GetGadgetInfoResponse:
        _check_version(asked.version)
        if asked.flags & _USE_INSTANCE:
            one = self.instances.find(asked.imageName)
            info = described(one.told.gadgetConfig.imageName, one.wanted, one.told)
        else:
            wants.check_image(asked.imageName)
            info = described(asked.imageName, wants.read(asked.paramValues))
        for source in info.dataSources:
            source.id = 0  # numbers count in streams only
        return pb.GetGadgetInfoResponse(gadgetInfo=info)

    def _create(self, asked: pb.CreateGadgetInstanceRequest) -> pb.CreateGadgetInstanceResponse:
        made = self.instances.create(asked.gadgetInstance)
        return pb.CreateGadgetInstanceResponse(gadgetInstance=made)

    def _list(self, _: pb.ListGadgetInstancesRequest) -> pb.ListGadgetInstanceResponse:
        return pb.ListGadgetInstanceResponse(gadgetInstances=self.instances.list())

    def _remove(self, asked: pb.GadgetInstanceId) -> pb.StatusResponse:
        try:
            self.instances.remove(asked.id)
        except RunRefused as refusal:
            return pb.StatusResponse(result=1, message=_text(refusal))
        return pb.StatusResponse()

    def _run(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        try:
            first = _first(messages, context)
            if first.HasField("attachRequest"):
                yield from self._attached(first.attachRequest, context)
            elif first.HasField("runRequest"):
                yield from self._started(first.runRequest, messages, context)
            else:
                raise RunRefused("expected first control message to be gadget run request", "")
        except (DecodeError, StopIteration):
            _refuse(context, "expected first control message to be gadget run request")
        except IgsdkError as error:
            _refuse(context, _text(error))
        except grpc.RpcError:
            return  # the client is gone before it said anything
        except Exception as error:
            logging.getLogger("igsdk.agent").exception("a run ended by a mistake in igsdk")
            _refuse(context, f"a mistake in igsdk agent: {type(error).__name__}: {error}")

    def _started(
        self, asked: pb.GadgetRunRequest, messages: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        _check_version(asked.version)
        wants.check_image(asked.imageName)
        wanted = wants.read(asked.paramValues)
        deadline = time.monotonic() + asked.timeout / 1e9 if asked.timeout > 0 else None
        with self.runs.admitted(wanted) as subscriber:
            context.add_callback(subscriber.stop)
            listener = threading.Thread(
                target=_listen, args=(messages, subscriber), name="igsdk-control", daemon=True
            )
            listener.start()
            if asked.logLevel >= _INFO:
                yield packets.log(_INFO, self._greeting())
            info = described(asked.imageName, wanted)
            del info.params[:]
            yield from self.runs.stream(wanted, subscriber, info, deadline)

    def _attached(
        self, asked: pb.GadgetAttachRequest, context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        _check_version(asked.version)
        one = self.instances.by_id(asked.id)
        with self.runs.admitted(one.wanted, after=one.kept) as subscriber:
            one.attached.add(subscriber)
            if one.kept.stopped:  # it was removed just now
                subscriber.stop()
            context.add_callback(subscriber.stop)
            try:
                info = described(one.told.gadgetConfig.imageName, one.wanted, one.told)
                yield from self.runs.stream(one.wanted, subscriber, info)
            finally:
                one.attached.discard(subscriber)

    def _greeting(self) -> str:
        libraries = len(self._hub.session.libraries.attached)
        return (
            f"igsdk agent {__version__} on {self._hub.node}: probes on {libraries} driver "
            f"{'library' if libraries == 1 else 'libraries'}"
        )


def _first(messages: Iterator[bytes], context: grpc.ServicerContext) -> pb.GadgetControlRequest:
    """What a stream begins with; who says nothing must not keep a thread from others."""
    timer = threading.Timer(_FIRST_WORDS, context.cancel)
    timer.daemon = True
    timer.start()
    try:
        return pb.GadgetControlRequest.FromString(next(messages))
    finally:
        timer.cancel()


def _listen(messages: Iterator[bytes], subscriber: Subscriber) -> None:
    """Until the client asks for the end, closes its side or is gone."""
    with suppress(Exception):  # gRPC raises one of its own at the end of a call
        for data in messages:
            if pb.GadgetControlRequest.FromString(data).HasField("stopRequest"):
                break
    subscriber.stop()


def _unary(name: str, answer: Callable[[Any], Any]) -> Any:
    """A method that asks and answers once; refusals end the call."""
    parse = _PARSED[name].FromString

    def handle(data: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            told: bytes = answer(parse(data)).SerializeToString()
        except DecodeError:
            _refuse(context, f"the request for {name} cannot be read")
        except IgsdkError as error:
            _refuse(context, _text(error))
        return told

    return grpc.unary_unary_rpc_method_handler(handle)


def _refuse(context: grpc.ServicerContext, text: str) -> Any:
    return context.abort(grpc.StatusCode.UNKNOWN, text)


def _text(error: IgsdkError) -> str:
    """Cause and remedy in a line; clients put a full stop behind it."""
    return f"{error.cause} {error.remedy}".strip()


def _check_version(version: int) -> None:
    """In the words of Inspektor Gadget's daemon, which clients know."""
    if version != _PROTOCOL:
        raise RunRefused(f"expected version to be {_PROTOCOL}, got {version}", "")
