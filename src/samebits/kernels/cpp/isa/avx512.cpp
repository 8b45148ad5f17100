#define SAMEBITS_ISA avx512
#define SAMEBITS_TABLE avx512_table
#define SAMEBITS_USE_AVX512
#include "../ops/all.h"
