# SPDX-License-Identifier: Apache-2.0
"""etcd, API server, controllers and scheduler, all on one address."""

from __future__ import annotations

import json
import secrets
import signal
from dataclasses import dataclass, field
from pathlib import Path

from .api import Api
from .certificates import Authority, write_key
from .services import Service, await_true

PORT = 6443
_SERVICES = "10.96.0.0/24"
_ETCD = "http://127.0.0.1:2379"
#: name -> groups; each has a token. The groups give rights, or RBAC does by name.
SYSTEM_USERS = {
    "admin": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
}
#: What a DaemonSet, a namespace and its service accounts need.
_CONTROLLERS = (
    "daemonset-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
)


@dataclass
class Places:
    """Where programs, their state, their logs and their control groups are.

    ``programs``: Kubernetes's; ``system``: the root folder of what came from packages.
    """

    programs: Path
    system: Path
    state: Path
    logs: Path
    groups: list[Path] = field(default_factory=list)

    def service(self, name: str, *command: str | Path, groups: list[Path] | None = None) -> Service:
        return Service(name, command, groups or self.groups, self.logs / f"{name}.log")


class ControlPlane:
    """Starts at once what needs nobody else; ``start()`` returns when the server is ready.

    Attributes:
        api: calls with all rights.
        server: the API server, which a test may end and start again.
        authority: its certificate is what clients trust.
    """

    def __init__(self, places: Places, address: str, users: dict[str, str]) -> None:
        self._places = places
        self._address = address
        self._tokens: dict[str, str] = {}
        self.url = f"https://{address}:{PORT}"
        self.authority = Authority(places.state)
        self._write_tokens({**SYSTEM_USERS, **users})
        self.api = Api(self.url, self.authority.certificate, self._tokens["admin"])
        self.server = self._server()
        self._etcd = self._etcd_service()
        self._others = [self._controllers(), self._scheduler()]

    @property
    def services(self) -> list[Service]:
        return [self._etcd, self.server, *self._others]

    def start(self) -> None:
        self._etcd.start()
        self.server.start()
        await_true("the API server is ready", self.api.ready, 120, [self._etcd, self.server])
        for service in self._others:
            service.start()

    def stop_server(self) -> None:
        """Ends the API server at once, and with it whatever goes over it."""
        self.server.stop(signal.SIGKILL)

    def start_server(self) -> None:
        """Starts it again."""
        self.server.start()
        await_true("the API server is ready again", self.api.ready, 120, [self.server])

    def kubeconfig(self, user: str, namespace: str = "default", token: str = "") -> Path:
        """A file with one context, called as the user."""
        path = self._places.state / f"{user.replace(':', '-')}.kubeconfig"
        cluster = {
            "server": self.url,
            "certificate-authority": str(self.authority.certificate),
        }
        context = {"cluster": "igsdk", "user": user, "namespace": namespace}
        text = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": user,
            "clusters": [{"name": "igsdk", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token or self._tokens[user]}}],
            "contexts": [{"name": user, "context": context}],
        }
        path.write_text(json.dumps(text, indent=1))
        path.chmod(0o600)
        return path

    def _write_tokens(self, users: dict[str, str]) -> None:
        lines = []
        for name, groups in users.items():
            self._tokens[name] = secrets.token_hex(16)
            lines.append(f'{self._tokens[name]},{name},{name},"{groups}"\n')
        path = self._places.state / "tokens.csv"
        path.write_text("".join(lines))
        path.chmod(0o600)

    def _etcd_service(self) -> Service:
        return self._places.service(
            "etcd",
            self._places.system / "usr/bin/etcd",
            f"--data-dir={self._places.state}/etcd",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--snapshot-count=100000",
        )

    def _server(self) -> Service:
        state = self._places.state
        certificate, key = self.authority.issue(
            "server", "kube-apiserver", self._address, "127.0.0.1", "10.96.0.1"
        )
        client, client_key = self.authority.issue("kubelet-client", "kube-apiserver-kubelet-client")
        write_key(state / "accounts.key")
        return self._places.service(
            "kube-apiserver",
            self._places.programs / "kube-apiserver",
            f"--etcd-servers={_ETCD}",
            f"--bind-address={self._address}",
            f"--advertise-address={self._address}",
            f"--secure-port={PORT}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--token-auth-file={state}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            f"--service-cluster-ip-range={_SERVICES}",
            f"--service-account-issuer={self.url}",
            f"--service-account-key-file={state}/accounts.pub",
            f"--service-account-signing-key-file={state}/accounts.key",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={client}",
            f"--kubelet-client-key={client_key}",
            "--profiling=false",
        )

    def _controllers(self) -> Service:
        return self._places.service(
            "kube-controller-manager",
            self._places.programs / "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig('system:kube-controller-manager')}",
            f"--service-account-private-key-file={self._places.state}/accounts.key",
            f"--root-ca-file={self.authority.certificate}",
            f"--controllers={','.join(_CONTROLLERS)}",
            # RBAC gives its rights to each controller's own account.
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--profiling=false",
        )

    def _scheduler(self) -> Service:
        return self._places.service(
            "kube-scheduler",
            self._places.programs / "kube-scheduler",
            f"--kubeconfig={self.kubeconfig('system:kube-scheduler')}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--profiling=false",
        )
