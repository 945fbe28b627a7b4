# SPDX-License-Identifier: Apache-2.0
"""The public surface: what it has, what importing it costs, how targets are read."""

from __future__ import annotations

import subprocess
import sys

import pytest

import igsdk

HEAVY = ("numpy", "click", "google", "grpc", "kubernetes", "pynvml", "igsdk._native")


def modules_after(statement: str) -> set[str]:
    """Returns the modules that a fresh interpreter has after the statement."""
    code = f"import sys\n{statement}\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", igsdk.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(igsdk, name) is not None
    assert name in dir(igsdk)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="nothing_of_the_sort"):
        igsdk.nothing_of_the_sort  # noqa: B018


def test_import_is_lazy() -> None:
    assert modules_after("import igsdk").isdisjoint(HEAVY)


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("local", igsdk.UsageError),
        ("local:there", igsdk.UsageError),
        ("smoke:signal", igsdk.UsageError),
        ("tcp://host", igsdk.UsageError),
        ("unix:///nowhere/at/all", igsdk.TargetUnavailable),
        ("k8s:", igsdk.TargetUnavailable),
    ],
)
def test_targets_that_are_none(target: str, error: type[igsdk.IgsdkError]) -> None:
    with pytest.raises(error) as caught:
        igsdk.connect(target)
    assert caught.value.cause
    assert caught.value.remedy


def test_every_error_has_an_exit_code_of_its_own() -> None:
    errors = [getattr(igsdk, name) for name in igsdk.__all__ if name[0].isupper()]
    codes = [
        error.exit_code
        for error in errors
        if isinstance(error, type) and issubclass(error, igsdk.IgsdkError)
    ]
    assert len(codes) == 19
    assert len(set(codes)) == len(codes)
