// What each instruction set this CPU has computes: a line with a hash for every primitive, and `ok` or what is wrong
// for every op, whose cases carry the reference's bits. Takes the file of cases; an empty one: primitives only. Names of
// sets after it: those whose ops have been tried already. `--alternate` before them runs each case twice instead of
// four times: cases take turns in which layout goes with one thread and which with several.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "registry.h"
#include "replay.h"
#include "runtime/isa.h"

using namespace samebits;

namespace {

// Every case of the op, in all layouts, with one thread and with several.
std::string check_op(const char* op, const OpTable& table, const std::vector<StoredCase>& cases,
                     const std::vector<std::unique_ptr<Team>>& teams, bool alternates) {
    int count = 0;
    for (const StoredCase& c : cases) {
        if (c.op != op) continue;
        for (const auto& team : teams)
            for (const bool as_kernels_like : {false, true}) {
                const bool is_turn = (count % 2 == 1) == ((team == teams.front()) == as_kernels_like);
                if (alternates && !is_turn) continue;
                const std::string wrong = replay(c, table, *team, as_kernels_like);
                if (wrong.empty()) continue;
                const std::string threads = std::to_string(team->most()) + " threads: ";
                return c.name + (as_kernels_like ? ", packed, " : ", ") + threads + wrong;
            }
        count++;
    }
    return count ? "ok" : "no case";
}

}  // namespace

int main(int count, char** arguments) {
    const std::vector<StoredCase> cases = read_cases(arguments[1]);
    const std::vector<std::string> tried(arguments + 2, arguments + count);
    const bool alternates = std::find(tried.begin(), tried.end(), "--alternate") != tried.end();
    std::vector<std::unique_ptr<Team>> teams;
    for (const int threads : {1, 3}) teams.push_back(std::make_unique<Team>(threads));
    for (const OpTable* table : available_tables()) {
        check_primitives(table->isa);
        if (std::find(tried.begin(), tried.end(), table->isa) != tried.end()) continue;
        for (int i = 0; i < table->num_ops && !cases.empty(); i++) {
            const char* op = table->ops[i].name;
            printf("%s op:%s %s\n", table->isa, op, check_op(op, *table, cases, teams, alternates).c_str());
        }
    }
}
