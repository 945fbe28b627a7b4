# SPDX-License-Identifier: Apache-2.0
"""Logins for registries, from Docker's config file and the helpers that it names."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from igsdk._errors import RegistryRefused

#: the name under which Docker keeps the login for its own registry
_HUB = "https://index.docker.io/v1/"
_HELPER = re.compile(r"[A-Za-z0-9._-]+")
_HELPER_SECONDS = 30
_NOBODY = "<token>"


@dataclass(frozen=True)
class Login:
    """Name and password, or a token that a registry's token server changes for another."""

    user: str = ""
    password: str = ""
    identity_token: str = ""

    def basic(self) -> str:
        """The value of an Authorization header."""
        pair = f"{self.user}:{self.password}".encode()
        return "Basic " + base64.b64encode(pair).decode()


def config_file() -> Path:
    """Docker's config file, which DOCKER_CONFIG moves; podman's is another."""
    folder = os.environ.get("DOCKER_CONFIG")
    return Path(folder or Path.home() / ".docker") / "config.json"


def find(domain: str) -> Login | None:
    """The login for a registry, or None where there is none.

    Raises:
        RegistryRefused: the config file is broken, or its helper fails.
    """
    config = _config()
    for name in (_HUB, domain) if domain == "docker.io" else (domain, f"https://{domain}"):
        helper = _mapping(config, "credHelpers").get(name) or config.get("credsStore")
        login = _asked(str(helper), name) if helper else None
        login = login or _written(_mapping(config, "auths").get(name))
        if login:
            return login
    return None


def _config() -> dict[str, Any]:
    path = config_file()
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _broken(path) from error
    if not isinstance(config, dict):
        raise _broken(path)
    return config


def _mapping(config: dict[str, Any], key: str) -> dict[str, Any]:
    found = config.get(key) or {}
    if not isinstance(found, dict):
        raise _broken(config_file())
    return found


def _broken(path: Path) -> RegistryRefused:
    return RegistryRefused(
        f"{path}, which holds your logins, cannot be read as JSON.", "Mend it, or log in again."
    )


def _written(entry: Any) -> Login | None:
    """A login that stands in the file itself."""
    if not isinstance(entry, dict):
        return None
    if entry.get("identitytoken"):
        return Login(identity_token=str(entry["identitytoken"]))
    user, password = entry.get("username", ""), entry.get("password", "")
    try:
        pair = base64.b64decode(entry.get("auth") or "").decode()
    except (binascii.Error, UnicodeDecodeError, TypeError) as error:
        raise _broken(config_file()) from error
    if pair:
        user, _, password = pair.partition(":")
    return Login(str(user), str(password).rstrip("\0")) if user else None


def _asked(helper: str, name: str) -> Login | None:
    """A login from docker-credential-HELPER; that it has none is no error."""
    if not _HELPER.fullmatch(helper):
        raise _broken(config_file())
    program = f"docker-credential-{helper}"
    try:
        done = subprocess.run(
            [program, "get"], input=name, capture_output=True, text=True, timeout=_HELPER_SECONDS
        )
        if done.returncode:
            return None
        answer = json.loads(done.stdout)
        user, secret = str(answer["Username"]), str(answer["Secret"])
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        raise RegistryRefused(
            f"{program}, which {config_file()} names, does not answer.",
            "Install it, or log in again with `docker login`.",
        ) from error
    return Login(identity_token=secret) if user == _NOBODY else Login(user, secret)
