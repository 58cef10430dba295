"""Every family on the native executor, with float32 activations, against the float64 NumPy forward pass."""

from pathlib import Path

import numpy as np
import pytest
import torch

from specli.gguf.file import GGUFFile
from specli.kernels.ops import Executor
from specli.kernels.threads import ThreadConfig
from specli.models import ARCHITECTURES
from tests.support.oracle import FAMILIES, run_oracle
from tests.support.running import all_logits, open_model
from tests.support.runs import executors
from tests.support.tiny_gguf import tiny_gguf

pytestmark = pytest.mark.skipif("cpu" not in executors(), reason="the native CPU library is not built")
TOLERANCE = 1e-4  # of the largest logit; four layers, two of them recurrent, pass on float32 rounding as 3e-5
TOKENS = np.random.default_rng(7).integers(0, 200, 40).tolist()


def native(*, exact: bool) -> Executor:
    from specli.kernels.cpu.executor import CpuExecutor

    return CpuExecutor(threads=ThreadConfig(n_threads=2), exact=exact)


@pytest.mark.parametrize("quant", ["f32", "q8_0"])
@pytest.mark.parametrize("architecture", FAMILIES)
def test_logits_equal_the_numpy_forward(tmp_path: Path, architecture: str, quant: str) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", architecture, quant=quant, n_layer=4)
    with GGUFFile.open(path) as file:
        expected = run_oracle(file, TOKENS).logits
    found = all_logits(open_model(path, native(exact=True)), TOKENS, chunk=17)
    assert np.abs(found.numpy() - expected).max() < TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rows_do_not_depend_on_the_row_count(tmp_path: Path, architecture: str) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", architecture, quant="q8_0", n_layer=4)
    model = open_model(path, native(exact=False))
    one_by_one = all_logits(model, TOKENS, chunk=1)
    for count in (2, 7, 8, 17, 40):
        assert torch.equal(all_logits(model, TOKENS, chunk=count), one_by_one)
