# SPDX-License-Identifier: Apache-2.0
"""What a `k8s:` target depends on, in the order in which it is needed: for ``igsdk doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from igsdk._check import Check
from igsdk._errors import IgsdkError
from igsdk.client.checks import failed
from igsdk.client.k8s.membership import KubernetesMembership

if TYPE_CHECKING:
    from igsdk.client.member import Member


def check_cluster(
    target: str, connect_timeout: float = 5.0
) -> tuple[list[Check], KubernetesMembership | None, list[Member]]:
    """Looks at credentials, the API server, rights and pods.

    Returns:
        The checks, up to the first that stands in the way of all others; the membership, to
        be closed by the caller (None where it did not come to that); and a member for each
        ready pod, to connect to.
    """
    try:
        membership = KubernetesMembership(target, connect_timeout)
    except IgsdkError as error:
        return [failed("kubeconfig", error)], None, []
    found = [Check("kubeconfig", "ok", f"{membership.cluster} at {membership.host}")]
    members: list[Member] = []
    try:
        membership.follow(members.append, lambda *_: None)
    except IgsdkError as error:
        return [*found, failed("cluster", error)], None, []
    chosen = membership.target
    found.append(Check("cluster", "ok", f"it lets you list pods in {chosen.namespace}"))
    found.append(_pods(membership, members))
    if members:
        found.append(_forward(members[0]))
    found.append(_names(membership))
    return found, membership, members


def _pods(membership: KubernetesMembership, members: list[Member]) -> Check:
    pods = membership.pods()
    if not members:
        return failed("pods", membership.nobody())
    if waiting := [pod for pod in pods if not pod.ready]:
        told = "; ".join(f"{pod.name} on {pod.node or 'no node'}: {pod.why}" for pod in waiting[:3])
        return Check(
            "pods",
            "warn",
            f"{len(members)} of {len(pods)} are ready: {told}",
            f"Look with `kubectl describe pods -n {membership.target.namespace}`.",
        )
    return Check("pods", "ok", f"{len(pods)} ready, of {membership.target.selector}")


def _forward(member: Member) -> Check:
    """One pod's port, for the right to forward it; the others' daemons are checked each."""
    try:
        member.connect().close()
    except IgsdkError as error:
        return failed("port-forward", error)
    return Check("port-forward", "ok", f"it reaches the daemon on {member.name}")


def _names(membership: KubernetesMembership) -> Check:
    membership.where.pod_of("", "")
    if not membership.where.notes:
        return Check("pod names", "ok", "those of all namespaces are known")
    return Check(
        "pod names",
        "warn",
        " ".join(membership.where.notes).rstrip("."),
        "Profiles of our agent name containers by id; deploy/rbac.yaml has the right to list pods.",
    )
