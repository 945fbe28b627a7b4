# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the house that no stock tool knows.

Every source names its licence, the BPF folder its own; no file names a package
registry's host; no module is longer than 600 lines; build/ is not ignored.
Prints each breach as `file: what` and exits with 1 if there is one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = {".py", ".pyi", ".c", ".h", ".cpp", ".hpp", ".sh", ".proto"}
GENERATED = re.compile(r"_pb2\.pyi?$")
LONGEST_MODULE = 600
APACHE = "SPDX-License-Identifier: Apache-2.0"
KERNEL = "SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause"
# Written so that this file does not name one itself.
REGISTRY = re.compile(
    r"(?:py"
    r"pi|python"
    r"hosted|test\.py"
    r"pi|crates|npm"
    r"js|deb\.deb"
    r"ian|archive\.ubun"
    r"tu"
    r"|proxy\.go"
    r"lang|maven)\.(?:org|io|com)|--(?:extra-)?index-url[ =]|--find-links[ =]",
    re.IGNORECASE,
)


def tracked() -> list[Path]:
    """Returns the files that git knows, and the new ones that it does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def is_source(path: Path) -> bool:
    if GENERATED.search(path.name):
        return False
    return path.suffix in SOURCES or path.name == "Makefile" or path.parent.name == ".ci"


def breaches(path: Path) -> Iterator[str]:
    """Yields what is wrong with one file."""
    data = path.read_bytes()
    if b"\0" in data[:8000]:
        return
    text = data.decode("utf-8", "replace")
    lines = text.splitlines()
    if is_source(path) and lines:
        licence = KERNEL if path.is_relative_to(ROOT / "bpf") else APACHE
        if not any(licence in line for line in lines[:4]):
            yield f"its first lines do not say {licence}"
        if len(lines) > LONGEST_MODULE:
            yield f"{len(lines)} lines, more than {LONGEST_MODULE}"
    for number, line in enumerate(lines, 1):
        if REGISTRY.search(line):
            yield f"line {number} names a package registry's host or address"


def main() -> int:
    found = [f"{path.relative_to(ROOT)}: {what}" for path in tracked() for what in breaches(path)]
    ignored = subprocess.run(["git", "check-ignore", "-q", "build/setup.sh"], cwd=ROOT, check=False)
    if ignored.returncode == 0:
        found.append(".gitignore: it ignores build/, which holds sources")
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
