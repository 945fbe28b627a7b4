// SPDX-License-Identifier: Apache-2.0
// Address spaces and unwinding as Python sees them: for tests, and for one stack at a time.
#include "parts.h"
#include "unwind.h"

#include <pybind11/stl.h>

namespace py = pybind11;

namespace igsdk {
namespace {

using Returns = std::vector<std::pair<uint64_t, uint64_t>>;

igsdk_capture capture_of(uint32_t pid, const std::string &registers, size_t stack_bytes,
                         const Returns &returns, bool all) {
    if (registers.size() % 8 || registers.size() > sizeof(igsdk_capture::registers))
        throw py::value_error("registers are words of eight bytes, 33 at most");
    if (returns.size() > IGSDK_MAX_RETURNS || stack_bytes > UINT32_MAX)
        throw py::value_error("too many return probes, or too much stack");
    igsdk_capture head{};
    head.pid = pid;
    head.stack_bytes = static_cast<uint32_t>(stack_bytes);
    head.flags = all ? IGSDK_CAPTURE_NATIVE | IGSDK_CAPTURE_STACK_END : IGSDK_CAPTURE_NATIVE;
    std::memcpy(head.registers, registers.data(), registers.size());
    for (const auto &[where, address] : returns)
        head.returns[head.n_returns++] = {where, address};
    return head;
}

std::string name_of(const Unwound::Frame &frame, const Space &space, Spaces &spaces) {
    if (auto file = spaces.files().at(frame.file))
        return file->path;
    const Region *region = space.find(frame.pc);
    return region ? region->name : "";
}

// A list of (pc, path, offset, slot, guessed), and why it ends there.
py::tuple unwound(Spaces &spaces, uint32_t pid, const std::string &registers,
                  const std::string &stack, const Returns &returns, bool all) {
    igsdk_capture head = capture_of(pid, registers, stack.size(), returns, all);
    Unwound result;
    std::shared_ptr<const Space> space;
    {
        py::gil_scoped_release released;
        result = unwind(head, reinterpret_cast<const uint8_t *>(stack.data()), spaces);
        space = spaces.snapshot(pid);
    }
    py::list frames;
    for (const Unwound::Frame &frame : result.frames)
        frames.append(py::make_tuple(frame.pc, file_text(name_of(frame, *space, spaces)),
                                     frame.offset, frame.slot, frame.guessed));
    return py::make_tuple(frames, why_it_ended(result.end));
}

// Unwinds one stack over and over; returns nanoseconds of this thread for each.
double unwind_cost(Spaces &spaces, uint32_t pid, const std::string &registers,
                   const std::string &stack, size_t times) {
    igsdk_capture head = capture_of(pid, registers, stack.size(), {}, false);
    uint64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (size_t i = 0; i < times; i++)
        unwind(head, reinterpret_cast<const uint8_t *>(stack.data()), spaces);
    return static_cast<double>(clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin) /
           static_cast<double>(times);
}

py::list regions(Spaces &spaces, uint32_t pid) {
    std::shared_ptr<const Space> space;
    {
        py::gil_scoped_release released;
        space = spaces.snapshot(pid);
    }
    py::list result;
    for (const Region &region : space->regions())
        result.append(py::make_tuple(region.start, region.end, region.offset,
                                     file_text(region.name), region.file ? region.file->id : 0));
    return result;
}

} // namespace
} // namespace igsdk

void register_unwinding(py::module_ &m) {
    using namespace igsdk;
    using Released = py::call_guard<py::gil_scoped_release>;
    py::class_<Spaces>(m, "Spaces")
        .def(py::init<MapWatch *>(), py::arg("watch").none(true) = nullptr, py::keep_alive<1, 2>())
        .def("admit", &Spaces::admit, py::arg("pid"), Released())
        .def("generation", &Spaces::generation, py::arg("pid"))
        .def("reread", &Spaces::reread, py::arg("pid"), Released())
        .def("regions", &regions, py::arg("pid"))
        .def_property_readonly("files", [](Spaces &spaces) { return spaces.files().size(); })
        .def("unwind", &unwound, py::arg("pid"), py::arg("registers"), py::arg("stack"),
             py::arg("returns") = Returns(), py::arg("all") = false)
        .def("unwind_cost", &unwind_cost, py::arg("pid"), py::arg("registers"), py::arg("stack"),
             py::arg("times"), Released());
}
