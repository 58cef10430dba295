/* What library.py reads: numbers of operations and samplers by name, limits, sizes of structs and offsets of their fields. */
#include "native.h"

struct export {
    const char *kind, *name; /* names in capitals count as small letters */
    int64_t value;
};

#define OPERATION(name) {"operation", #name, OP_##name},
#define LINK(name) {"link", #name, LINK_##name},
#define LIMIT(name) {"limit", #name, name},
#define SIZE(type) {"layout", #type, sizeof(struct type)},
#define FIELD(type, field) {"layout", #type "." #field, offsetof(struct type, field)},

/* clang-format off */
static const struct export exports[] = {
    OPERATIONS(OPERATION)
    LINKS(LINK)
    LIMIT(ATTENTION_CHUNK) LIMIT(ATTENTION_SPLIT_ROWS) LIMIT(MAX_CANDIDATES) LIMIT(MAX_EXPERTS) LIMIT(MAX_HEAD_SIZE)
    SIZE(view) FIELD(view, data) FIELD(view, stride) FIELD(view, width)
    SIZE(weight) FIELD(weight, data) FIELD(weight, strip_bytes) FIELD(weight, type) FIELD(weight, n_out) FIELD(weight, n_in)
    FIELD(weight, n_experts) FIELD(weight, n_strips) FIELD(weight, is_mapped) FIELD(weight, source) FIELD(weight, is_ready)
    FIELD(weight, n_ready)
    SIZE(kv_cache) FIELD(kv_cache, data) FIELD(kv_cache, slot_bytes) FIELD(kv_cache, head_bytes) FIELD(kv_cache, row_bytes)
    FIELD(kv_cache, type) FIELD(kv_cache, head_size)
    SIZE(op) FIELD(op, code) FIELD(op, extent) FIELD(op, step) FIELD(op, reserved) FIELD(op, out) FIELD(op, x) FIELD(op, y)
    FIELD(op, z) FIELD(op, e) FIELD(op, a) FIELD(op, b) FIELD(op, c) FIELD(op, weight) FIELD(op, image) FIELD(op, p) FIELD(op, k)
    FIELD(op, v) FIELD(op, n) FIELD(op, f) FIELD(op, table) FIELD(op, n_experts)
    SIZE(program) FIELD(program, ops) FIELD(program, n_ops) FIELD(program, repeat_from) FIELD(program, repeat_to)
    FIELD(program, reserved) FIELD(program, shared)
    SIZE(link) FIELD(link, code) FIELD(link, n) FIELD(link, value)
    SIZE(chain) FIELD(chain, n_links) FIELD(chain, n_changed) FIELD(chain, links) FIELD(chain, changed) FIELD(chain, changes)
    FIELD(chain, places) FIELD(chain, logits) FIELD(chain, probabilities) FIELD(chain, n)
};
/* clang-format on */

/* The table and its length. */
EXPORT const struct export *specli_exports(int *n) {
    *n = sizeof exports / sizeof *exports;
    return exports;
}
