"""Names of the samplers (llama.cpp `common/sampling.cpp`, b11434). Imports nothing: start-up reads it."""

from __future__ import annotations

SAMPLER_LETTERS = {
    "e": "penalties",
    "d": "dry",
    "s": "top_n_sigma",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "m": "min_p",
    "x": "xtc",
    "t": "temperature",
    "a": "adaptive_p",
}
"""Letter in `--sampler-seq` → canonical name. llama.cpp's `i`, infill, is not offered."""

_SYNONYMS = {"nucleus": "top_p", "temp": "temperature", "typ": "typ_p"}
_SPELLINGS = _SYNONYMS | {
    spelling: name
    for name in SAMPLER_LETTERS.values()
    for spelling in (name, name.replace("_", "-"), name.replace("_", ""))
}


def canonical_sampler(text: str) -> str | None:
    """The canonical name of a sampler written in any accepted way (`top_k`, `Top-K`, `topk`), or None."""
    return _SPELLINGS.get(text.lower())
