# SPDX-License-Identifier: Apache-2.0
"""What is suspended and resumed: generators, comprehensions, coroutines, greenlets."""

from __future__ import annotations

import asyncio
import contextvars
import types

import told
from told import P, done, shape, size, take


def numbers(count):
    for number in range(count):
        done(take(P, size()))
        yield number


def through(count):
    yield from numbers(count)
    done(take(P, size()))
    yield from (number for number in numbers(1))


def twice(count):
    answer = yield from through(count)
    return answer


@shape
def generators():
    list(numbers(2))
    for _ in numbers(2):
        done(take(P, size()))
    list(twice(2))
    sum(number for number in twice(1))
    one, two = numbers(3), numbers(3)
    next(one), next(two), next(one)
    [*one, *two]


def closed():
    try:
        while True:
            done(take(P, size()))
            try:
                yield
            except ValueError:
                done(take(P, size()))
    finally:
        done(take(P, size()))


@shape
def generators_from_outside():
    generator = closed()
    next(generator)
    generator.send(None)
    generator.throw(ValueError())
    generator.close()
    left = closed()
    next(left)
    del left


@shape
def comprehensions():
    [done(take(P, size())) for _ in range(2)]
    {done(take(P, size())) for _ in range(2)}
    {number: done(take(P, size())) for number in range(2)}
    list(done(take(P, size())) for _ in range(2))
    [[done(take(P, size())) for _ in range(2)] for _ in range(1)]
    any(done(take(P, size())) for _ in range(2))
    [(lambda: done(take(P, size())))() for _ in range(1)]


async def leaf():
    done(take(P, size()))
    await asyncio.sleep(0)
    done(take(P, size()))


async def awaits(depth):
    if depth:
        await awaits(depth - 1)
    else:
        await leaf()
    done(take(P, size()))


async def items(count):
    for number in range(count):
        done(take(P, size()))
        yield number
        await asyncio.sleep(0)


class Resource:
    async def __aenter__(self):
        done(take(P, size()))

    async def __aexit__(self, *error):
        await leaf()
        done(take(P, size()))

    async def method(self):
        done(take(P, size()))

    def __await__(self):
        done(take(P, size()))
        yield from asyncio.sleep(0).__await__()
        done(take(P, size()))


async def everything():
    await awaits(5)
    await asyncio.gather(leaf(), awaits(2), Resource().method())
    task = asyncio.ensure_future(awaits(1))
    async for _ in items(2):
        done(take(P, size()))
    [number async for number in items(2)]
    async with Resource():
        done(take(P, size()))
    await Resource()
    await task
    loop = asyncio.get_running_loop()
    loop.call_soon(lambda: done(take(P, size())))
    loop.call_soon(contextvars.copy_context().run, in_context)
    await loop.run_in_executor(None, in_executor)
    await asyncio.wait_for(leaf(), 5)


def in_context():
    done(take(P, size()))


def in_executor():
    told.join()
    done(take(P, size()))


@shape
def asyncio_run():
    asyncio.run(everything())


@types.coroutine
def old_style():
    done(take(P, size()))
    yield
    done(take(P, size()))


async def driven():
    await old_style()
    done(take(P, size()))


@shape
def driven_by_hand():
    coroutine = driven()
    coroutine.send(None)
    try:
        coroutine.send(None)
    except StopIteration:
        done(take(P, size()))


@shape
def greenlets():
    try:
        from greenlet import greenlet
    except ImportError:
        told.skip("greenlet is not installed for this interpreter")
        return

    def first(depth):
        if depth:
            return first(depth - 1)
        done(take(P, size()))
        other.switch(3)
        done(take(P, size()))
        return None

    def second(depth):
        if depth:
            second(depth - 1)
            return
        done(take(P, size()))
        inner = greenlet(lambda: done(take(P, size())))
        inner.switch()
        one.switch()

    one, other = greenlet(first), greenlet(second)
    one.switch(5)
    done(take(P, size()))
