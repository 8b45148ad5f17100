// flags: -O2
// Its speed is of no interest, and optimized further it takes twice as long to compile.
#define SAMEBITS_ISA scalar
#define SAMEBITS_TABLE scalar_table
#include "../ops/all.h"
