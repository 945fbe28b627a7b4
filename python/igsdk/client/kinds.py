# SPDX-License-Identifier: Apache-2.0
"""The kinds of values: what the numbers of a description mean, and how wide values are."""

from __future__ import annotations

from dataclasses import dataclass

#: added to the kind of the elements
ARRAY = 0x1000_0000


@dataclass(frozen=True)
class Kind:
    """What a field's values are.

    Attributes:
        name: bool, int8 … int64, uint8 … uint64, float32, float64, string, cstring (text
            up to the first zero byte) or bytes; of the elements where it is an array.
        width: bytes of one value or element; 0 where values have lengths of their own.
        code: the letter for it in `struct`; empty without a width.
        array: whether a value is a list of these.
    """

    name: str
    width: int = 0
    code: str = ""
    array: bool = False

    def __str__(self) -> str:
        return f"{self.name}[]" if self.array else self.name

    @property
    def is_text(self) -> bool:
        return self.name in ("string", "cstring") and not self.array

    @property
    def is_number(self) -> bool:
        """Also bool; not arrays of them."""
        return self.width > 0 and not self.array

    @property
    def dtype(self) -> str:
        """In numpy's words, without the byte order: ``u4``; a bool is read as a number."""
        letter = {"b": "u", "u": "u", "i": "i", "f": "f"}[self.name[0]]
        return f"{letter}{self.width}"


# A bool is true when its byte is 1, so it is read as a number first.
_NUMBERS = {
    1: Kind("bool", 1, "B"),
    2: Kind("int8", 1, "b"),
    3: Kind("int16", 2, "h"),
    4: Kind("int32", 4, "i"),
    5: Kind("int64", 8, "q"),
    6: Kind("uint8", 1, "B"),
    7: Kind("uint16", 2, "H"),
    8: Kind("uint32", 4, "I"),
    9: Kind("uint64", 8, "Q"),
    10: Kind("float32", 4, "f"),
    11: Kind("float64", 8, "d"),
}
BYTES = Kind("bytes")
_TEXTS = {12: Kind("string"), 13: Kind("cstring"), 14: BYTES}


def kind_of(number: int) -> Kind:
    """The kind behind a description's number; bytes for numbers that nobody knows yet.

    An array of texts would have no way to say where each one ends, so it is bytes too.
    """
    if number & ARRAY:
        element = _NUMBERS.get(number & ~ARRAY)
        return Kind(element.name, element.width, element.code, True) if element else BYTES
    return _NUMBERS.get(number) or _TEXTS.get(number, BYTES)
