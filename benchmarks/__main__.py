# SPDX-License-Identifier: Apache-2.0
"""``python -m benchmarks [NAME ...]``: all of them, or those named."""

from __future__ import annotations

import importlib
import sys

from . import support

NAMES = (
    *("pairs", "stacks", "interning", "rate", "ends", "attach", "start", "peers"),
    *("rows", "stream", "nodes"),
)


def main(names: list[str]) -> None:
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        sys.exit(f"igsdk: No benchmark is called {unknown[0]}.\nigsdk: There are {NAMES}.")
    support.complain_without_root()
    support.say(support.describe_machine())
    for name in names or NAMES:
        with support.workplace() as folder:
            importlib.import_module(f"benchmarks.{name}").run(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
