# SPDX-License-Identifier: Apache-2.0
"""What people and scripts get to see: reports of profiles, lines of events."""

from __future__ import annotations

from igsdk.views.events import event_json, event_line
from igsdk.views.report import report_record, report_text

__all__ = ["event_json", "event_line", "report_record", "report_text"]
