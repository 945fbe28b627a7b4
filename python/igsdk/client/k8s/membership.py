# SPDX-License-Identifier: Apache-2.0
"""The members of a `k8s:` target: one per ready gadget pod, which come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from igsdk._errors import AnswerInvalid, TargetUnavailable
from igsdk.client.k8s.api import ApiServer
from igsdk.client.k8s.podwatch import PodWatch
from igsdk.client.k8s.target import parse
from igsdk.client.k8s.tunnels import Tunnel, Tunnels
from igsdk.client.k8s.where import PodNames
from igsdk.client.member import Member
from igsdk.client.remote import RemoteRuntime

if TYPE_CHECKING:
    from collections.abc import Callable

    from igsdk._errors import IgsdkError
    from igsdk.client.k8s.pods import Pod
    from igsdk.client.k8s.target import ClusterTarget

    Joined = Callable[[Member], None]
    Left = Callable[[str, str], None]


class KubernetesMembership:
    """The gadget pods of a cluster as members of a fleet.

    Args:
        target: ``k8s:…``, see `target.parse`.
        connect_timeout, call_timeout: seconds, as for `RemoteRuntime`.

    Attributes:
        where: who is behind a container.
        cluster, host: the context's name, and its API server's address.

    Raises:
        UsageError: the target makes no sense, or names an unknown context.
        TargetUnavailable, PermissionMissing: there is no kubeconfig, or no credentials.
        ExtensionMissing: the kubernetes package is not installed.
    """

    def __init__(
        self, target: str, connect_timeout: float = 5.0, call_timeout: float = 120.0
    ) -> None:
        self.target: ClusterTarget = parse(target)
        self._timeouts = (connect_timeout, call_timeout)
        self._api = ApiServer(self.target.context)
        self.cluster, self.host = self._api.name, self._api.host
        self.where = PodNames(self._api)
        self._watch = PodWatch(
            self._api, self.target.namespace, self.target.selector, changed=self._changed
        )
        self._tunnels: Tunnels | None = None
        self._members: dict[str, tuple[str, Tunnel]] = {}
        self._joined: Joined = lambda _: None
        self._left: Left = lambda *_: None

    def start(self, joined: Joined, left: Left) -> None:
        """Calls `joined` for each ready pod, now and later, and `left` for those that go.

        Raises:
            PermissionMissing: we may not list the pods.
            TargetUnavailable: the API server cannot be reached, or there is no pod, or none
                that is ready.
            AnswerInvalid: what answers is no API server.
        """
        self.follow(joined, left)
        if not self._members:
            self.close()
            raise self.nobody()

    def follow(self, joined: Joined, left: Left) -> None:
        """As `start`, but a cluster without a ready pod is no error."""
        self._joined, self._left = joined, left
        self._tunnels = Tunnels()
        try:
            self._watch.start()
        except BaseException:
            self.close()
            raise

    @property
    def problem(self) -> IgsdkError | None:
        """Why changes of pods are not seen at the moment; None on a good day."""
        return self._watch.problem

    def pods(self) -> list[Pod]:
        """The pods that the target chooses, ready or not, by node."""
        chosen = [pod for pod in self._watch.pods() if self.target.wants(pod.node)]
        return sorted(chosen, key=lambda pod: (pod.node, pod.name))

    def close(self) -> None:
        """Ends watches and tunnels; no call comes afterwards."""
        self._watch.close()
        self.where.close()
        if self._tunnels is not None:
            self._tunnels.close()
        self._api.close()

    def _changed(self, before: Pod | None, pod: Pod | None) -> None:
        one = pod or before
        assert one is not None
        if not self.target.wants(one.node):
            return
        known = one.uid in self._members
        if known and (pod is None or pod.gone):
            self._let_go(one, "its pod was deleted" if pod is None else _end(pod))
        elif not known and pod is not None and pod.ready:
            self._let_in(pod)

    def _let_in(self, pod: Pod) -> None:
        tunnels = self._tunnels
        assert tunnels is not None
        connect_timeout = self._timeouts[0]
        tunnel = tunnels.add(
            lambda: self._api.forward(pod.namespace, pod.name, self.target.port, connect_timeout)
        )
        name = self._name(pod)
        self._members[pod.uid] = (name, tunnel)
        labels = {"node": pod.node, "pod": pod.name, "namespace": pod.namespace}
        self._joined(Member(name, lambda: self._connect(pod, tunnel), labels))

    def _let_go(self, pod: Pod, why: str) -> None:
        name, tunnel = self._members.pop(pod.uid)
        self._left(name, why)
        tunnel.close()

    def _name(self, pod: Pod) -> str:
        """The node's, and the pod's too where there are two on one node."""
        taken = {name for name, _ in self._members.values()}
        name = pod.node or pod.name
        return f"{name}/{pod.name}" if name in taken else name

    def _connect(self, pod: Pod, tunnel: Tunnel) -> RemoteRuntime:
        if why := tunnel.prepare():
            raise self._no_daemon(pod, why)
        name = f"{pod.namespace}/{pod.name} on {pod.node}"
        try:
            return RemoteRuntime(tunnel.target, *self._timeouts, name=name)
        except (TargetUnavailable, AnswerInvalid) as error:
            raise self._no_daemon(pod, tunnel.why or "it does not answer") from error

    def _no_daemon(self, pod: Pod, why: str) -> TargetUnavailable:
        return TargetUnavailable(
            f"Port {self.target.port} of the pod {pod.namespace}/{pod.name} on {pod.node} "
            f"cannot be used: {' '.join(why.split()).rstrip('.')}.",
            "Look into the pod's log with kubectl; a daemon that listens elsewhere "
            "is named with ?port=.",
        )

    def nobody(self) -> TargetUnavailable:
        """Why there is no member."""
        place = f"the namespace {self.target.namespace} of {self._api.name}"
        pods = self.pods()
        if not pods:
            nodes = f" on {', '.join(self.target.nodes)}" if self.target.nodes else ""
            return TargetUnavailable(
                f"There is no pod {self.target.selector or 'at all'} in {place}{nodes}.",
                "Deploy one for each node (docs/kubernetes.md), or name where they are: "
                "k8s://CONTEXT/NAMESPACE?selector=LABELS.",
            )
        told = "; ".join(f"{pod.name} on {pod.node or 'no node'}: {pod.why}" for pod in pods[:3])
        more = f" and {len(pods) - 3} more" if len(pods) > 3 else ""
        return TargetUnavailable(
            f"None of the gadget pods in {place} is ready: {told}{more}.",
            f"Wait, or look with `kubectl describe pods -n {self.target.namespace}`.",
        )


def _end(pod: Pod) -> str:
    return f"its pod is {pod.phase.lower()}" if pod.phase != "Terminating" else "its pod goes"
