# SPDX-License-Identifier: Apache-2.0
"""The pods of a namespace, or of all, kept up to date by a list and a watch."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from igsdk._errors import IgsdkError
from igsdk.client.k8s.pods import Pod, read_pod
from igsdk.client.k8s.refusals import Gone

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from igsdk.client.k8s.api import ApiServer
    from igsdk.client.k8s.watch import Watch

    Changed = Callable[[Pod | None, Pod | None], None]

_SHORTEST_WAIT, _LONGEST_WAIT = 0.2, 5.0


class PodWatch:
    """Pods by uid.

    Args:
        changed: called with what a pod was and what it is, None for none: for every pod
            before `start` returns, later from a thread of the watch.

    Attributes:
        problem: why nothing is known at the moment; None while the API server answers.
    """

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        selector: str = "",
        fields: str = "",
        changed: Changed | None = None,
    ) -> None:
        self.problem: IgsdkError | None = None
        self._api, self._of = api, (namespace, selector, fields)
        self._changed = changed
        self._pods: dict[str, Pod] = {}
        self._version = ""
        self._watch: Watch | None = None
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._follow, name="igsdk-pods", daemon=True)

    def start(self) -> None:
        """Lists, and from then on follows.

        Raises:
            PermissionMissing, TargetUnavailable, AnswerInvalid: as `ApiServer.list_pods`.
        """
        self._list()
        self._thread.start()

    def pods(self) -> list[Pod]:
        """Those that there are now."""
        return list(self._pods.values())

    def close(self) -> None:
        """Ends it; no call of `changed` comes afterwards."""
        self._stop.set()
        with self._lock:
            if self._watch is not None:
                self._watch.close()
        if self._thread.ident and self._thread is not threading.current_thread():
            self._thread.join(timeout=2)

    def _follow(self) -> None:
        """Watches, goes on from where a watch ended, and lists anew where it has to."""
        wait, listed = _SHORTEST_WAIT, True
        while not self._stop.is_set():
            try:
                if not listed:
                    self._list()
                listed, self.problem = True, None
                self._follow_one()
                wait = _SHORTEST_WAIT
            except Gone:
                listed = False
            except IgsdkError as error:
                # What happened meanwhile is in the watch's history, unless that is gone.
                self.problem = error
                wait = min(wait * 2, _LONGEST_WAIT)
            self._stop.wait(wait)

    def _follow_one(self) -> None:
        watch = self._api.watch_pods(*self._of, self._version)
        with self._lock:
            self._watch = watch
            if self._stop.is_set():
                watch.close()
        try:
            for kind, raw in watch:
                if self._stop.is_set():
                    return
                self._take(kind, raw)
        finally:
            with self._lock:
                self._watch = None

    def _take(self, kind: str, raw: dict[str, Any]) -> None:
        pod = read_pod(raw)
        if kind != "BOOKMARK" and pod is not None:
            self._put(pod.uid, None if kind == "DELETED" else pod)
        meta = raw.get("metadata")
        version = meta.get("resourceVersion") if isinstance(meta, dict) else None
        self._version = str(version or self._version)

    def _list(self) -> None:
        raw, version = self._api.list_pods(*self._of)
        found = {pod.uid: pod for pod in map(read_pod, raw) if pod is not None}
        for uid in [uid for uid in self._pods if uid not in found]:
            self._put(uid, None)
        for uid, pod in found.items():
            self._put(uid, pod)
        self._version = version

    def _put(self, uid: str, pod: Pod | None) -> None:
        before = self._pods.pop(uid, None) if pod is None else self._pods.get(uid)
        if pod is not None:
            self._pods[uid] = pod
        if before != pod and self._changed is not None and not self._stop.is_set():
            self._changed(before, pod)
