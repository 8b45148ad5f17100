// flags: -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma -mf16c
// flags: -mamx-tile -mamx-int8 -mprefer-vector-width=512
#define SAMEBITS_ISA avx512
#define SAMEBITS_TABLE avx512_table
#define SAMEBITS_USE_AVX512
#include "../ops/all.h"
