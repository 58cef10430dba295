"""Records what llama.cpp's own samplers pick, for tests/engine/test_upstream_samplers.py.

    python tests/golden/record_samplers.py DIR_OF_LIBLLAMA >tests/golden/samplers.json

Each case is a chain in llama.cpp's order, fed rows of normal logits (NumPy's legacy generator, so anyone can make them
again); every picked token is accepted. Recorded per step: the token, how many candidates were left with a probability
above 0, and the token's probability.
"""

from __future__ import annotations

import ctypes
import json
import sys
import zlib
from ctypes import POINTER, Structure, byref, c_bool, c_float, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from dataclasses import asdict
from pathlib import Path

import numpy as np

from specli.sampling.settings import SamplingSettings

N_VOCAB = 600
N_STEPS = 60
BREAKERS = [[7], [11, 12], [11, 13, 14]]  # token sequences; llama.cpp's testing entry takes them as such
NAMES = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}

CASES: dict[str, dict[str, object]] = {
    "defaults": {},
    "greedy": {"temperature": 0.0},
    "nothing": OFF,
    "temperature": OFF | {"temperature": 0.6},
    "top_k": OFF | {"top_k": 7},
    "top_k_large": OFF | {"top_k": 300},
    "top_p": OFF | {"top_p": 0.6},
    "top_p_nearly_all": OFF | {"top_p": 0.9999},
    "min_p": OFF | {"min_p": 0.1},
    "min_keep": {"top_p": 0.01, "min_p": 0.9, "min_keep": 3},
    "top_n_sigma": OFF | {"top_n_sigma": 1.5},
    "typical": OFF | {"typical_p": 0.4},
    "typical_first": {"samplers": ["typ_p", "temperature"], "typical_p": 0.7, "temperature": 0.9},
    "xtc": {"xtc_probability": 0.5, "xtc_threshold": 0.05, "temperature": 1.0},
    "dynatemp": {"dynatemp_range": 0.5, "dynatemp_exponent": 1.3},
    "dynatemp_to_zero": {"temperature": 0.3, "dynatemp_range": 0.5, "top_k": 5},
    "penalties": {"repeat_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": 0.5, "repeat_last_n": 20},
    "penalties_last": {
        "samplers": ["top_k", "temperature", "penalties"], "repeat_penalty": 1.5, "repeat_last_n": 8,
    },
    "dry": {"dry_multiplier": 0.8, "dry_allowed_length": 1, "top_k": 20},
    "mirostat_1": {"mirostat": 1, "temperature": 0.8},
    "mirostat_2": {"mirostat": 2, "temperature": 0.8, "mirostat_ent": 3.0},
    "mirostat_1_greedy": {"mirostat": 1, "temperature": 0.0},
    "adaptive_p": {"samplers": ["min_p", "adaptive_p"], "adaptive_target": 0.4, "adaptive_decay": 0.8},
    "adaptive_p_off": {"samplers": ["top_k", "adaptive_p"]},
    "bias": {"logit_bias": [[3, 2.5], [4, float("-inf")], [5, -1.0]], "temperature": 1.5},
    "order": {"samplers": ["temperature", "min_p", "top_p", "top_k"], "temperature": 1.4, "top_k": 10},
    "typical_large": OFF | {"typical_p": 0.4},
    "typical_large_most": OFF | {"typical_p": 0.95},
}  # fmt: skip
# Few tokens, so that sequences repeat; or many, so that whole lists are sorted in llama.cpp's buckets.
SIZES = {"dry": 16, "penalties": 40, "penalties_last": 40, "typical_large": 16000, "typical_large_most": 16000}


class TokenData(Structure):
    _fields_ = [("id", c_int32), ("logit", c_float), ("p", c_float)]


class TokenDataArray(Structure):
    _fields_ = [("data", POINTER(TokenData)), ("size", c_size_t), ("selected", c_int64), ("sorted", c_bool)]


class LogitBias(Structure):
    _fields_ = [("token", c_int32), ("bias", c_float)]


class Vector(Structure):
    _fields_ = [("begin", c_void_p), ("end", c_void_p), ("capacity", c_void_p)]


def rows(case: str, n_vocab: int) -> np.ndarray:
    """The logits of a case, `[N_STEPS, n_vocab]` float32."""
    source = np.random.RandomState(zlib.crc32(case.encode()))
    return (source.standard_normal((N_STEPS, n_vocab)) * 2).astype(np.float32)


class Upstream:
    def __init__(self, folder: Path) -> None:
        self.lib = ctypes.CDLL(str(folder / "libllama.so"))
        self.kept: list[object] = []

    def make(self, name: str, *arguments: object) -> c_void_p:
        function = getattr(self.lib, name)
        function.restype = c_void_p
        return c_void_p(function(*arguments))

    def vector(self, array: ctypes.Array) -> Vector:
        self.kept.append(array)
        begin = ctypes.addressof(array)
        return Vector(begin, begin + ctypes.sizeof(array), begin + ctypes.sizeof(array))

    def dry(self, c: SamplingSettings) -> c_void_p:
        inner = (Vector * len(BREAKERS))(*[self.vector((c_int32 * len(b))(*b)) for b in BREAKERS])
        name = "_Z30llama_sampler_init_dry_testingffiiRKSt6vectorIS_IiSaIiEESaIS1_EE"
        settings = c_float(c.dry_multiplier), c_float(c.dry_base), c.dry_allowed_length, c.dry_penalty_last_n
        return self.make(name, *settings, byref(self.vector(inner)))

    def chain(self, c: SamplingSettings, n_vocab: int) -> list[c_void_p]:
        keep, seed = c_size_t(c.min_keep), c_uint32(c.seed)
        links = []
        if c.logit_bias:
            biases = (LogitBias * len(c.logit_bias))(*[LogitBias(*pair) for pair in c.logit_bias])
            links.append(self.make("llama_sampler_init_logit_bias", n_vocab, len(biases), biases))
        if c.mirostat:
            tau, eta = c_float(c.mirostat_ent), c_float(c.mirostat_lr)
            links.append(self.make("llama_sampler_init_temp", c_float(c.temperature)))
            if c.mirostat == 1:
                return [*links, self.make("llama_sampler_init_mirostat", n_vocab, seed, tau, eta, 100)]
            return [*links, self.make("llama_sampler_init_mirostat_v2", seed, tau, eta)]
        p, r, f = c_float(c.presence_penalty), c_float(c.repeat_penalty), c_float(c.frequency_penalty)
        makers = {
            "penalties": lambda: self.make("llama_sampler_init_penalties", n_vocab, c.repeat_last_n, r, f, p),
            "dry": lambda: self.dry(c),
            "top_n_sigma": lambda: self.make("llama_sampler_init_top_n_sigma", c_float(c.top_n_sigma)),
            "top_k": lambda: self.make("llama_sampler_init_top_k", c.top_k),
            "typ_p": lambda: self.make("llama_sampler_init_typical", c_float(c.typical_p), keep),
            "top_p": lambda: self.make("llama_sampler_init_top_p", c_float(c.top_p), keep),
            "min_p": lambda: self.make("llama_sampler_init_min_p", c_float(c.min_p), keep),
            "xtc": lambda: self.make(
                "llama_sampler_init_xtc", c_float(c.xtc_probability), c_float(c.xtc_threshold), keep, seed
            ),
            "temperature": lambda: self.make(
                "llama_sampler_init_temp_ext", c_float(c.temperature), c_float(c.dynatemp_range),
                c_float(c.dynatemp_exponent),
            ),
        }  # fmt: skip
        if not c.dry_multiplier:  # the testing entry does not allow for that
            del makers["dry"]
        links += [makers[name]() for name in c.samplers if name in makers]
        if "adaptive_p" in c.samplers:
            a = c_float(c.adaptive_target), c_float(c.adaptive_decay), seed
            return [*links, self.make("llama_sampler_init_adaptive_p", *a)]
        return [*links, self.make("llama_sampler_init_dist", seed)]

    def run(self, c: SamplingSettings, logits: np.ndarray) -> list[list[int]]:
        links = self.chain(c, logits.shape[1])
        steps = []
        for row in logits:
            data = (TokenData * len(row))(*[TokenData(i, float(x), 0.0) for i, x in enumerate(row)])
            array = TokenDataArray(data, len(row), -1, False)
            for link in links:
                self.lib.llama_sampler_apply(link, byref(array))
            token = array.data[array.selected].id
            p = [array.data[i].p for i in range(array.size)]
            steps.append([token, sum(x > 0 for x in p), p[array.selected]])
            for link in links:
                self.lib.llama_sampler_accept(link, token)
        return steps


def main() -> None:
    upstream = Upstream(Path(sys.argv[1]))
    cases = {}
    for seed, (name, settings) in enumerate(CASES.items(), 1):
        lists = {
            key: tuple(map(tuple, v)) if key == "logit_bias" else tuple(v)
            for key, v in settings.items()
            if isinstance(v, list)
        }
        config = SamplingSettings(**(settings | lists | {"seed": seed}))  # type: ignore[arg-type]
        n_vocab = SIZES.get(name, N_VOCAB)
        default = asdict(SamplingSettings())
        changed = {k: v for k, v in asdict(config).items() if v != default[k]}
        cases[name] = {"config": changed, "n_vocab": n_vocab, "steps": upstream.run(config, rows(name, n_vocab))}
    about = "llama.cpp b11434 libllama (CPU, x86-64), by tests/golden/record_samplers.py"
    body = ",\n".join(f"  {json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    print(f'{{"about": {json.dumps(about)}, "breakers": {BREAKERS}, "cases": {{\n{body}\n}}}}')


if __name__ == "__main__":
    main()
