# SPDX-License-Identifier: Apache-2.0
"""Profiles: stacks x labels x values, at one moment or over one interval."""

from __future__ import annotations

from igsdk.profile.metadata import Metadata, ProcessRow
from igsdk.profile.profile import Profile
from igsdk.profile.store import check_output, write_or_rescue
from igsdk.profile.top import TopRow

__all__ = ["Metadata", "ProcessRow", "Profile", "TopRow", "check_output", "write_or_rescue"]
