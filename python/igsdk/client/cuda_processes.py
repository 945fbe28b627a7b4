# SPDX-License-Identifier: Apache-2.0
"""Who a row speaks of: a process, and the pod and container around it where they are known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from igsdk import _abi
from igsdk._events import ProcessInfo
from igsdk.client.cuda_rows import number, word

if TYPE_CHECKING:
    from igsdk.client.columns import Columns
    from igsdk.client.member import PodRef


def process_info(columns: Columns, row: int, node: str = "") -> ProcessInfo:
    """The process of one row of ``processes``.

    Inspektor Gadget says the pod and the container itself (fields ``k8s.*`` and
    ``runtime.*``); the agent says the container's id, and who knows the cluster the rest.

    Args:
        node: the name of the node where the row does not say one.
    """
    ended = number(columns, "state_raw", row) == _abi.ENDED_PROCESS
    # Inspektor Gadget makes wall time of timestamps, and of this one it does not.
    started = number(columns, "started_raw", row)
    start_ns = number(columns, "start_ns", row) or started
    return ProcessInfo(
        instance=number(columns, "process", row),
        pid=number(columns, "proc.pid", row),
        ns_pid=number(columns, "ns_pid", row),
        start_ns=start_ns,
        exec_id=number(columns, "exec_id", row),
        comm=word(columns, "proc.comm", row),
        cmdline=word(columns, "cmdline", row) or None,
        uid=number(columns, "proc.creds.uid", row),
        gid=number(columns, "proc.creds.gid", row),
        mntns_id=number(columns, "proc.mntns_id", row),
        cgroup_id=number(columns, "cgroup_id", row),
        container=_first(columns, row, "k8s.containerName", "runtime.containerName")
        or word(columns, "container_id", row)
        or None,
        node=_first(columns, row, "k8s.node", "node") or node or None,
        namespace=_first(columns, row, "k8s.namespace", "namespace") or None,
        pod=_first(columns, row, "k8s.podName", "pod") or None,
        peak=number(columns, "process_peak", row),
        unknown_frees=number(columns, "unknown_frees", row),
        ended_ns=number(columns, "time_raw", row) - started + start_ns if ended else None,
        before_us=bool(number(columns, "late", row)),
        late_ns=number(columns, "late_ns", row),
        nvml_bytes=number(columns, "nvml_bytes", row) or None,
    )


def caller_info(columns: Columns, row: int, node: str = "") -> ProcessInfo:
    """As much of a process as a row of ``events`` tells."""
    return ProcessInfo(
        instance=number(columns, "process", row),
        pid=number(columns, "proc.pid", row),
        comm=word(columns, "proc.comm", row),
        uid=number(columns, "proc.creds.uid", row),
        gid=number(columns, "proc.creds.gid", row),
        mntns_id=number(columns, "proc.mntns_id", row),
        container=_first(columns, row, "k8s.containerName", "runtime.containerName") or None,
        node=_first(columns, row, "k8s.node", "node") or node or None,
        namespace=_first(columns, row, "k8s.namespace", "namespace") or None,
        pod=_first(columns, row, "k8s.podName", "pod") or None,
    )


def placed(info: ProcessInfo, pod: PodRef) -> ProcessInfo:
    """The process with its pod, as the cluster knows it."""
    return replace(
        info,
        namespace=pod.namespace or info.namespace,
        pod=pod.pod or info.pod,
        container=pod.container or info.container,
        node=pod.node or info.node,
    )


def _first(columns: Columns, row: int, *names: str) -> str:
    for name in names:
        if found := word(columns, name, row):
            return found
    return ""
