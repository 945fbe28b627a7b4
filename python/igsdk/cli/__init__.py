# SPDX-License-Identifier: Apache-2.0
"""The command line: each verb is a few lines over the library."""

from __future__ import annotations

from igsdk.cli.app import main

__all__ = ["main"]
