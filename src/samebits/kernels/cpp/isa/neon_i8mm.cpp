// flags: -march=armv8.2-a+dotprod+i8mm -fno-schedule-insns
// As neon_dotprod; products of many tokens by the matrix unit for int8.
#define SAMEBITS_ISA neon_i8mm
#define SAMEBITS_TABLE neon_i8mm_table
#define SAMEBITS_USE_NEON
#include "../ops/all.h"
