# SPDX-License-Identifier: Apache-2.0
"""One question to many at once, in threads that keep nobody from leaving."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from igsdk._errors import IgsdkError, TargetUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

_THREADS = 16
_TOLD = 5


def ask_all(
    whom: Sequence[Asked], question: Callable[[Asked], Answer], *, first: bool = False
) -> list[tuple[Asked, Answer | IgsdkError]]:
    """Their answers, or the errors of ours that the question raised.

    Args:
        first: whether one answer that is no error is enough; then those that have not
            answered yet are left out.

    Raises:
        Exception: whatever else the question raised.
    """
    asking: SimpleQueue[int] = SimpleQueue()
    said: SimpleQueue[tuple[int, Answer | Exception]] = SimpleQueue()
    over = threading.Event()
    for place in range(len(whom)):
        asking.put(place)

    def work() -> None:
        while not over.is_set():
            try:
                place = asking.get_nowait()
            except Empty:
                return
            try:
                said.put((place, question(whom[place])))
            except Exception as error:
                said.put((place, error))

    for _ in range(min(_THREADS, len(whom))):
        threading.Thread(target=work, name="igsdk ask", daemon=True).start()
    try:
        answers = _gather(said, len(whom), first)
    finally:  # also where ctrl-C ends it: nobody who was not asked yet will be
        over.set()
    return [(whom[place], answers[place]) for place in sorted(answers)]


def _gather(
    said: SimpleQueue[tuple[int, Answer | Exception]], count: int, first: bool
) -> dict[int, Answer | IgsdkError]:
    answers: dict[int, Answer | IgsdkError] = {}
    while len(answers) < count:
        place, answer = said.get()
        if isinstance(answer, Exception) and not isinstance(answer, IgsdkError):
            raise answer
        answers[place] = answer
        if first and not isinstance(answer, IgsdkError):
            break
    return answers


def none_of(errors: Sequence[tuple[str, IgsdkError]], does: str) -> IgsdkError:
    """Why no node does something: the reason itself where there is one, else a list of them."""
    if not errors:
        return TargetUnavailable("The fleet has no members.", "Name a target, or wait for one.")
    first = errors[0][1]
    if len(errors) == 1:
        return first
    kind = type(first) if len({type(error) for _, error in errors}) == 1 else TargetUnavailable
    told = " ".join(f"{name}: {error.cause}" for name, error in errors[:_TOLD])
    more = f" And {len(errors) - _TOLD} more." if len(errors) > _TOLD else ""
    return kind(f"None of {len(errors)} nodes {does}. {told}{more}", first.remedy)
