# SPDX-License-Identifier: Apache-2.0
"""What to say of a registry that says no, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from igsdk._errors import RegistryRefused, TargetUnavailable
from igsdk.image import credentials

if TYPE_CHECKING:
    from igsdk.image.transport import Answer


def refusal(domain: str, answer: Answer, method: str) -> RegistryRefused | TargetUnavailable:
    """The error for a status, with the registry's own words."""
    why = answer.reason()
    if answer.status == 401:
        if credentials.find(domain):
            return RegistryRefused(
                f"{domain} does not accept your login{why}.",
                f"Log in again: docker login {domain}.",
            )
        return RegistryRefused(
            f"{domain} asks for a login, and {credentials.config_file()} has none for it{why}.",
            f"Log in: docker login {domain}.",
        )
    if answer.status == 403:
        return RegistryRefused(
            f"{domain} refuses this{why}.", "Ask its owner for the right to do it."
        )
    if answer.status == 404:
        what = "no such image" if method in ("GET", "HEAD") else "no place for this image"
        return RegistryRefused(f"{domain} has {what}{why}.", "Check the name and the tag.")
    if answer.status == 429:
        return TargetUnavailable(f"{domain} asks to slow down{why}.", "Try again later.")
    if answer.status >= 500:
        return TargetUnavailable(
            f"{domain} answers with error {answer.status}{why}.", "Try again later."
        )
    return RegistryRefused(
        f"{domain} answers with {answer.status}{why}.", "Check that it is a registry of images."
    )


def unreachable(domain: str, error: Exception, timeout: float) -> TargetUnavailable:
    """Why there is no answer."""
    import urllib3.exceptions as known

    text = str(error)
    if isinstance(error, known.SSLError):
        if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER" in text:
            return TargetUnavailable(
                f"{domain} does not speak TLS.", "Use --plain-http if that is as it should be."
            )
        if "CERTIFICATE_VERIFY_FAILED" in text:
            return TargetUnavailable(
                f"The certificate of {domain} is not to be trusted here.",
                "Name the file with its authority in the variable SSL_CERT_FILE.",
            )
        return TargetUnavailable(f"No TLS with {domain}: {text}.", "Check its certificate.")
    if isinstance(error, known.TimeoutError) and not isinstance(error, known.NewConnectionError):
        return TargetUnavailable(
            f"{domain} did not answer within {timeout:g} s.", "Check the network, or try later."
        )
    if isinstance(error, known.NameResolutionError):
        return TargetUnavailable(
            f"There is no host {domain}.",
            "Check the registry's name; without one it is Inspektor Gadget's, ghcr.io.",
        )
    return TargetUnavailable(
        f"{domain} cannot be reached: {text.rpartition(': ')[2]}.",
        "Check its name and the network.",
    )


def endless(domain: str, seconds: float) -> TargetUnavailable:
    """For an answer that comes, and never comes to its end."""
    return TargetUnavailable(
        f"{domain} did not come to an end of its answer within {seconds:g} s.",
        "Check the network, try later, or allow more with --timeout.",
    )
