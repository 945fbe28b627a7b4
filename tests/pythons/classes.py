# SPDX-License-Identifier: Apache-2.0
"""Methods of every kind, also those that C calls, and classes that change."""

from __future__ import annotations

import dataclasses
import enum
import pickle

from told import P, done, shape, size, take


class Base:
    def __init__(self):
        done(take(P, size()))

    def method(self):
        done(take(P, size()))

    @classmethod
    def of_class(cls):
        done(take(P, size()))

    @staticmethod
    def static(self_is_no_self=None):
        done(take(P, size()))

    @property
    def value(self):
        done(take(P, size()))
        return 1

    @value.setter
    def value(self, new):
        done(take(P, size()))

    @value.deleter
    def value(self):
        done(take(P, size()))

    class Inner:
        def method(self):
            done(take(P, size()))

        class Innermost:
            @classmethod
            def of_class(cls):
                done(take(P, size()))


class Derived(Base):
    def __init__(self):
        super().__init__()
        done(take(P, size()))

    def method(self):
        super().method()
        Base.method(self)

    @classmethod
    def of_class(cls):
        super().of_class()


class Grandchild(Derived):
    pass


@shape
def methods():
    for kind in (Base, Derived, Grandchild):
        instance = kind()
        instance.method()
        kind.of_class()
        instance.of_class()
        instance.static()
        kind.static()
        instance.value = instance.value
        del instance.value
    Base.Inner().method()
    Base.Inner.Innermost.of_class()
    bound = instance.method
    bound()


class Point:
    """Made often, so that newer versions call its __init__ by a shortcut."""

    def __init__(self, x, y):
        self.x, self.y = x, y
        if y % 10 == 9:
            done(take(P, size()))


class Line:
    def __init__(self, number):
        self.ends = Point(0, number), Point(1, number)


@shape
def specialised():
    for number in range(60):
        Line(number)
    points = [Point(1, number) for number in range(40)]
    assert len(points) == 40


class Special:
    def __new__(cls, *args):
        done(take(P, size()))
        return super().__new__(cls)

    def __call__(self):
        done(take(P, size()))

    def __enter__(self):
        done(take(P, size()))
        return self

    def __exit__(self, *error):
        done(take(P, size()))

    def __getattr__(self, name):
        done(take(P, size()))
        return name

    def __getitem__(self, index):
        done(take(P, size()))
        return index

    def __lt__(self, other):
        done(take(P, size()))
        return False

    def __eq__(self, other):
        done(take(P, size()))
        return self is other

    def __hash__(self):
        done(take(P, size()))
        return 1

    def __iter__(self):
        done(take(P, size()))
        return self

    def __next__(self):
        done(take(P, size()))
        raise StopIteration

    def __len__(self):
        done(take(P, size()))
        return 0

    def __add__(self, other):
        done(take(P, size()))
        return self

    def __str__(self):
        done(take(P, size()))
        return ""

    def __del__(self):
        done(take(P, size()))


@shape
def called_by_the_interpreter():
    with Special() as special:
        special()
        special.missing
        special[1:2]
        [].append(sorted([special, Special()]))
        [1, special].index(special)
        {special: 1}[special]
        list(special)
        bool(special)
        special + special
        f"{special}"
        getattr(special, "other")
    del special


class Descriptor:
    def __set_name__(self, owner, name):
        done(take(P, size()))

    def __get__(self, instance, owner):
        done(take(P, size()))
        return 1


class Meta(type):
    def __new__(mcs, name, bases, space):
        done(take(P, size()))
        return super().__new__(mcs, name, bases, space)

    def __call__(cls, *args):
        done(take(P, size()))
        return super().__call__(*args)

    def method(self):
        done(take(P, size()))


@shape
def class_bodies():
    class Body(metaclass=Meta):
        done(take(P, size()))
        descriptor = Descriptor()

        def __init_subclass__(cls):
            done(take(P, size()))

        class InBody:
            done(take(P, size()))

    class Below(Body):
        pass

    Below().descriptor
    Below.method()


@dataclasses.dataclass
class Record:
    number: int

    def __post_init__(self):
        done(take(P, size()))

    def __setstate__(self, state):
        done(take(P, size()))


class Colour(enum.Enum):
    RED = 1

    @classmethod
    def _missing_(cls, value):
        done(take(P, size()))
        return cls.RED


@shape
def library_classes():
    pickle.loads(pickle.dumps(Record(1)))
    Colour(5)


class Strange:
    def rebound(self):
        self = 5  # noqa: PLW0642
        done(take(P, size()))
        return self

    def deleted(self):
        del self
        done(take(P, size()))

    def captured(self):
        def inner():
            done(take(P, size()))
            return self

        done(take(P, size()))
        return inner()

    def renamed(self):
        done(take(P, size()))

    def changed(self):
        done(take(P, size()))
        self.__class__ = Base
        done(take(P, size()))


def no_method(self):
    done(take(P, size()))


def no_class_method(cls):
    done(take(P, size()))


@shape
def strange_firsts():
    strange = Strange()
    strange.rebound()
    strange.deleted()
    strange.captured()
    strange.changed()
    no_method(1)
    no_method(int)
    no_class_method(5)
    no_class_method(int)


@shape
def renamed_classes():
    for number in range(4):
        own = type("Own%d" % number, (Strange,), {})
        own().renamed()
        own.__name__ = "Renamed%d" % number
        own().renamed()
        del own
