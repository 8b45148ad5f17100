// flags: -mavx2 -mfma -mf16c -mavxvnni
#define SAMEBITS_ISA avx2_vnni
#define SAMEBITS_TABLE avx2_vnni_table
#define SAMEBITS_USE_AVX2
#define SAMEBITS_USE_AVX_VNNI
#include "../ops/all.h"
