# SPDX-License-Identifier: Apache-2.0
"""Names of C++ and Rust functions as people read them; files keep them whole."""

from __future__ import annotations

import re

#: so long may template arguments, or those of a lambda, be
_ROOM = 40
#: names in names (Rust: `<<A as B>::C as D>::f`) are looked into so deeply
_DEEPEST = 8
#: of what is looked for before parentheses: ``operator <=>``, with a character before it
_LONGEST_WORD = 16
#: what the compiler adds: versions of the library's ABI, copies of a function
_NOISE = re.compile(r"(?<=std::)__cxx11::|\[abi:[^\]\[]*\]")
_COPIES = re.compile(r"(?: \[clone [^\]\[]*\]| \(\.[^()]*\))+$")
#: what opens or closes; operators that look so do not
_BRACKET = re.compile(
    r"\boperator ?(?:\(\)|\[\]|<=>|->\*?|<<=?|>>=?|[<>]=?)|->|[][(){}<>]"
)  # fmt: skip
_CLOSES = {")": "(", "]": "[", "}": "{", ">": "<"}
#: what stands before a parameter list, and what before other parentheses
_CALLED = re.compile(r"[\w$\])'@]$|\boperator ?\S{1,3}$")
_NOT_CALLED = re.compile(r"\b(?:decltype|noexcept|typeof|alignof|sizeof)$")
#: what stands behind a list: of a method, then its local functions, @plt, or nothing
_QUALIFIERS = re.compile(r"(?: (?:const|volatile|noexcept|&&?))*(?=::|@|$)")
_OPERATOR = re.compile(r"\boperator\b")


def readable(name: str) -> str:
    """The name without parameter lists and return type, with short template arguments.

    ``void a::f<int>(int) const`` is ``a::f<int>``. A name whose brackets do not match stays
    as it is, and so does one without brackets: C, ``file.so+0x12``, most of Python and Go.
    """
    if not any(bracket in name for bracket in "(<["):
        return name
    text = _COPIES.sub("", _NOISE.sub("", name))
    pieces = _pieces(text)
    if pieces is None:
        return text or name
    kept = _without_parameters(pieces)
    if len(kept) < len(pieces):
        kept = _without_return_type(kept)
    return "".join(_shortened(kept)) or name


def _pieces(text: str) -> list[str] | None:
    """What stands outside brackets, and each outermost pair with what is in it, by turns.

    The first piece and every second one are outside, and may be empty. None: brackets
    that do not match.
    """
    pieces, opened, done = [], [], 0
    for match in _BRACKET.finditer(text):
        bracket = match[0]
        if bracket in "([{<":
            opened.append((bracket, match.start()))
        elif bracket in _CLOSES:
            start = _opening(opened, _CLOSES[bracket])
            if start is None:
                return None
            if not opened and start >= 0:
                pieces += [text[done:start], text[start : match.end()]]
                done = match.end()
    return None if opened else [*pieces, text[done:]]


def _opening(opened: list[tuple[str, int]], wanted: str) -> int | None:
    """Takes off what the bracket closes, and says where it began; -1: it closes nothing.

    An angle that other brackets leave open is a comparison, and so is one that nothing opened.
    """
    if wanted == "<":
        return opened.pop()[1] if opened and opened[-1][0] == "<" else -1
    while opened:
        bracket, start = opened.pop()
        if bracket == wanted:
            return start
        if bracket != "<":
            return None
    return None


def _without_parameters(pieces: list[str]) -> list[str]:
    """Without lists of parameters, and without the const behind them."""
    kept = [pieces[0]]
    for place in range(1, len(pieces), 2):
        group, after = pieces[place : place + 2]
        said = _QUALIFIERS.match(after)
        rest = after[said.end() :] if said else after
        # more behind it: the list belongs to a type, not to the name
        ends = said and (rest or place + 2 == len(pieces))
        if ends and group[0] == "(" and _is_called(kept):
            kept[-1] += rest
        else:
            kept += [group, after]
    return kept


def _is_called(before: list[str]) -> bool:
    """Whether parentheses behind these pieces are a list of parameters."""
    if before[-1]:
        end = before[-1][-_LONGEST_WORD:]  # all of it each time would take too long
        return bool(_CALLED.search(end) and not _NOT_CALLED.search(end))
    return len(before) > 1 and before[-2][0] != "("


def _without_return_type(pieces: list[str]) -> list[str]:
    """Without all up to the last blank; those of ``operator bool`` belong to the name."""
    for place in range(0, len(pieces), 2):
        if operator := _OPERATOR.search(pieces[place]):
            begin, name = pieces[: place + 1], pieces[place][operator.start() :]
            begin[-1] = pieces[place][: operator.start()]
            begin = _behind_blank(begin)
            return [*begin[:-1], begin[-1] + name, *pieces[place + 1 :]]
    return _behind_blank(pieces)


def _behind_blank(pieces: list[str]) -> list[str]:
    """What follows the last blank outside brackets."""
    for place in range(len(pieces) - 1, -1, -2):
        _, blank, name = pieces[place].rpartition(" ")
        if blank:
            return [name, *pieces[place + 1 :]]
    return pieces


def _shortened(pieces: list[str], depth: int = 0) -> list[str]:
    """The pieces with what is short enough in their brackets."""
    shown = pieces[:1]
    for place in range(1, len(pieces), 2):
        group, named = pieces[place], place > 1 or bool(pieces[0])
        if len(group) > _ROOM + 2:
            group = _short_group(group, named, depth)
        shown += [group, pieces[place + 1]]
    return shown


def _short_group(group: str, named: bool, depth: int) -> str:
    """Template arguments become a mark; a lambda stays one, and so does a name in a name."""
    if group[0] == "<" and named:
        return "<…>"
    if group.startswith("{lambda("):
        return f"{{lambda(…){group[group.rfind(')') + 1 :]}"
    inner = _pieces(group[1:-1]) if group[0] == "<" and depth < _DEEPEST else None
    return f"<{''.join(_shortened(inner, depth + 1))}>" if inner else group
