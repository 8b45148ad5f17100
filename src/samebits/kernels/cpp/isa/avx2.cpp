// flags: -mavx2 -mfma -mf16c
#define SAMEBITS_ISA avx2
#define SAMEBITS_TABLE avx2_table
#define SAMEBITS_USE_AVX2
#include "../ops/all.h"
