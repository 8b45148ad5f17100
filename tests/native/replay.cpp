#include "replay.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "runtime/layouts.h"
#include "runtime/program.h"

using namespace samebits;

namespace {

template <class T>
T read(std::ifstream& file) {
    T value{};
    file.read(reinterpret_cast<char*>(&value), sizeof value);
    if (!file) throw std::runtime_error("the file of cases ends early");
    return value;
}

std::string read_bytes(std::ifstream& file, int64_t count) {
    std::string bytes(size_t(count), 0);
    file.read(&bytes[0], count);
    if (!file) throw std::runtime_error("the file of cases ends early");
    return bytes;
}

StoredTensor read_tensor(std::ifstream& file) {
    StoredTensor t;
    t.format = read<int>(file);
    if (t.format < 0) return t;
    t.layout = Layout(read<int>(file));
    t.scale = read<float>(file);
    t.shape.resize(size_t(read<int>(file)));
    for (int64_t& size : t.shape) size = read<int64_t>(file);
    t.bytes = read_bytes(file, read<int64_t>(file));
    return t;
}

// Memory that ends where its last byte does, so that a sanitizer sees a step beyond, and that starts off alignment.
class Memory {
  public:
    explicit Memory(size_t size) : base_(static_cast<char*>(malloc(size + kOffset))) {}
    Memory(Memory&& other) : base_(other.base_) { other.base_ = nullptr; }
    ~Memory() { free(base_); }
    char* data() const { return base_ + kOffset; }

  private:
    static constexpr size_t kOffset = 4;
    char* base_;
};

// Values that packing does not take: a backend ends here too.
struct Refused {};

const char* name_of(int format) {
    static const char* const names[] = {"f32",  "f16",  "bf16", "i8",   "u8",   "i32",  "u32",  "bool", "q4_0",
                                        "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k", "nvfp4", "mxfp4",
                                        "q2_k", "q3_k", "iq4_nl", "iq4_xs"};
    return names[format];
}
const char* name_of(Layout layout) { return layout == Layout::k_lanes ? "k_lanes" : "v_rows"; }

Memory placed(const StoredTensor& t, const OpTable& table, Layout layout) {
    Bytes rows{const_cast<char*>(t.bytes.data()), t.bytes.size()};
    if (layout == Layout::row_major) {
        Memory memory(rows.size);
        memcpy(memory.data(), rows.data, rows.size);
        return memory;
    }
    if (layout == Layout::rows16) {
        const int64_t width = t.shape.back(), num_rows = t.shape[t.shape.size() - 2], groups = (num_rows + 15) / 16;
        const int64_t matrices = t.shape.size() > 2 ? t.shape[0] : 1;
        const size_t stride = size_t(row_bytes(Format(t.format), width));
        const size_t bytes = table.rows16_bytes(Format(t.format), num_rows, width);
        Memory memory(size_t(matrices) * bytes);
        for (int64_t m = 0; m < matrices; m++) {
            const char* from = rows.data + size_t(m * num_rows) * stride;
            uint8_t* to = reinterpret_cast<uint8_t*>(memory.data()) + size_t(m) * bytes;
            if (!table.pack_rows16(from, stride, Format(t.format), num_rows, width, 0, groups, to)) throw Refused();
        }
        return memory;
    }
    const size_t size = size_t(layout_bytes(name_of(t.format), t.shape, name_of(layout)));
    Memory memory(size);
    to_layout(name_of(t.format), t.shape, name_of(layout), rows, {memory.data(), size});
    return memory;
}

std::string bytes_of(const StoredTensor& t, const Memory& memory, Layout layout) {
    if (layout == Layout::row_major) return std::string(memory.data(), t.bytes.size());
    std::string rows(t.bytes.size(), 0);
    const size_t size = size_t(layout_bytes(name_of(t.format), t.shape, name_of(layout)));
    from_layout(name_of(t.format), t.shape, name_of(layout), {memory.data(), size}, {&rows[0], rows.size()});
    return rows;
}

int add_tensor(Program& program, const StoredTensor& t, const Memory& memory, Layout layout) {
    std::vector<Dim> dims;
    for (int64_t size : t.shape) dims.push_back({-1, 0, size});
    const int number = program.add_tensor(Format(t.format), dims, 0);
    program.bind(number, reinterpret_cast<uintptr_t>(memory.data()), layout, t.scale);
    return number;
}

}  // namespace

std::vector<StoredCase> read_cases(const char* path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(std::string("cannot read ") + path);
    std::vector<StoredCase> cases;
    while (file.peek() != EOF) {
        StoredCase c;
        c.name = read_bytes(file, read<int>(file));
        c.op = read_bytes(file, read<int>(file));
        for (int count = read<int>(file); count > 0; count--) c.inputs.push_back(read_tensor(file));
        for (int count = read<int>(file); count > 0; count--) c.attrs.push_back(read<double>(file));
        for (int count = read<int>(file); count > 0; count--) {
            c.written_into.push_back(read<int>(file));
            c.results.push_back(read_tensor(file));
        }
        cases.push_back(c);
    }
    return cases;
}

std::string replay(const StoredCase& c, const OpTable& table, Team& team, bool as_kernels_like) try {
    Program program(table, {});
    std::vector<Memory> memories;
    memories.reserve(c.inputs.size() + c.results.size());
    std::vector<Layout> layouts;
    std::vector<int> inputs, outputs, places;
    for (const StoredTensor& t : c.inputs) {
        layouts.push_back(as_kernels_like ? t.layout : Layout::row_major);
        memories.push_back(t.format < 0 ? Memory(0) : placed(t, table, layouts.back()));
        inputs.push_back(t.format < 0 ? -1 : add_tensor(program, t, memories.back(), layouts.back()));
    }
    for (size_t i = 0; i < c.results.size(); i++) {
        const bool fresh = c.written_into[i] < 0;
        places.push_back(fresh ? int(memories.size()) : c.written_into[i]);
        if (fresh) {
            memories.emplace_back(c.results[i].bytes.size());
            memset(memories.back().data(), 0xA5, c.results[i].bytes.size());
            layouts.push_back(Layout::row_major);
        }
        outputs.push_back(fresh ? add_tensor(program, c.results[i], memories.back(), Layout::row_major)
                                : inputs[size_t(places.back())]);
    }
    program.add_call(c.op, inputs, outputs, c.attrs, true);
    program.allocate(0);
    const StepFailure end = program.run(team, {});
    if (end.op) return std::string("refused ") + end.failure.argument + ": " + end.failure.given;
    for (size_t i = 0; i < c.results.size(); i++) {
        const size_t place = size_t(places[i]);
        if (bytes_of(c.results[i], memories[place], layouts[place]) != c.results[i].bytes)
            return "result " + std::to_string(i) + " has other bits than the reference's";
    }
    return "";
} catch (const Refused&) {
    return "refused by packing";
}
