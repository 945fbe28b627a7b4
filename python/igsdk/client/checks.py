# SPDX-License-Identifier: Apache-2.0
"""What a daemon is and what it lets us do, as data: for ``igsdk doctor --target``.

Nothing here changes the daemon, but that it may fetch the image that it is asked for, as it
would for a run.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from igsdk._check import Check
from igsdk._errors import AnswerInvalid, GadgetInvalid, IgsdkError, RunRefused, TargetUnavailable
from igsdk._units import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from igsdk.client.gadget import Gadget
    from igsdk.client.remote import RemoteRuntime

#: the gadget that ``igsdk record`` runs
OURS = "profile_cuda_memory"
_PROTOCOL = "1.0"
_SOURCES = {"events", "heap", "losses", "processes"}
_WHOLE_HOST = "operator.LocalManager.host"
#: the data source that only igsdk's own agent has
_AGENTS = "stacks"
_TRIED = 2.0
_MOST_WARNINGS = 5
_UNSIGNED = re.compile(r"verifying|signature|signed by")
_NOT_THERE = re.compile(r"on local registry: not found")
_REFUSED = (
    (
        "pulling is disallowed",
        "it is not there, and the daemon may not fetch any",
        "Import it there with `ig image import`, or take disallow-pulling out of its settings.",
    ),
    (
        "not part of allowed gadgets",
        "the daemon takes others only",
        "Add it to allowed-gadgets in the daemon's settings.",
    ),
    (
        "pulling image|copying to local|fetch",
        "it is not there, and the daemon could not fetch it",
        "Name one with --gadget that the daemon can fetch, or import it there (`ig image import`).",
    ),
)
_ENCRYPT = "Start the daemon with a certificate and --tls-client-ca…, and use tcp+tls://."
_MOST_NAMES = 3
_SOON = 14
_NO_PROBE = re.compile("attaching to container |cannot find file to attach ")
_PROBES = (
    "Have the library in that machine's or container's /etc/ld.so.cache (ldconfig), and a kernel "
    "with kprobes: see docs/inspektor-gadget.md."
)
_SIGN = (
    "Sign it with `igsdk gadget sign` and give the daemon your public key (public-keys), or turn "
    "verify-image off there."
)


def check_daemon(
    connect: Callable[[], RemoteRuntime], gadget: str = OURS, *, run: bool = False
) -> list[Check]:
    """Everything that a run on one daemon depends on, in the order in which it is needed.

    Args:
        connect: makes the connection.
        gadget: the image to ask for.
        run: also run it for two seconds, which puts its probes on.

    Returns:
        The checks; what could not be looked at, because something before it fails, is not
        among them.
    """
    began = time.monotonic()
    try:
        host = connect()
    except IgsdkError as error:
        return [failed("connection", error)]
    took = time.monotonic() - began
    with host:
        found = [Check("connection", "ok", f"it answers, after {took * 1000:.0f} ms")]
        found += [_encryption(host), _daemon(host), _instances(host), *_gadget(host, gadget)]
        if run and not any(check.state == "fail" for check in found):
            found += _run(host, gadget)
    return found


def failed(name: str, error: IgsdkError) -> Check:
    """An error as what was found; it has its exit code."""
    return Check(name, "fail", error.cause.rstrip("."), error.remedy, error.exit_code)


def _encryption(host: RemoteRuntime) -> Check:
    name, shown = "encryption", host.handshake
    if host.target.startswith("unix:"):
        return Check(name, "ok", "a unix socket needs none")
    if shown is None:
        detail = "clear text, without any login: whoever reaches the port runs gadgets there"
        return Check(name, "warn", detail, _ENCRYPT)
    whose = ", ".join(shown.names[:_MOST_NAMES]) or "no name"
    days = int((shown.until - time.time()) // 86_400)
    detail = f"{shown.version}; the daemon's certificate is for {whose}, for {days} days more"
    if days < _SOON:
        return Check(name, "warn", detail, "Renew it on the daemon's machine.")
    return Check(name, "ok", detail)


def _daemon(host: RemoteRuntime) -> Check:
    extra = ", with experimental features" if host.experimental else ""
    told = f"version {host.version or 'unknown'}, protocol {host.protocol or 'unknown'}{extra}"
    if host.protocol == _PROTOCOL:
        return Check("daemon", "ok", told)
    remedy = "Use the igsdk and the daemon of releases that fit."
    return Check("daemon", "warn", f"{told}; igsdk speaks {_PROTOCOL}", remedy)


def _instances(host: RemoteRuntime) -> Check:
    name = "instances"
    try:
        known = host.instances()
    except RunRefused as error:
        return Check(name, "warn", error.cause.rstrip("."), error.remedy)
    except (TargetUnavailable, AnswerInvalid) as error:
        return failed(name, error)
    broken = [one for one in known if one.state == "error"]
    if broken:
        detail = f"{broken[0].name} failed: {broken[0].message or 'it gives no reason'}"
        remedy = "Remove it with `igsdk instances remove`, and make another one."
        return Check(name, "warn", detail, remedy)
    return Check(name, "ok", f"it keeps gadgets that run without a client; {len(known)} now")


def _gadget(host: RemoteRuntime, image: str) -> Iterator[Check]:
    """Whether the image is there, taken, and what it is said to be."""
    try:
        described, how = _describe(host, image)
    except RunRefused as error:
        yield from _refusal(image, error)
    except IgsdkError as error:
        yield failed("gadget", error)
    else:
        if _AGENTS in described.sources:
            detail = "built into igsdk's own agent: whole stacks, of Python too"
            yield Check("gadget", "ok", detail)
            return
        yield Check("image", "ok", f"{image} {how}")
        yield Check("signature", "ok", "signed with a key that the daemon knows, or it asks none")
        yield _contents(described, image)


def _describe(host: RemoteRuntime, image: str) -> tuple[Gadget, str]:
    """Asks without a registry first, which is quick and says whether it would need one."""
    try:
        return host.describe(image, {"pull": "never"}), "is there"
    except RunRefused as error:
        if not _NOT_THERE.search(error.cause):
            raise
    return host.describe(image), "was fetched from its registry just now"


def _refusal(image: str, error: RunRefused) -> Iterator[Check]:
    if _UNSIGNED.search(error.cause):
        yield Check("image", "ok", f"{image} is there")
        detail = "the daemon asks for one, and knows no key that signed this image"
        yield Check("signature", "fail", detail, _SIGN, error.exit_code)
        return
    for pattern, detail, remedy in _REFUSED:
        if re.search(pattern, error.cause):
            # A daemon wraps what happened in what it was doing; the last words are the reason.
            why = error.cause.rstrip(".").rpartition(": ")[2] if "could not" in detail else ""
            told = f"{image}: {detail}{f': {why}' if why else ''}"
            yield Check("image", "fail", told, remedy, error.exit_code)
            return
    yield failed("image", error)


def _contents(gadget: Gadget, image: str) -> Check:
    name, sources = "gadget", set(gadget.sources)
    told = ", ".join(sorted(sources)) or "no data sources"
    if not image.rpartition("/")[2].startswith(OURS):
        return Check(name, "ok", f"it gives {told}")
    if not sources >= _SOURCES:
        remedy = "Name the image of igsdk's own gadget: `igsdk gadget build`, see gadget/README.md."
        detail = f"a gadget of this name, but another one: it gives {told}"
        return Check(name, "fail", detail, remedy, GadgetInvalid.exit_code)
    detail = "Inspektor Gadget takes its stacks: by frame pointers, without Python"
    return Check(name, "ok", detail)


def _run(host: RemoteRuntime, image: str) -> Iterator[Check]:
    """Runs it for a moment, on the whole machine, and tells what the daemon says of that."""
    try:
        keys = {one.key for one in host.describe(image).parameters}
        params = {_WHOLE_HOST: True} if _WHOLE_HOST in keys else {}
        with host.run(image, params, timeout=_TRIED, log_level="debug") as run:
            run.collect(_TRIED + 1)
            said = [(line.level, line.text) for line in run.logs]
            if run.error is not None:
                raise run.error
    except IgsdkError as error:
        yield failed("run", error)
        return
    yield Check("run", "ok", f"it ran for {_TRIED:g} s")
    warnings = [text for level, text in said if level not in ("info", "debug", "trace")]
    for text in warnings[:_MOST_WARNINGS]:
        yield Check("run", "warn", f"the daemon warns: {text}")
    # Where a probe does not go on, Inspektor Gadget says so in its debug log alone.
    missing = [text for _, text in said if _NO_PROBE.match(text)]
    if missing:
        detail = f"{plural(len(missing), 'probe')} could not be put on; the first: {missing[0]}"
        yield Check("probes", "warn", detail, _PROBES)
