// flags: -march=armv8-a
#define SAMEBITS_ISA neon
#define SAMEBITS_TABLE neon_table
#define SAMEBITS_USE_NEON
#include "../ops/all.h"
