# SPDX-License-Identifier: Apache-2.0
"""The nodes of a cluster as its gadget pods show them, asked once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from igsdk._errors import IgsdkError, TargetUnavailable
from igsdk.client.k8s.membership import KubernetesMembership

if TYPE_CHECKING:
    from igsdk.client.k8s.pods import Pod
    from igsdk.client.member import Member

_AT_ONCE = 16


@dataclass(frozen=True)
class NodeReport:
    """One gadget pod and its node.

    Attributes:
        phase: the pod's: Pending, Running, Terminating and so on.
        version: the daemon's own; "" where it was not reached.
        state: ready, unreachable (the pod is ready, its daemon did not answer) or not ready.
        why: why not; "" when it is ready.
        code: the exit code that says the same; 0 when it is ready.
    """

    node: str
    pod: str
    phase: str
    version: str
    state: str
    why: str
    code: int


def survey(target: str, connect_timeout: float = 5.0) -> list[NodeReport]:
    """Looks at each pod that a `k8s:` target chooses, and asks the ready ones who they are.

    Raises:
        UsageError, PermissionMissing, TargetUnavailable, AnswerInvalid, ExtensionMissing: as
            `KubernetesMembership`; a single pod that does not answer is no error.
    """
    membership = KubernetesMembership(target, connect_timeout)
    members: dict[str, Member] = {}
    try:
        membership.follow(
            lambda member: members.update({member.labels["pod"]: member}), lambda *_: None
        )
        pods = membership.pods()
        if not pods:
            raise membership.nobody()
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return list(threads.map(lambda pod: _look(pod, members.get(pod.name)), pods))
    finally:
        membership.close()


def _look(pod: Pod, member: Member | None) -> NodeReport:
    version, state, why, code = "", "not ready", pod.why, TargetUnavailable.exit_code
    if member is not None:
        try:
            with member.connect() as daemon:
                version, state, why, code = daemon.version, "ready", "", 0
        except IgsdkError as error:
            state, why, code = "unreachable", str(error), error.exit_code
    return NodeReport(pod.node, pod.name, pod.phase, version, state, why, code)
