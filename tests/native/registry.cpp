#include "registry.h"

#include <cstring>
#include <vector>

namespace {

struct Primitives {
    const char* isa;
    void (*check)();
};

std::vector<Primitives>& primitives() {
    static std::vector<Primitives> all;
    return all;
}

}  // namespace

bool add_primitives(const char* isa, void (*check)()) {
    primitives().push_back({isa, check});
    return true;
}

void check_primitives(const char* isa) {
    for (const Primitives& set : primitives())
        if (!strcmp(set.isa, isa)) set.check();
}
