# SPDX-License-Identifier: Apache-2.0
"""``python -m igsdk.cli``, for a machine where the script is not in PATH."""

from __future__ import annotations

from igsdk.cli import main

if __name__ == "__main__":
    main()
