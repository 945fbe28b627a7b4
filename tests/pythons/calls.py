# SPDX-License-Identifier: Apache-2.0
"""Functions in functions, recursion, errors, lines: what every program is made of."""

from __future__ import annotations

import contextlib
import functools

from told import P, done, held, shape, size, take


@shape
def function():
    done(take(P, size()))


@shape
def lock_held():
    done(held(P, size()))


@shape
def called_by_c():
    list(map(done, map(take, [P], [size()])))
    done(functools.partial(take, P)(size()))
    done(take(*[P], *[size()]))


@shape
def lambdas():
    (lambda: done(take(P, size())))()
    (lambda first: (lambda second: first(second))(P))(lambda pointer: done(take(pointer, size())))
    sample = lambda: done(take(P, size()))  # noqa: E731
    sample()


@shape
def nested():
    def outer(value):
        def middle():
            def inner():
                done(take(P, size()))
                return value

            return inner()

        return middle()

    outer(1)


def plain_decorator(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def decorator_with(count):
    def decorate(function):
        def repeated(*args):
            for _ in range(count):
                function(*args)

        return repeated

    return decorate


class Decorator:
    def __init__(self, function):
        self.function = function

    def __call__(self, *args):
        return self.function(*args)


@plain_decorator
@decorator_with(2)
@Decorator
def decorated_function(number):
    done(take(P, size()))


def deferred(function):
    """A decorator that samples while it decorates."""
    done(take(P, size()))
    return function


@shape
def decorated():
    decorated_function(1)

    @plain_decorator
    @deferred
    @plain_decorator
    def decorated_here():
        done(take(P, size()))

    decorated_here()


def recurse(depth):
    if depth:
        return recurse(depth - 1)
    return done(take(P, size()))


def even(depth):
    if depth == 0:
        return done(take(P, size()))
    return odd(depth - 1)


def odd(depth):
    return even(depth - 1)


@shape
def recursion():
    recurse(200)
    even(60)
    try:
        recurse(900)
    except RecursionError:  # -X perf of 3.12 has C frames too, and not room for as many
        recurse(400)


@functools.lru_cache(maxsize=None)
def cached(number):
    done(take(P, size()))
    return number and cached(number - 1)


@functools.singledispatch
def dispatched(value):
    done(take(P, size()))


@dispatched.register(int)
def _(value):
    done(take(P, size()))


@shape
def functools_of_c():
    cached.cache_clear()
    cached(3)
    dispatched("text")
    dispatched(5)
    functools.reduce(lambda total, number: done(take(P, size())) or number, [1, 2, 3])
    functools.partial(decorated_function, 1)()


@shape
def sorting():
    def key(value):
        done(take(P, size()))
        return -value

    sorted([3, 1, 2], key=key)
    max([1, 2], key=lambda value: done(take(P, size())) or value)
    sorted([2, 1], key=functools.cmp_to_key(lambda one, two: done(take(P, size())) or one - two))
    list(map(key, [1, 2]))
    list(filter(lambda value: done(take(P, size())), [1]))


def fails():
    try:
        raise ValueError
    except ValueError:
        done(take(P, size()))
        raise
    finally:
        done(take(P, size()))


@shape
def errors():
    try:
        fails()
    except ValueError:
        done(take(P, size()))
    else:
        raise AssertionError
    with contextlib.suppress(ZeroDivisionError):
        try:
            1 / 0
        finally:
            done(take(P, size()))
    for _ in range(2):
        try:
            continue
        finally:
            done(take(P, size()))


@contextlib.contextmanager
def manager():
    done(take(P, size()))
    try:
        yield
    finally:
        done(take(P, size()))


@shape
def managers():
    with manager(), manager():
        done(take(P, size()))
    with contextlib.ExitStack() as stack:
        stack.enter_context(manager())
        stack.callback(lambda: done(take(P, size())))


def sample(*_, **__):
    done(take(P, size()))
    return sample


# fmt: off
@shape
def lines():
    """The line is that of the call, wherever its arguments stand."""
    sample(
        1,
        2,
        three=sample(
            4,
        ),
    )
    sample(
        # a comment

        sample
    )(
        1
    )
    value = [
        sample(),
        sample() and
        sample(),
    ]
    assert (
        value
        and sample(
            value
        )
    )
    text = "%s %s" % (
        sample(),
        "long"
        "string",
    ); sample()  # noqa: E702
    for _ in range(2): sample(); text  # noqa: E701, E702
    number = sample() \
        and len(text) \
        and sample()
    while number:
        number = None
        sample()
    else:
        sample()
    return (
        number
        or sample()
    )


# fmt: on
@shape
def assignments():
    holder = type("Holder", (), {})()
    holder.one, (holder.two, *holder.rest) = sample(), [sample(), sample()]
    if (walrus := sample()) and not sample:
        pass
    print(f"{sample() and ''}{walrus and ''}", end="")
    del holder.one
