# SPDX-License-Identifier: Apache-2.0
"""Names of C++ and Rust symbols as their sources have them."""

from __future__ import annotations

import random
import re
import string
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.debug_programs import has

from igsdk._native import demangle

RUST = {
    "_RNvC6_123foo3bar": "123foo::bar",
    "_RNvCs_7mycrate4main": "mycrate::main",
    "_RNCNvC7mycrate4main0": "mycrate::main::{closure#0}",
    "_RNCNvC7mycrate4mains_0": "mycrate::main::{closure#1}",
    "_RNSNvC7mycrate4main6vtable": "mycrate::main::{shim:vtable#0}",
    "_RNvMC7mycrateNtC7mycrate3Foo3new": "<mycrate::Foo>::new",
    "_RNvXC7mycrateNtC7mycrate3FooNtC7mycrate3Bar2go": "<mycrate::Foo as mycrate::Bar>::go",
    "_RINvC7mycrate4pickNtC7mycrate3FooE": "mycrate::pick::<mycrate::Foo>",
    "_RINvC7mycrate4pickRShOmTlEAcj3_E": "mycrate::pick::<&[u8], *mut u32, (i32,), [char; 3]>",
    "_RINvC7mycrate4pickKj7b_Kln5_Kb1_Kc78_E": "mycrate::pick::<123, -5, true, 'x'>",
    "_RINvC7mycrate4pickFUKCdEuE": 'mycrate::pick::<unsafe extern "C" fn(f64)>',
    "_RINvC7mycrate4pickFG_RL0_hEbE": "mycrate::pick::<for<'a> fn(&'a u8) -> bool>",
    "_RINvC7mycrate4pickDINtC4core4IterhEp4ItemlEL_E": (
        "mycrate::pick::<dyn core::Iter<u8, Item = i32>>"
    ),
    "_RNvC7mycrateu8gdel_5qa": "mycrate::gödel",
    "_RNvC7mycrate4main.llvm.123456": "mycrate::main",
    "_RNvC7mycrate4main.llvm.123456.cold": "mycrate::main.cold",
    "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE": "core::fmt::Formatter::pad",
    "_ZN50_$LT$T$u20$as$u20$core..convert..Into$LT$U$GT$$GT$4into17h0123456789abcdefE": (
        "<T as core::convert::Into<U>>::into"
    ),
    "_ZN4main4go.117h0123456789abcdefE": "main::go.1",
}


@pytest.mark.parametrize("symbol", RUST)
def test_rust(symbol: str) -> None:
    assert demangle(symbol) == (RUST[symbol] or symbol)


@pytest.mark.skipif(not has("llvm-cxxfilt-19"), reason="llvm-cxxfilt-19 is not installed")
def test_rust_agrees_with_llvm() -> None:
    """On the names of a Rust compiler, where one is installed."""
    folder = Path.home() / ".rustup/toolchains"
    libraries = sorted(folder.glob("*/lib/rustlib/*/lib/libstd-*.so"))
    if not libraries:
        pytest.skip(f"there is no Rust in {folder}")
    listing = subprocess.run(["nm", libraries[0]], capture_output=True, text=True).stdout
    names = sorted(set(re.findall(r" (_R\w+|_ZN\w+17h[0-9a-f]{16}E)$", listing, re.MULTILINE)))
    assert len(names) > 100
    told = subprocess.run(
        ["llvm-cxxfilt-19"], input="\n".join(names), capture_output=True, text=True
    ).stdout.splitlines()
    for name, theirs in zip(names, told, strict=True):
        assert demangle(name) == re.sub("::h[0-9a-f]{16}$", "", theirs)


@settings(max_examples=500, deadline=None)
@given(data=st.data())
def test_what_is_no_name_neither_crashes_nor_grows(data: st.DataObject) -> None:
    symbol = data.draw(st.sampled_from(sorted(RUST)))
    letters = st.text("_RNCIMXYTSABDFGKLEsup0179abz$.", max_size=3)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(2, len(symbol)))
        cut = data.draw(st.integers(0, 2))
        symbol = symbol[:at] + data.draw(letters) + symbol[at + cut :]
    assert len(demangle(symbol)) < 100_000


def base62(value: int) -> str:
    """As names have it: "_" is 0, "0_" is 1."""
    digits = ""
    value -= 1
    while value >= 0:
        value, digit = divmod(value, 62)
        digits = (string.digits + string.ascii_letters)[digit] + digits
        value -= value == 0
    return digits + "_"


def doubling(levels: int) -> str:
    """A name whose every level names the one before twice."""
    symbol = "_RINvC1a1bTllE"
    position = symbol.index("T") - 2
    for _ in range(levels):
        back = f"B{base62(position)}"
        position = len(symbol) - 2
        symbol += f"T{back}{back}E"
    return symbol + "E"


def test_a_name_that_repeats_itself_takes_bounded_time() -> None:
    one = "(i32, i32)"
    two = f"({one}, {one})"
    assert demangle(doubling(2)) == f"a::b::<{one}, {two}, ({two}, {two})>"
    symbol = doubling(60)
    began = time.perf_counter()
    assert demangle(symbol) == symbol
    assert time.perf_counter() - began < 1


def test_deep_names_stay_as_they_are() -> None:
    symbol = "_RINvC1a1b" + "R" * 1500 + "lE"
    assert demangle(symbol) == symbol


def test_cxx_keeps_arguments_and_what_the_compiler_split_off() -> None:
    assert demangle("_ZN5store5Shelf3putElPKc") == "store::Shelf::put(long, char const*)"
    assert demangle("_ZN5store5Shelf3putEl.cold").endswith("put(long) [clone .cold]")
    pick = random.Random(5)
    for _ in range(300):
        symbol = "_Z" + "".join(pick.choices("NKSt1239abcIEJT_SsFvPRi", k=pick.randrange(2, 60)))
        assert demangle(symbol)
