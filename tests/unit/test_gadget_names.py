# SPDX-License-Identifier: Apache-2.0
"""Names of images, completed as Inspektor Gadget completes them."""

from __future__ import annotations

import pytest

from igsdk import UsageError
from igsdk.image.names import parse

HUB = "ghcr.io/inspektor-gadget/gadget"
DIGEST = "sha256:" + "0" * 63 + "a"


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("trace_open", f"{HUB}/trace_open:latest"),
        ("trace_open:v1", f"{HUB}/trace_open:v1"),
        ("foo/bar", "ghcr.io/foo/bar:latest"),
        ("ghcr.io/mine:v1", f"{HUB}/mine:v1"),
        ("docker.io/mine", "docker.io/library/mine:latest"),
        ("index.docker.io/me/mine:v2", "docker.io/me/mine:v2"),
        ("foo/bar/baz:1.2-3", "ghcr.io/foo/bar/baz:1.2-3"),
        ("localhost/mine", "localhost/mine:latest"),
        ("localhost:5000/mine:v2", "localhost:5000/mine:v2"),
        ("registry.example.com/a/b", "registry.example.com/a/b:latest"),
        ("127.0.0.1:5000/x", "127.0.0.1:5000/x:latest"),
        ("[::1]:5000/x", "[::1]:5000/x:latest"),
        ("UPPER/x", "UPPER/x:latest"),
        (f"foo/bar@{DIGEST}", f"ghcr.io/foo/bar@{DIGEST}"),
        (f"foo/bar:v1@{DIGEST}", f"ghcr.io/foo/bar:v1@{DIGEST}"),
        (f"bar@{DIGEST}", f"{HUB}/bar@{DIGEST}"),
    ],
)
def test_names_are_completed(text: str, whole: str) -> None:
    assert str(parse(text)) == whole
    assert parse(whole) == parse(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "/", "a:", "a@", "a@sha256:12", f"a@{DIGEST.upper()}", "a b", "foo/Bar"),
        *("foo//bar", "foo/bar/", "../etc", "foo/bar:ta g", "foo/bar:-x", "a:" + "x" * 129),
        *("foo/" + "x" * 256, "host:port/x", "a\nb", "http://host/x", "foo/b__-_r"),
    ],
)
def test_others_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert repr(text) in caught.value.cause
