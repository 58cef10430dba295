/* One instruction set's kernel table; included by kernels_*.c after they have chosen the target. */
#include "matmul.h"

#include "attention.h"
#include "rows.h"
