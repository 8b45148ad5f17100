// flags: -march=armv8.2-a+dotprod -fno-schedule-insns
// Scheduled before registers are given out, a block product asks for more of them than there are: a third slower.
#define SAMEBITS_ISA neon_dotprod
#define SAMEBITS_TABLE neon_dotprod_table
#define SAMEBITS_USE_NEON
#include "../ops/all.h"
