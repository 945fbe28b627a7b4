# SPDX-License-Identifier: Apache-2.0
"""Calls to one daemon over gRPC, and its refusals in our words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from igsdk._errors import (
    AnswerInvalid,
    ExtensionMissing,
    IgsdkError,
    RunRefused,
    TargetUnavailable,
    UsageError,
)

try:
    import grpc
except ImportError as error:
    raise ExtensionMissing(
        "The Python package grpcio is not installed.",
        "Install what remote targets need: pip install 'igsdk[remote]'.",
    ) from error

from google.protobuf.message import DecodeError, Message

from igsdk.client.tls import read_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from igsdk.client.address import Address

    Answer = TypeVar("Answer", bound=Message)

RpcError = grpc.RpcError
INFO = "/api.BuiltInGadgetManager/GetInfo"
GADGET_INFO = "/api.GadgetManager/GetGadgetInfo"
RUN_GADGET = "/api.GadgetManager/RunGadget"

# gRPC's own limit of 4 MiB is less than one packet of a busy gadget. Packets of empty rows
# take some 16 times their size in memory, so without a limit one could take it all.
_LARGEST_MESSAGE = 64 << 20
# Nothing but packets is ever so large; a list of gadgets or parameters never.
LARGEST_DESCRIPTION = 8 << 20
_OPTIONS = (
    ("grpc.max_receive_message_length", _LARGEST_MESSAGE),
    ("grpc.max_send_message_length", _LARGEST_MESSAGE),
    # A proxy for the web is not the way to a daemon.
    ("grpc.enable_http_proxy", 0),
    # A peer whose machine is gone says nothing. Servers made with Go end a connection that
    # asks more often than every five minutes.
    ("grpc.keepalive_time_ms", 330_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Each channel has a connection of its own: one that hangs does not hold up others.
    ("grpc.use_local_subchannel_pool", 1),
)
#: what a refusal says -> what to do
_REMEDIES = (
    (r"expected version to be", "Use the igsdk and the daemon of releases that fit."),
    (r"signature|verif", "Sign the image, or set verify-image in the daemon's configuration."),
    (
        r"resolving image|ensuring image|pulling|manifest",
        "Check the image's name, and pull=always|missing|never against what the daemon may do.",
    ),
    (r"unsupported|load program|creating eBPF", "Run it where the kernel has what it needs."),
    (r"(gadget|instance) \S+ not found", "List the daemon's instances, and name one of those."),
    (r"container-collection", "Give the parameter host=true: it knows of no containers there."),
    (r"this is igsdk agent", "Ask for profile_cuda_memory; Inspektor Gadget's daemon has others."),
    (r"pars|invalid|converting", "Correct the parameter that it names."),
)


class Channel:
    """A connection to one daemon.

    Args:
        address: where it is.

    Raises:
        UsageError: files for TLS that are no good.
    """

    def __init__(self, address: Address) -> None:
        self.target = address.shown
        self._channel = _channel(address)

    def wait_ready(self, timeout: float) -> None:
        """Waits for the connection.

        Raises:
            TargetUnavailable: there was none in so many seconds.
        """
        try:
            grpc.channel_ready_future(self._channel).result(timeout=timeout)
        except grpc.FutureTimeoutError as error:
            raise TargetUnavailable(
                f"{self.target} did not let us connect within {timeout:g} s.",
                "Check that it is a daemon, and that the address is right.",
            ) from error

    def ask(self, method: str, request: Message, answer: type[Answer], timeout: float) -> Answer:
        """One question, one answer.

        Raises:
            IgsdkError: see `explain`.
        """
        call: Any = self._channel.unary_unary(method)
        try:
            data: bytes = call(request.SerializeToString(), timeout=timeout)
            if len(data) > LARGEST_DESCRIPTION:
                raise _no_daemon(self.target, f"it answers with {len(data):,} bytes")
            return answer.FromString(data)
        except ValueError as error:
            raise UsageError("The connection is closed.", "Connect again.") from error
        except grpc.RpcError as error:
            raise explain(error, self.target) from error
        except DecodeError as error:
            raise _no_daemon(self.target, "what it answers cannot be read") from error

    def stream(self, method: str, requests: Iterator[bytes]) -> Any:
        """A stream each way, in bytes; the call that gRPC makes of it."""
        call: Any = self._channel.stream_stream(method)
        try:
            return call(requests)
        except ValueError as error:
            raise UsageError("The connection is closed.", "Connect again.") from error

    def close(self) -> None:
        self._channel.close()


def _channel(address: Address) -> Any:
    if address.tls is None:
        return grpc.insecure_channel(address.grpc, options=_OPTIONS)
    files = read_files(address.tls)
    name = address.tls.server_name
    options = (*_OPTIONS, *([("grpc.ssl_target_name_override", name)] if name else ()))
    credentials = grpc.ssl_channel_credentials(files.ca, files.key, files.cert)
    return grpc.secure_channel(address.grpc, credentials, options=options)


def explain(error: Exception, target: str) -> IgsdkError:
    """A call's end as an error of ours.

    Returns:
        TargetUnavailable: it cannot be reached, or does not answer in time.
        RunRefused: the daemon says no.
        AnswerInvalid: it is no gadget daemon, or sends what no client takes.
    """
    call: Any = error  # gRPC raises its calls
    code, text = call.code(), call.details() or ""
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return TargetUnavailable(
            f"The connection to {target} ended: {_short(text)}.",
            "Check that the daemon still runs, then start again.",
        )
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return TargetUnavailable(
            f"{target} did not answer in time.",
            "Allow more time: the daemon may have an image to fetch first.",
        )
    if code == grpc.StatusCode.UNIMPLEMENTED and "InstanceManager" in text:
        return RunRefused(
            f"{target} keeps no instances.", "Use run, or a daemon that has a place for them."
        )
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return _no_daemon(target, _short(text))
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return AnswerInvalid(
            f"{target} sent more at once than we take: {_short(text)}.",
            "Ask for less: a shorter interval, or max-entries.",
        )
    return RunRefused(f"{target} refuses: {_short(text)}.", _remedy(text))


def _remedy(text: str) -> str:
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, text):
            return remedy
    return "Look into the daemon's log."


def _no_daemon(target: str, why: str) -> AnswerInvalid:
    return AnswerInvalid(f"What serves {target} is no gadget daemon: {why}.", "Check the address.")


def _short(text: str, most: int = 1000) -> str:
    """A daemon's words on one line, without its full stop."""
    line = " ".join(text.split()).rstrip(".")
    return (line if len(line) <= most else f"{line[:most]}…") or "it gives no reason"
