# SPDX-License-Identifier: Apache-2.0
"""Names of functions as people read them: most are from libtorch, libLLVM and Rust's std."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from igsdk._events import Event, Frame, ProcessInfo, Stack
from igsdk._function_names import readable
from igsdk.views.text import frame_label

ALLOCATOR = "c10::cuda::CUDACachingAllocator::Native::"
STRING = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"
SHORTER = {
    # parameter lists and what stands behind them
    f"{ALLOCATOR}DeviceCachingAllocator::malloc(unsigned long, CUstream_st*)": (
        f"{ALLOCATOR}DeviceCachingAllocator::malloc"
    ),
    f"{ALLOCATOR}DeviceCachingAllocator::alloc_block(AllocParams&, bool, bool) const": (
        f"{ALLOCATOR}DeviceCachingAllocator::alloc_block"
    ),
    "at::Tensor::expect_contiguous(c10::MemoryFormat) const &": "at::Tensor::expect_contiguous",
    "take(int) &&": "take",
    f"torch::jit::f[abi:cxx11]({STRING} const&) const": "torch::jit::f",
    "cold(int) [clone .isra.0] [clone .cold]": "cold",
    "cold(int) (.cold)": "cold",
    "stub(int)@plt": "stub@plt",
    "gloo::Thing<int>::~Thing()": "gloo::Thing<int>::~Thing",
    "non-virtual thunk to at::Thing::go(int)": "at::Thing::go",
    "fbgemm::Kernel<2, (fbgemm::set_t)1>::runtime()::rt": (
        "fbgemm::Kernel<2, (fbgemm::set_t)1>::runtime::rt"
    ),
    # return types
    "void gloo::copyAsync<gloo::float16>(gloo::HostPointer<gloo::float16>&)": (
        "gloo::copyAsync<gloo::float16>"
    ),
    "std::vector<at::Tensor, std::allocator<at::Tensor> > at::unary<Half>(ArrayRef<Tensor>)": (
        "at::unary<Half>"
    ),
    "decltype ((x)->y) get<int>(int)": "get<int>",
    "decltype(auto) get<int>(int)": "get<int>",
    "std::enable_if<((sizeof (int))>(4)), int>::type get<int>(int)": "get<int>",
    "void (anonymous namespace)::kernel<float>(float*)": "(anonymous namespace)::kernel<float>",
    # operators
    "A::operator()(int) const": "A::operator()",
    "A::operator->() const": "A::operator->",
    "A::operator->*(int)": "A::operator->*",
    "A::operator[](int)": "A::operator[]",
    "A::operator,(int)": "A::operator,",
    "A::operator bool() const": "A::operator bool",
    "A::operator std::vector<int>() const": "A::operator std::vector<int>",
    "auto A::operator<=>(B const&) const": "A::operator<=>",
    "bool operator< <int>(A<int> const&, A<int> const&)": "operator< <int>",
    "bool operator><int>(A<int> const&, A<int> const&)": "operator><int>",
    "std::ostream& std::operator<< <char>(std::ostream&, char)": "std::operator<< <char>",
    "operator new(unsigned long)": "operator new",
    "void* operator new[]<int>(unsigned long)": "operator new[]<int>",
    'operator"" _mb(unsigned long long)': 'operator"" _mb',
    # functions in functions
    "at::scatter<true>::operator()(at::Tensor const&)::{lambda()#2}::operator()() const": (
        "at::scatter<true>::operator()::{lambda()#2}::operator()"
    ),
    "f(int) const::{lambda(int, std::vector<at::Tensor, std::allocator<at::Tensor> >)#1}"
    "::operator()(int) const": "f::{lambda(…)#1}::operator()",
    "f(int)::'lambda'(float)::operator()(float) const": "f::'lambda'::operator()",
    # template arguments
    "at::native::DispatchStub<void (*)(at::TensorIteratorBase&), at::native::stub>::call()": (
        "at::native::DispatchStub<…>::call"
    ),
    "std::_Function_handler<void (int), f(int)::{lambda(int)#1}>::_M_invoke(int&&)": (
        "std::_Function_handler<void (int), f(int)::{lambda(int)#1}>::_M_invoke"
    ),
    "void call<&(bar(int))>(int)": "call<&(bar(int))>",
    "std::__cxx11::basic_string<char>::append(char const*)": "std::basic_string<char>::append",
    # Rust
    "<Map<I, F> as core::iter::Iterator>::fold::<(), core::iter::for_each::{closure#0}, Other>": (
        "<Map<I, F> as core::iter::Iterator>::fold::<…>"
    ),
    "<alloc::vec::Vec<T> as core::FromIterator<alloc::string::String, core::alloc::Global>>"
    "::from_iter": "<alloc::vec::Vec<T> as core::FromIterator<…>>::from_iter",
}
THE_SAME = (
    "cuMemAlloc_v2",
    "libx.so+0x12",
    "<module>",
    "f.<locals>.<lambda>",
    "main (train.py:12)",
    "main.(*Tree[...]).Insert",
    "main.Map[go.shape.int].func1",
    "-[NSThing go:]",
    "void (*signal_of<int>(int))(char)",
    "<fn(u8) -> u8 as core::ops::FnOnce<(u8,)>>::call_once",
    "std::rt::lang_start::<()>::{closure#0}",
    "core::ops::function::FnOnce::call_once{{vtable.shim}}",
    "cut::in<the::mid",
    "cut(in the",
    "java.lang.Thing.go(int) void",
    "()",
    "<>",
    "operator",
    "",
)


@pytest.mark.parametrize("name", SHORTER)
def test_what_is_shorter(name: str) -> None:
    assert readable(name) == SHORTER[name]
    assert readable(SHORTER[name]) == SHORTER[name]


@pytest.mark.parametrize("name", THE_SAME)
def test_what_stays(name: str) -> None:
    assert readable(name) == name


WORDS = ["::", "a", "operator", "std::__cxx11::", "{lambda(", ")#1}", "->", "decltype", "x" * 50]
BEHIND = [" const", "[abi:x]", " [clone .cold]", "(anonymous namespace)"]
PIECES = st.sampled_from([*"()[]{}<>", *" :*&~,.'-@…", *WORDS, *BEHIND])


@settings(max_examples=1000, deadline=None)
@given(st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=40).map("".join)))
def test_any_text_has_a_name(text: str) -> None:
    shown = readable(text)
    assert bool(shown) == bool(text)
    assert len(shown) <= len(text)


@pytest.mark.parametrize("unit", ["<", "a<", "(", "<(", "()", "a()::", "<>", " [clone x]", "> "])
def test_a_name_without_end_takes_no_time(unit: str) -> None:
    text = unit * (40_000 // len(unit))
    start = time.process_time()
    for name in (text, text + ")" * 20_000, text + ">" * 20_000):
        assert readable(name)
    assert time.process_time() - start < 5


def test_views_shorten_native_names_only() -> None:
    name = "void alloc<int>(unsigned long)"
    process = ProcessInfo(1, 2, comm="p")
    for kind, shown in (("native", "alloc<int>"), ("interpreter", "alloc<int>"), ("python", name)):
        frame = Frame(name, "a.cpp", 7, kind=kind)  # type: ignore[arg-type]
        assert frame_label(frame) == f"{shown}  a.cpp:7"
        assert frame.name == name
    event = Event(
        *("failure", 0, process, 2, "cuMemAlloc_v2", "device", 0, 0, 1, 2, "OOM", 0, 0),
        stack=Stack.of([Frame(name)]),
    )
    assert str(event).endswith("  at alloc<int>")
