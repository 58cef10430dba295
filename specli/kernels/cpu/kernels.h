/* One instruction set's kernel table; included by kernels_*.c after they have chosen the target. */
#include "matmul.h"

#include "attention.h"
#include "experts.h"
#include "recurrent.h"
#include "rows.h"

static void run_item(const struct op *op, const struct run *run, int item, float *scratch) {
    switch (op->code) {
        case OP_ATTENTION: run_attention(op, run, item, scratch); break;
        case OP_QUANTISE_PAIRS: quantise_pairs(op, item); break;
        case OP_CAUSAL_CONVOLVE: convolve_channels(op, run, item); break;
        case OP_DELTA_SCAN: scan_columns(op, run, item, scratch); break;
        default: run_expert_strip(op, run, item); break;
    }
}
