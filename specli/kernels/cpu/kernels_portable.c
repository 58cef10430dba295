/* Plain C for every other processor. */
#include "kernels.h"
const struct kernels kernels_portable = {"portable C", run_row, run_strips, run_item};
