"""Triton's interpreter for these tests: it must be chosen before Triton is imported."""

import os

os.environ["TRITON_INTERPRET"] = "1"
