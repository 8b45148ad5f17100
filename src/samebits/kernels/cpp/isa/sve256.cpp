// flags: -march=armv8.2-a+sve+dotprod+i8mm -msve-vector-bits=256 -fno-schedule-insns
// For vectors of exactly 256 bits (Neoverse V1). CPUs with 128 (Neoverse N2, V2) gain nothing over neon_i8mm by it.
#define SAMEBITS_ISA sve256
#define SAMEBITS_TABLE sve256_table
#define SAMEBITS_USE_SVE
#include "../ops/all.h"
