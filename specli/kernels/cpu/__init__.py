"""Native CPU kernels: a plain C library and the recorder that makes its programs (docs/architecture.md §3)."""
