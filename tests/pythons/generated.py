# SPDX-License-Identifier: Apache-2.0
"""Code that is made as it runs: names of all sizes and scripts, long tables, reused memory."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import tempfile
import zipfile

from told import P, done, shape, size, take

SAMPLE = "done(take(P, size()))"
SPACE = {"P": P, "done": done, "take": take, "size": size}


def run(source, name="<generated>"):
    """Executes a source; returns what it has defined."""
    space = dict(SPACE)
    exec(compile(source, name, "exec"), space)
    return space


@shape
def executed():
    run(SAMPLE)
    run("def f():\n\n  %s\nf()" % SAMPLE)
    eval("[%s for _ in range(2)]" % SAMPLE, dict(SPACE))
    run("class A:\n  class B:\n    def f(self):\n      %s\nA.B().f()" % SAMPLE)


@shape
def freed_and_reused():
    """Each code object is gone before the next one, which often takes its place."""
    for number in range(40):
        lines = "\n" * (number % 7)
        source = "def name_%d(a):\n%s  b = a\n  %s\nname_%d(1)" % (number, lines, SAMPLE, number)
        run(source, "<code %d>" % (number % 11))
    for number in range(10):
        eval("(lambda: %s)()" % SAMPLE, dict(SPACE))
    for number in range(10):
        # same name, same file, same first line: only the line differs
        run("def same():\n%s  %s\nsame()" % ("  pass\n" * number, SAMPLE), "<same>")
    for number in range(10):
        # the same instructions even
        run("def same():\n%s  %s\nsame()" % ("\n" * number, SAMPLE), "<same>")


@shape
def replaced():
    def original():
        done(take(P, size()))

    code = original.__code__
    for number in range(5):
        changes = {"co_name": "copy%d" % number, "co_firstlineno": 100 * number + 1}
        if hasattr(code, "co_qualname"):
            changes["co_qualname"] = "of.copy%d" % number
        original.__code__ = code.replace(**changes)
        original()
    original.__code__ = code.replace(co_filename="/other/place.py")
    original()


@shape
def long_names():
    for length in (255, 256, 257, 300, 2000):
        run("def %s(): %s\n%s()" % ("n" * length, SAMPLE, "n" * length))
    name = "C" * 300
    run("class %s:\n def method(self): %s\n%s().method()" % (name, SAMPLE, name))
    for length in (511, 512, 513, 3000):
        run(SAMPLE, "/" + "f" * (length - 1))


NAMES = {
    "latin": "caf\xe9\xfc",
    "greek": "\u03b1\u03b2\u03b3",
    "cyrillic": "\u0444\u0443\u043d\u043a\u0446\u0438\u044f",
    "deseret": "\U00010400\U00010401",
    "mixed": "a\xe9\u03b1\U00010400",
    "chinese": "\u5185\u5b58",
}


@shape
def names_of_all_scripts():
    for name in NAMES.values():
        run("def %s(): %s\n%s()" % (name, SAMPLE, name), "/%s.py" % name)
        run("class %s:\n def method(self): %s\n%s().method()" % (name, SAMPLE, name))
        run("def %s(): %s\n%s()" % (name * 150, SAMPLE, name * 150), "/%s.py" % (name * 400))


@shape
def big_functions():
    for body in (400, 3000):
        lines = ["  value = (value + %d) * 2" % number for number in range(body)]
        for place in (1, body // 2, body):
            lines.insert(place, "  " + SAMPLE)
        big = run("def big(value):\n%s\n" % "\n".join(lines), "<big %d>" % body)["big"]
        big(1)


@shape
def line_gaps():
    for gap in (50, 127, 128, 300, 700, 70000):
        source = "def gap():\n  %s%s  %s%s  pass; %s\ngap()"
        newlines = "\n" * gap
        run(source % (SAMPLE, newlines, SAMPLE, "\n" * 5, SAMPLE), "<gap %d>" % gap)
    run("\n" * 100000 + SAMPLE, "<far down>")


def module(folder, name, text):
    path = os.path.join(folder, name + ".py")
    os.makedirs(folder, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def import_from(folder, name):
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        importlib.import_module(name)
    finally:
        sys.path.remove(folder)
        sys.modules.pop(name, None)


MODULE = "from told import P, done, size, take\n%s\ndef later():\n  %s\nlater()\n" % (
    SAMPLE,
    SAMPLE,
)


@shape
def imported():
    with tempfile.TemporaryDirectory() as folder:
        module(folder, "imported_one", "import imported_two\n" + MODULE)
        module(folder, "imported_two", MODULE)
        import_from(folder, "imported_one")
        deep = os.path.join(folder, *["d" * 200] * 4)
        module(deep, "imported_deep", MODULE)
        import_from(deep, "imported_deep")
        foreign = os.path.join(folder, NAMES["mixed"])
        module(foreign, "imported_" + NAMES["cyrillic"], MODULE)
        import_from(foreign, "imported_" + NAMES["cyrillic"])
        runpy.run_path(module(folder, "run_here", MODULE))
        archive = os.path.join(folder, "archive.zip")
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("imported_zip.py", MODULE)
        import_from(archive, "imported_zip")


NEWER = {
    (3, 10): "match [1, 2]:\n  case [one, two]:\n    {0}\n",
    (3, 11): "try:\n  raise ExceptionGroup('g', [ValueError()])\nexcept* ValueError:\n  {0}\n",
    (3, 12): "class G[T]:\n  {0}\n  def m[U: {0}](self, u: U):\n    {0}\nG().m(1)\n"
    "G.m.__type_params__[0].__bound__\n",
    (3, 14): "def f(a: {0}): pass\nf.__annotations__\n",
}


@shape
def newer_syntax():
    for version, source in NEWER.items():
        if sys.version_info >= version:
            run(source.format(SAMPLE), "<syntax of %d.%d>" % version)
