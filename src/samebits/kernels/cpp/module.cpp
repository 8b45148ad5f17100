// The native part of samebits as Python sees it: a team of threads, and programs that run on it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <stdexcept>
#include <tuple>

#include "runtime/bandwidth.h"
#include "runtime/float_mode.h"
#include "runtime/isa.h"
#include "runtime/layouts.h"
#include "runtime/program.h"

namespace nb = nanobind;
using namespace samebits;

namespace {

using DimTuple = std::tuple<int, int64_t, int64_t>;

int add_tensor(Program& program, int format, const std::vector<DimTuple>& dims, int64_t row_stride) {
    std::vector<Dim> converted;
    for (auto [symbol, factor, plus] : dims) converted.push_back({symbol, factor, plus});
    return program.add_tensor(Format(format), converted, row_stride);
}

// A team as Python owns it. In a fork its threads are nowhere, so it cannot run there, nor be taken down.
struct OwnedTeam {
    explicit OwnedTeam(int most, bool adapts) : team(new Team(most, adapts)), process(getpid()) {}
    ~OwnedTeam() {
        if (is_here()) delete team;
    }
    OwnedTeam(const OwnedTeam&) = delete;
    bool is_here() const { return getpid() == process; }

    Team* const team;
    const pid_t process;
};

nb::object run(Program& program, OwnedTeam& owned, const std::vector<int64_t>& sizes) {
    if (!owned.is_here()) throw std::runtime_error("the team's threads are in the process this one was forked from");
    StepFailure end;
    {
        nb::gil_scoped_release released;
        end = program.run(*owned.team, sizes);
    }
    if (!end.op) return nb::none();
    return nb::make_tuple(end.op, end.failure.argument, end.failure.given, end.failure.needed);
}

void trim_memory() {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

nb::dict features() {
    nb::dict found;
    for (const CpuFeature& feature : cpu_features()) found[feature.name] = feature.present;
    return found;
}

nb::list isas() {
    nb::list names;
    for (const OpTable* table : available_tables()) names.append(table->isa);
    return names;
}

nb::dict ops(const std::string& isa) {
    nb::dict splits;
    const OpTable& table = table_named(isa);
    const char* const names[] = {"rows", "cells", "free"};
    for (int i = 0; i < table.num_ops; i++) splits[table.ops[i].name] = names[int(table.ops[i].split)];
    return splits;
}

// A weight as rows lie in a model file into rows16; its leading axes are matrices one after another.
bool pack_rows(int format, int64_t matrices, int64_t rows, int64_t width, nb::ndarray<const uint8_t, nb::c_contig> from,
               nb::ndarray<uint8_t, nb::c_contig> to) {
    const OpTable& table = *available_tables().front();
    const size_t stride = size_t(row_bytes(Format(format), width)), bytes = table.rows16_bytes(Format(format), rows, width);
    if (from.nbytes() != stride * size_t(rows * matrices) || to.nbytes() != bytes * size_t(matrices))
        throw std::invalid_argument("a weight's bytes do not fit its shape");
    nb::gil_scoped_release released;
    const KernelMode mode;
    bool allowed = true;
    for (int64_t m = 0; m < matrices; m++)
        allowed &= table.pack_rows16(reinterpret_cast<const char*>(from.data()) + size_t(m * rows) * stride, stride,
                                     Format(format), rows, width, 0, (rows + 15) / 16, to.data() + size_t(m) * bytes);
    return allowed;
}

int64_t rows16_bytes(int format, int64_t matrices, int64_t rows, int64_t width) {
    return matrices * int64_t(available_tables().front()->rows16_bytes(Format(format), rows, width));
}

using ByteArray = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig>;
using Mover = void (*)(const std::string&, const std::vector<int64_t>&, const std::string&, Bytes, Bytes);

template <Mover move>
void moved(const std::string& format, const std::vector<int64_t>& shape, const std::string& layout,
           nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig> from, ByteArray to) {
    nb::gil_scoped_release released;
    const KernelMode mode;
    char* read_only = const_cast<char*>(reinterpret_cast<const char*>(from.data()));
    move(format, shape, layout, {read_only, from.nbytes()}, {reinterpret_cast<char*>(to.data()), to.nbytes()});
}

}  // namespace

NB_MODULE(_native, m) {
    m.def("flushes_subnormals", &flushes_subnormals, "Whether this thread's arithmetic takes subnormals for zero.");
    m.def("flush_subnormals", &flush_subnormals, nb::arg("on"), "Sets it, for this thread and the teams it calls.");
    m.def("cpu_features", &features, "What this CPU has of what kernels may use, by name.");
    m.def("isas", &isas, "Names of the instruction sets kernels were compiled for and this CPU has, the fastest first.");
    m.def("ops", &ops, nb::arg("isa"), "Native ops by name, with how they split their work: 'rows', 'cells' or 'free' (runtime/op.h).");

    m.def("trim_memory", &trim_memory, "Gives memory that was freed back to the system, where the allocator can.");
    m.def("read_bandwidth", &read_bandwidth, nb::arg("num_bytes"), nb::arg("threads"), nb::call_guard<nb::gil_scoped_release>(),
          "Bytes per second at which threads read a buffer of this size.");
    m.def("rows16_bytes", &rows16_bytes, "Bytes of matrices [rows, width] in the layout rows16.");
    m.def("pack_rows", &pack_rows, "Packs matrices into rows16; False where a value is one that products do not allow.");

    m.def("layout_bytes", &layout_bytes, nb::arg("format"), nb::arg("shape"), nb::arg("layout"),
          "Bytes of a cache in a private layout, 'k_lanes' or 'v_rows'.");
    m.def("to_layout", &moved<to_layout>, nb::arg("format"), nb::arg("shape"), nb::arg("layout"), nb::arg("rows"),
          nb::arg("memory"), "A cache from row-major bytes into memory of a private layout.");
    m.def("from_layout", &moved<from_layout>, nb::arg("format"), nb::arg("shape"), nb::arg("layout"),
          nb::arg("memory"), nb::arg("rows"), "And back.");

    nb::class_<OwnedTeam>(m, "Team", "Threads that live as long as this object.")
        .def(nb::init<int, bool>(), nb::arg("most"), nb::arg("adapts") = false)
        .def_prop_ro("most", [](const OwnedTeam& self) { return self.team->most(); })
        .def_prop_ro("adapts", [](const OwnedTeam& self) { return self.team->adapts(); },
                     "Whether fewer threads run where more would take longer.")
        .def_prop_ro("members", [](const OwnedTeam& self) { return self.team->members(); },
                     "How many threads the last run had when it ended.")
        .def_prop_ro("is_here", &OwnedTeam::is_here, "False in a process forked from the one that made it.");

    nb::class_<ThreadChoice>(m, "ThreadChoice", "How many threads a team that adapts runs with (runtime/thread_choice.h).")
        .def(nb::init<int>(), nb::arg("most"))
        .def_prop_ro("count", &ThreadChoice::count)
        .def("ran", &ThreadChoice::ran, nb::arg("seconds"), nb::arg("waited"))
        .def("missed", &ThreadChoice::missed, nb::arg("came"), nb::arg("waited"));

    nb::class_<Program>(m, "Program", "A step as a list of native calls. Addresses are the caller's to keep alive.")
        .def("__init__", [](Program* self, const std::string& isa, std::vector<int64_t> largest) {
            new (self) Program(table_named(isa), std::move(largest));
        }, nb::arg("isa"), nb::arg("largest_sizes"))
        .def("add_tensor", &add_tensor, nb::arg("format"), nb::arg("dims"), nb::arg("row_stride") = 0)
        .def("lay_in_arena", &Program::lay_in_arena)
        .def("lay_in_tensor", &Program::lay_in_tensor)
        .def("bind", [](Program& self, int tensor, uintptr_t address, int layout, float scale) {
            self.bind(tensor, address, Layout(layout), scale);
        })
        .def("add_call", &Program::add_call)
        .def("allocate", &Program::allocate)
        .def("run", &run, "One step; None, or (op, argument, given, needed) of the first failure.")
        .def("measure", &Program::measure, "From now on, notes what each call takes.")
        .def("seconds", [](Program& self) {
            nb::list calls;
            for (size_t i = 0; i < self.seconds().size(); i++)
                calls.append(nb::make_tuple(self.op_name(int(i)), self.seconds()[i]));
            return calls;
        }, "(op, seconds) of each call of the last run, barriers included.")
        .def("memory", [](nb::handle self, int tensor, size_t num_bytes) {
            char* data = nb::cast<Program&>(self).tensor(tensor).data;
            return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(data, {num_bytes}, self);
        }, "uint8 view of a tensor's memory; keeps the program alive.");
}
