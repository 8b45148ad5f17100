// Kernels on data that no check has seen: whatever bytes come, memory must stay whole. A sanitizer is the judge.
#include <cstdio>

#include "data.h"
#include "replay.h"
#include "runtime/isa.h"

using namespace samebits;

namespace {

constexpr int kRounds = 4;

// Some elements of an index tensor out of range or merely others, some bytes of any other one at random.
void spoil(StoredTensor& t, Numbers& numbers) {
    if (t.bytes.empty()) return;
    const int32_t ends[] = {-1, INT32_MIN, INT32_MAX, 1 << 20, 0, 1, 2, 3};
    for (int times = numbers.between(1, 4); times > 0; times--) {
        const bool is_index = Format(t.format) == Format::i32;
        const int32_t value = is_index ? ends[numbers.between(0, 7)] : int32_t(numbers.word());
        const size_t width = t.bytes.size() >= 4 ? 4 : 1, count = t.bytes.size() / width;
        memcpy(&t.bytes[size_t(numbers.between(0, int32_t(count) - 1)) * width], &value, width);
    }
}

bool has(const OpTable& table, const std::string& op) {
    for (int i = 0; i < table.num_ops; i++)
        if (op == table.ops[i].name) return true;
    return false;
}

}  // namespace

int main(int, char** arguments) {
    int refused = 0, ran = 0;
    Team team(2);
    const std::vector<StoredCase> cases = read_cases(arguments[1]);
    for (const OpTable* table : available_tables())
        for (const StoredCase& c : cases) {
            if (!has(*table, c.op)) continue;
            Numbers numbers(c.name.c_str());
            for (int round = 0; round < kRounds; round++) {
                StoredCase other = c;
                const size_t victim = size_t(numbers.between(0, int32_t(c.inputs.size()) - 1));
                if (other.inputs[victim].format < 0) continue;
                spoil(other.inputs[victim], numbers);
                ran++;
                refused += replay(other, *table, team, round % 2).rfind("refused", 0) == 0;
            }
        }
    printf("%d spoiled calls, %d of them refused\n", ran, refused);
}
