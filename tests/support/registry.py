# SPDX-License-Identifier: Apache-2.0
"""Debian's docker-registry on loopback, with its own config and storage; and skopeo."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

USER, PASSWORD = "gadgets", "pass:word"
#: 22 characters of bcrypt's own alphabet, and the cost that makes it fast
_SALT = "$2b$04$abcdefghijklmnopqrstuu"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Running:
    """A registry that answers."""

    address: str
    storage: Path
    authority: Path | None = None

    def tags(self, repository: str) -> list[str]:
        """The tags that its storage has, whatever it may say itself."""
        root = self.storage / "docker/registry/v2/repositories" / repository / "_manifests/tags"
        return sorted(path.name for path in root.iterdir()) if root.is_dir() else []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def registry(folder: Path, *, password: bool = False, tls: bool = False) -> Iterator[Running]:
    """Runs docker-registry; skips with the reason where it is not installed."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed: apt-get install docker-registry")
    folder.mkdir(exist_ok=True)
    port, http = free_port(), {}
    http["addr"] = f"127.0.0.1:{port}"
    config: dict[str, object] = {
        "version": "0.1",
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "storage")}},
        "http": http,
    }
    authority = make_certificates(folder) if tls else None
    if tls:
        files = {"certificate": str(folder / "cert.pem"), "key": str(folder / "key.pem")}
        config["http"] = {**http, "tls": files}
    if password:
        passwords = folder / "htpasswd"
        passwords.write_text(f"{USER}:{_bcrypt(PASSWORD)}\n")
        config["auth"] = {"htpasswd": {"realm": "tests", "path": str(passwords)}}
    path = folder / "config.yml"
    path.write_text(json.dumps(config))
    with (folder / "log").open("w") as log:
        server = subprocess.Popen([program, "serve", str(path)], stdout=log, stderr=log)
    try:
        _wait(server, port, folder / "log")
        yield Running(f"127.0.0.1:{port}", folder / "storage", authority)
    finally:
        server.terminate()
        server.wait(10)


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(200):
        assert server.poll() is None, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError(f"docker-registry does not listen: {log.read_text()}")


def _bcrypt(password: str) -> str:
    """Perl's crypt() is the C library's, which knows bcrypt; every Debian has it."""
    script = "print crypt($ARGV[0], $ARGV[1])"
    done = subprocess.run(["perl", "-e", script, password, _SALT], capture_output=True, text=True)
    assert done.stdout.startswith("$2b$"), done
    return done.stdout


def make_certificates(folder: Path) -> Path:
    """An authority of its own and a certificate for loopback; returns the authority."""
    authority, key = folder / "ca.pem", folder / "ca.key"
    _openssl("/CN=tests", authority, key, "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    signer = ("-CA", str(authority), "-CAkey", str(key))
    names = ("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    leaf = ("-addext", "basicConstraints=critical,CA:FALSE")
    _openssl("/CN=localhost", folder / "cert.pem", folder / "key.pem", *signer, *names, *leaf)
    return authority


def _openssl(subject: str, certificate: Path, key: Path, *more: str) -> None:
    command = ["openssl", "req", "-x509", *_KEY, "-days", "2", "-subj", subject, *more]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)


def log_in(folder: Path, address: str, password: str = PASSWORD) -> Path:
    """Writes what `docker login` would; returns the folder for DOCKER_CONFIG."""
    folder.mkdir(exist_ok=True)
    pair = base64.b64encode(f"{USER}:{password}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {address: {"auth": pair}}}))
    return folder


def skopeo_raw(server: Running, name: str) -> bytes:
    """The bytes that another program reads under a tag; skips where it is not installed."""
    program = shutil.which("skopeo")
    if program is None:
        pytest.skip("skopeo is not installed: apt-get install skopeo")
    command = [program, "inspect", "--raw"]
    if server.authority:
        trusted = server.authority.parent / "trusted"
        trusted.mkdir(exist_ok=True)
        shutil.copy(server.authority, trusted / "ca.crt")
        command += ["--cert-dir", str(trusted)]
    else:
        command.append("--tls-verify=false")
    config = os.environ.get("DOCKER_CONFIG")
    if config:
        command += ["--authfile", f"{config}/config.json"]
    command.append(f"docker://{server.address}/{name}")
    return subprocess.run(command, check=True, capture_output=True).stdout
