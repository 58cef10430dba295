/* Plain C for every other processor. */
#include "kernels.h"
const struct kernels kernels_portable = {"portable C", "portable", run_row, run_strips, run_item};
