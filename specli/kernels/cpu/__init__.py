"""Native CPU kernels: a plain C library and the recorder that makes its programs (design.md §5)."""
