# SPDX-License-Identifier: Apache-2.0
"""A gadget daemon for tests: real gRPC on a real socket, saying what the test wants said.

Messages are bytes on both sides, so that it can send what no daemon should.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from tests.support import gadget_packets as gp

from igsdk._proto import gadget_pb2 as pb

VERSION = "0.54.0"
INSTANCE_METHODS = ("CreateGadgetInstance", "ListGadgetInstances", "RemoveGadgetInstance")


class Refusal(Exception):
    """Ends a call with this status."""

    def __init__(self, message: str, code: grpc.StatusCode = grpc.StatusCode.UNKNOWN) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


@dataclass
class Session:
    """One RunGadget call: what the client said so far.

    Attributes:
        request: its first message.
        asked_to_stop: set by a stop request.
        half_closed: set when the client closes its side, or is gone.
        stop: set by either of the two.
    """

    request: pb.GadgetControlRequest
    asked_to_stop: threading.Event = field(default_factory=threading.Event)
    half_closed: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)

    def listen(self, messages: Iterator[bytes]) -> None:
        with contextlib.suppress(Exception):  # gRPC raises one of its own at a cancel
            for data in messages:
                if pb.GadgetControlRequest.FromString(data).HasField("stopRequest"):
                    self.asked_to_stop.set()
                    self.stop.set()
        self.half_closed.set()
        self.stop.set()


Describe = Callable[[pb.GetGadgetInfoRequest], "pb.GadgetInfo | bytes"]
Run = Callable[[Session], "Iterable[pb.GadgetEvent | bytes]"]


@dataclass
class GadgetServer:
    """What it says; tests change it between calls.

    Attributes:
        describe: answers GetGadgetInfo, with the gadget or with the raw bytes to send.
        run: gives the events of RunGadget.
        instances: answers GadgetInstanceManager's methods, by name.
        sessions: the RunGadget calls so far.
        target: where it listens.
    """

    target: str
    describe: Describe = lambda request: pb.GadgetInfo(imageName=request.imageName)
    run: Run = lambda session: ()
    info: Callable[[], bytes] = lambda: pb.InfoResponse(
        version="1.0", serverVersion=VERSION
    ).SerializeToString()
    instances: dict[str, Callable[[bytes], Any]] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)

    def manage(self, method: str) -> Callable[[bytes, Any], bytes]:
        """What answers a method of the instances' service."""

        def answer(request: bytes, context: Any) -> bytes:
            if method not in self.instances:
                context.abort(
                    grpc.StatusCode.UNIMPLEMENTED, "unknown service api.GadgetInstanceManager"
                )
            told = _refusing(context, lambda: self.instances[method](request))
            return told if isinstance(told, bytes) else told.SerializeToString()

        return answer

    def get_info(self, request: bytes, context: Any) -> bytes:
        told: bytes = _refusing(context, self.info)
        return told

    def get_gadget_info(self, request: bytes, context: Any) -> bytes:
        asked = pb.GetGadgetInfoRequest.FromString(request)
        told = _refusing(context, lambda: self.describe(asked))
        if isinstance(told, bytes):
            return told
        return pb.GetGadgetInfoResponse(gadgetInfo=told).SerializeToString()

    def run_gadget(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        session = Session(pb.GadgetControlRequest.FromString(next(messages)))
        self.sessions.append(session)
        threading.Thread(target=session.listen, args=(messages,), daemon=True).start()
        try:
            for event in self.run(session):
                yield event if isinstance(event, bytes) else event.SerializeToString()
        except Refusal as refusal:
            context.abort(refusal.code, refusal.message)


def _refusing(context: Any, answer: Callable[[], Any]) -> Any:
    try:
        return answer()
    except Refusal as refusal:
        context.abort(refusal.code, refusal.message)


@contextlib.contextmanager
def gadget_server(
    address: Path | str, credentials: grpc.ServerCredentials | None = None
) -> Iterator[GadgetServer]:
    """Serves on a unix socket (a path) or on ``HOST:PORT``, with port 0 for any; over TLS
    with credentials."""
    server = grpc.server(
        futures.ThreadPoolExecutor(8), options=[("grpc.max_send_message_length", -1)]
    )
    where = f"unix:{address}" if isinstance(address, Path) else address
    if credentials is None:
        port = server.add_insecure_port(where)
    else:
        port = server.add_secure_port(where, credentials)
    host = str(address).rpartition(":")[0]
    ours = GadgetServer(
        f"unix://{address}"
        if isinstance(address, Path)
        else f"tcp{'+tls' if credentials else ''}://{host}:{port}"
    )
    unary = grpc.unary_unary_rpc_method_handler
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler(
                "api.BuiltInGadgetManager", {"GetInfo": unary(ours.get_info)}
            ),
            grpc.method_handlers_generic_handler(
                "api.GadgetManager",
                {
                    "GetGadgetInfo": unary(ours.get_gadget_info),
                    "RunGadget": grpc.stream_stream_rpc_method_handler(ours.run_gadget),
                },
            ),
            grpc.method_handlers_generic_handler(
                "api.GadgetInstanceManager",
                {name: unary(ours.manage(name)) for name in INSTANCE_METHODS},
            ),
        ]
    )
    server.start()
    try:
        yield ours
    finally:
        for session in ours.sessions:
            session.stop.set()
        server.stop(grace=0.2).wait()


def described(*sources: pb.DataSource) -> pb.GadgetEvent:
    """The event that a run begins with; data sources get their numbers."""
    info = pb.GadgetInfo(imageName="test:latest", dataSources=sources)
    for number, source in enumerate(info.dataSources):
        source.id = number
    return pb.GadgetEvent(type=4, payload=info.SerializeToString())


def log(level: int, text: str) -> pb.GadgetEvent:
    return pb.GadgetEvent(type=level << 16, payload=text.encode())


@contextlib.contextmanager
def serving_process(path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process of its own that serves `counting`, to be killed; gives it and its target."""
    root = Path(__file__).resolve().parents[2]
    argv = [sys.executable, "-m", "tests.support.gadget_server", str(path)]
    with subprocess.Popen(argv, cwd=root, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process, f"unix://{path}"
        finally:
            process.kill()


def counting(session: Session) -> Iterator[pb.GadgetEvent]:
    """A run of rows with a pid, a path and a name, one each 10 ms, until it is stopped."""
    specs = [
        gp.Spec("pid", gp.UINT32, 4),
        gp.Spec("proc.comm", gp.CSTRING, 16),
        gp.Spec("path", gp.STRING, flags=gp.HIDDEN),
    ]
    yield described(gp.source("opens", specs))
    for number in itertools.count(1):
        yield gp.packet([gp.element(specs, [number, "sh", f"/proc/{number}"])], number)
        if session.stop.wait(0.01):
            return


def main(path: str) -> None:
    with gadget_server(Path(path)) as server:
        host = pb.Param(key="host", prefix="operator.LocalManager.", typeHint="bool")
        server.describe = lambda request: pb.GadgetInfo(imageName=request.imageName, params=[host])
        server.run = counting
        print("ready", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1])
