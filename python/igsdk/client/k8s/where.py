# SPDX-License-Identifier: Apache-2.0
"""Which pod is behind a container's id."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from igsdk._errors import IgsdkError, PermissionMissing
from igsdk.client.k8s.podwatch import PodWatch
from igsdk.client.member import PodRef

if TYPE_CHECKING:
    from igsdk.client.k8s.api import ApiServer
    from igsdk.client.k8s.pods import Pod

_MOST_ENDED = 10_000


class PodNames:
    """Names of pods, from a watch that begins with the first question.

    Pods that ended stay known, since profiles name what has ended too.

    Attributes:
        notes: what it cannot know, and why, in sentences for people.
    """

    def __init__(self, api: ApiServer) -> None:
        self.notes: list[str] = []
        self._api = api
        self._watches: list[PodWatch] | None = None
        self._lock = threading.Lock()
        self._by_uid: dict[str, Pod] = {}
        # name and pod's uid: those of containers that were replaced stay too
        self._by_container: dict[str, tuple[str, str]] = {}
        self._ended: deque[Pod] = deque()

    def pod_of(self, container_id: str, pod_uid: str) -> PodRef | None:
        """The pod of a container, by the container's id or by the pod's uid.

        A container that has just begun may have no name yet ("" as `container`), or no pod:
        ask again later. None too where we may not know.
        """
        with self._lock:
            if self._watches is None:
                self._watches = self._begin()
        container, uid = self._by_container.get(container_id, ("", pod_uid))
        pod = self._by_uid.get(uid)
        if pod is None:
            return None
        return PodRef(pod.namespace, pod.name, container, pod.node, pod.labels)

    def close(self) -> None:
        with self._lock:
            watches, self._watches = self._watches or [], []
        for watch in watches:
            watch.close()

    def _begin(self) -> list[PodWatch]:
        """Watches all pods, or where that is not allowed those of the context's namespace."""
        for namespace in ("", self._api.namespace):
            watch = PodWatch(self._api, namespace, changed=self._learn)
            try:
                watch.start()
            except PermissionMissing as error:
                self.notes.append(_unknown(namespace, error))
            except IgsdkError as error:
                self.notes.append(f"Names of pods are unknown. {error}")
                return []
            else:
                return [watch]
        return []

    def _learn(self, before: Pod | None, pod: Pod | None) -> None:
        if pod is not None:
            self._by_uid[pod.uid] = pod
            names = pod.containers.items()
            self._by_container.update({key: (name, pod.uid) for key, name in names})
        elif before is not None:
            self._ended.append(before)
            if len(self._ended) > _MOST_ENDED:
                self._forget(self._ended.popleft())

    def _forget(self, pod: Pod) -> None:
        self._by_uid.pop(pod.uid, None)
        gone = [key for key, (_, uid) in self._by_container.items() if uid == pod.uid]
        for container in gone:
            del self._by_container[container]


def _unknown(namespace: str, error: IgsdkError) -> str:
    where = f"in the namespace {namespace} too" if namespace else "of other namespaces"
    return f"Names of pods {where} are unknown. {error}"
