// One instruction set: SAMEBITS_SET is its file in isa/, which names it and includes its kernels, if they are wanted.
#include SAMEBITS_SET
// what follows is compiled with the same flags and names
#include "primitives.h"
#include "registry.h"

static const bool registered = add_primitives(SAMEBITS_NAME(SAMEBITS_ISA), samebits::SAMEBITS_ISA::check_primitives);
