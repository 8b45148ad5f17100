#define SAMEBITS_ISA scalar
#define SAMEBITS_TABLE scalar_table
#include "../ops/all.h"
