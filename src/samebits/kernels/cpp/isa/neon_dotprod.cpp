// flags: -march=armv8.2-a+dotprod
#define SAMEBITS_ISA neon_dotprod
#define SAMEBITS_TABLE neon_dotprod_table
#define SAMEBITS_USE_NEON
#include "../ops/all.h"
