# SPDX-License-Identifier: Apache-2.0
"""`igsdk gadget sign`: what cosign would write, checked by openssl; keys that are none."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest
from tests.support import tiny

from igsdk.cli.app import run
from igsdk.image import layout

NAME = "ghcr.io/inspektor-gadget/gadget/tiny"
EC = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")


def make_key(folder: Path, *kind: str) -> Path:
    """A private key by openssl, and its public half beside it."""
    key = folder / "key.pem"
    openssl("genpkey", *kind, "-out", str(key))
    return key


def openssl(*arguments: str) -> str:
    done = subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.tar"
    assert run(["gadget", "build", str(tiny.SOURCE), "-o", str(path)]) == 0
    return path


@pytest.mark.parametrize("password", ["", "secret"])
def test_a_signature_that_openssl_accepts(
    tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    monkeypatch.setenv("COSIGN_PASSWORD", password)
    more = ("-aes-256-cbc", "-pass", f"pass:{password}") if password else ()
    key = make_key(tmp_path, *EC, *more)
    before = layout.read(str(image))
    digest = before.image()["digest"]
    for _ in range(2):
        assert run(["gadget", "sign", str(image), "--key", str(key)]) == 0
    after = layout.read(str(image))
    assert after.image() == before.image()
    tag = f"{digest.replace(':', '-')}.sig"
    [entry] = [one for one in after.entries if layout.entry_name(one) == tag]
    assert len(after.entries) == 2
    assert len(after.blobs) == len(before.blobs) + 3
    manifest = json.loads(after.blob(entry))
    [layer] = manifest["layers"]
    assert layer["mediaType"] == "application/vnd.dev.cosign.simplesigning.v1+json"
    said = after.blob(layer)
    assert json.loads(said) == {
        "critical": {
            "identity": {"docker-reference": NAME},
            "image": {"docker-manifest-digest": digest},
            "type": "cosign container image signature",
        },
        "optional": None,
    }
    signature = base64.b64decode(layer["annotations"]["dev.cosignproject.cosign/signature"])
    files = [tmp_path / name for name in ("payload", "signature", "key.pub")]
    files[0].write_bytes(said)
    files[1].write_bytes(signature)
    openssl(
        "pkey", "-in", str(key), "-passin", f"pass:{password}", "-pubout", "-out", str(files[2])
    )
    verify = ("dgst", "-sha256", "-verify", str(files[2]), "-signature", str(files[1]))
    assert "Verified OK" in openssl(*verify, str(files[0]))


def test_it_is_seen(tmp_path: Path, image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = make_key(tmp_path, *EC)
    assert run(["gadget", "sign", str(image), "--key", str(key)]) == 0
    capsys.readouterr()
    assert run(["gadget", "inspect", str(image)]) == 0
    assert "signed    yes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (("-algorithm", "RSA"), "no ECDSA key on the curve P-256"),
        (("-algorithm", "ED25519"), "no ECDSA key on the curve P-256"),
        (("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"), "on the curve P-256"),
        ((*EC, "-aes-256-cbc", "-pass", "pass:other"), "COSIGN_PASSWORD"),
    ],
)
def test_keys_of_the_wrong_kind(
    tmp_path: Path,
    image: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kind: tuple[str, ...],
    words: str,
) -> None:
    key, before = make_key(tmp_path, *kind), image.read_bytes()
    for password in (None, "wrong"):
        if password:
            monkeypatch.setenv("COSIGN_PASSWORD", password)
        else:
            monkeypatch.delenv("COSIGN_PASSWORD", raising=False)
        assert run(["gadget", "sign", str(image), "--key", str(key)]) == 2
        assert words in capsys.readouterr().err
    assert image.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAA==\n", "cosign generate-key-pair"),
        ("-----BEGIN ENCRYPTED COSIGN PRIVATE KEY-----\nAA==\n", "cosign generate-key-pair"),
        ("-----BEGIN PUBLIC KEY-----\nAA==\n-----END PUBLIC KEY-----\n", "is a public key"),
        ("-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n", "no private key in PEM"),
        ("hello", "no private key in PEM"),
        ("", "no private key in PEM"),
    ],
)
def test_files_that_are_no_keys(
    tmp_path: Path, image: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    (tmp_path / "key.pem").write_text(text)
    assert run(["gadget", "sign", str(image), "--key", str(tmp_path / "key.pem")]) == 2
    assert words in capsys.readouterr().err
    assert run(["gadget", "sign", str(image), "--key", str(tmp_path / "none")]) == 2
