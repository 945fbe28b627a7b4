# SPDX-License-Identifier: Apache-2.0
"""Prints code objects of the standard library: line table and the truth, as JSON lines.

For any CPython from 3.8 on. Argument: takes every so-manieth module.
"""

import dis
import json
import pathlib
import sys
import sysconfig
import warnings

MOST_RANGES = 24
LEFT_OUT = {"lib2to3", "site-packages", "dist-packages", "test", "tests"}


def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, type(code)):
            yield from codes(constant)


def starts(code):
    """(byte offset, line or None) where each range begins."""
    if hasattr(code, "co_lines"):
        return [(start, line) for start, end, line in code.co_lines() if start < end]
    return list(dis.findlinestarts(code))


def chosen(ranges):
    step = max(1, len(ranges) // MOST_RANGES)
    return ranges[::step] + ranges[-1:]


def main():
    warnings.simplefilter("ignore")
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    modules = [p for p in sorted(folder.rglob("*.py")) if not LEFT_OUT & set(p.parts)]
    for path in modules[:: int(sys.argv[1])]:
        try:
            module = compile(path.read_bytes(), str(path), "exec")
        except (SyntaxError, ValueError):
            continue
        for code in codes(module):
            ranges = starts(code)
            ends = [start for start, _ in ranges[1:]] + [len(code.co_code)]
            pieces = [(s, e, line) for (s, line), e in zip(ranges, ends)]  # noqa: B905 - 3.8 has no strict
            table = getattr(code, "co_linetable", None)
            told = {
                "name": path.name + ":" + code.co_name,
                "table": (code.co_lnotab if table is None else table).hex(),
                "first": code.co_firstlineno,
                "ranges": chosen(pieces),
            }
            print(json.dumps(told))


main()
