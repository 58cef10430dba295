"""Kernels in Triton: products with matrices in their quant types, on CUDA devices.

| module | what is in it |
|---|---|
| `matrix` | the kernels: unpacking of quant blocks, products, row look-ups |
| `executor` | weights that lie on the device as they are stored, in traces that are captured |
"""
