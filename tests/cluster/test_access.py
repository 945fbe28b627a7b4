# SPDX-License-Identifier: Apache-2.0
"""Who may reach the agents, and what is said to whom it does not work for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.cluster.conftest import Told, rows
from tests.cluster.kube import images
from tests.cluster.kube.cluster import SERVER, Cluster
from tests.cluster.kube.control_plane import PORT
from tests.cluster.kube.services import await_true
from tests.cluster.kube.workloads import GADGET, agents, reference

import igsdk

pytestmark = [pytest.mark.usefixtures("user"), pytest.mark.timeout(600)]

Call = Callable[..., Told]


def test_nodes(made: Cluster, igsdk_command: Call) -> None:
    found = rows(igsdk_command("nodes", "--json"))
    assert {each["node"]: each["pod"] for each in found} == agents(made.plane.api)
    assert {(each["state"], each["version"]) for each in found} == {("ready", igsdk.__version__)}


def test_some_nodes(igsdk_command: Call) -> None:
    (found,) = rows(igsdk_command("nodes", "--json", "--target", "k8s:?node=*-2"))
    assert found["node"] == "node-2"


def test_doctor_finds_nothing_wrong(igsdk_command: Call) -> None:
    done = igsdk_command("doctor", "--target", "k8s:")
    assert done.returncode == 0, done.stdout
    assert "fail" not in done.stdout


def refused(done: Told, code: int, *words: str) -> None:
    """It ended as documented: with a cause and a remedy, and not with a traceback."""
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert "Traceback" not in said
    assert [word for word in words if word not in said] == [], said


def test_a_user_without_rights(
    made: Cluster, igsdk_command: Call, user: Callable[[str], None]
) -> None:
    user("nobody")
    refused(igsdk_command("nodes"), 3, "list pods", "deploy/rbac.yaml")
    with pytest.raises(igsdk.PermissionMissing, match="list pods"), igsdk.connect("k8s:") as gpu:
        gpu.describe("profile_cuda_memory")


def test_a_user_who_may_see_pods_and_not_reach_them(
    made: Cluster, igsdk_command: Call, user: Callable[[str], None]
) -> None:
    made.plane.api.apply(_looker())
    user("looker")
    refused(igsdk_command("doctor", "--target", "k8s:"), 3, "port-forward", "deploy/rbac.yaml")
    refused(igsdk_command("nodes"), 3, *agents(made.plane.api).values(), "pods/portforward")
    with pytest.raises(igsdk.PermissionMissing, match="forward a port"):  # noqa: SIM117
        with igsdk.connect("k8s:") as gpu:
            gpu.describe("profile_cuda_memory")


def _looker() -> list[dict[str, Any]]:
    group = "rbac.authorization.k8s.io"
    head = {"apiVersion": f"{group}/v1", "metadata": {"name": "looker", "namespace": GADGET}}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    subject = {"apiGroup": group, "kind": "User", "name": "looker"}
    role = {"apiGroup": group, "kind": "Role", "name": "looker"}
    binding = {"kind": "RoleBinding", "roleRef": role, "subjects": [subject]}
    return [{**head, "kind": "Role", "rules": [rule]}, {**head, **binding}]


def test_credentials_that_are_no_longer_good(made: Cluster, igsdk_command: Call) -> None:
    path = made.plane.kubeconfig("expired", token="0" * 32)
    refused(igsdk_command("nodes", KUBECONFIG=str(path)), 3)


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        ("k8s://elsewhere", 2, ("elsewhere", "user")),
        ("k8s:?selector=k8s-app%3Dother", 9, ("k8s-app=other",)),
        ("k8s:?node=node-9", 9, ("node-9",)),
        ("k8s:?port=8099", 9, ("8099",)),
    ],
)
def test_a_target_that_leads_nowhere(
    target: str, code: int, words: tuple[str, ...], igsdk_command: Call
) -> None:
    refused(igsdk_command("nodes", "--target", target), code, *words)


def test_from_a_pod_of_the_cluster(made: Cluster) -> None:
    """With no kubeconfig, but a service account of a person's rights: it sees both nodes."""
    api = made.plane.api
    head = {"metadata": {"name": "inside", "namespace": GADGET}}
    group = "rbac.authorization.k8s.io"
    binding = {
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "igsdk-user"},
        "subjects": [{"kind": "ServiceAccount", "name": "inside", "namespace": GADGET}],
    }
    api.apply(
        [
            {**head, "apiVersion": "v1", "kind": "ServiceAccount"},
            {**head, "apiVersion": f"{group}/v1", "kind": "RoleBinding", **binding},
        ]
    )
    pod = reference("inside", GADGET)
    container = {
        "name": "main",
        "image": images.AGENT,
        "imagePullPolicy": "Never",
        "command": ["igsdk", "nodes", "--json"],
        # Nobody forwards the service's address here: there is no kube-proxy.
        "env": [
            {"name": "KUBERNETES_SERVICE_HOST", "value": SERVER},
            {"name": "KUBERNETES_SERVICE_PORT", "value": str(PORT)},
        ],
    }
    pod["spec"] = {
        "serviceAccountName": "inside",
        "restartPolicy": "Never",
        "dnsPolicy": "Default",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    api.apply([pod])
    try:
        await_true("the pod ends", lambda: _phase(api, "inside") in ("Succeeded", "Failed"), 60)
        said = api.logs(GADGET, "inside")
        assert _phase(api, "inside") == "Succeeded", said
    finally:
        api.delete(pod)
    found = [json.loads(line) for line in said.splitlines()]
    assert {each["node"]: each["state"] for each in found} == {"node-1": "ready", "node-2": "ready"}


def _phase(api: Any, name: str) -> str:
    (pod,) = [each for each in api.pods(GADGET) if each["metadata"]["name"] == name]
    return str(pod["status"]["phase"])
