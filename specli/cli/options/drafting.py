"""Options of speculative decoding: types, lengths, the drafters' tables."""

from dataclasses import replace
from functools import partial

from specli.cli.options.kinds import RATES, SPEC_TYPE_LIST, SYNTH_LENGTH, choice, integer, number, path
from specli.cli.options.option import RUN, Option

NETWORK_TYPES = ("draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark")

drafting = partial(Option, panel="Drafting")
ngram = partial(Option, panel="n-gram drafters")

NGRAM_N = integer(1, 1024, "ngram size N must be between 1 and 1024 inclusive")
NGRAM_M = integer(1, 1024, "ngram size M must be between 1 and 1024 inclusive")
SAMPLING = choice("greedy", "probabilistic", error="invalid value, must be one of: greedy, probabilistic")
MIN_HITS = integer(1, 65535, "ngram min hits must be at least 1")


def map_options(name: str) -> tuple[Option, ...]:
    """The three sizes of ngram-simple, ngram-map-k or ngram-map-k4v."""
    prefix, field = f"--spec-{name}", f"speculation.{name.replace('-', '_')}"
    row = partial(ngram, types=(name,))
    counts_hits = name == "ngram-map-k4v"
    return (
        row((f"{prefix}-size-n",), f"{name}: tokens looked up", field=f"{field}.size_n", kind=NGRAM_N),
        row((f"{prefix}-size-m",), f"{name}: tokens proposed after a match", field=f"{field}.size_m", kind=NGRAM_M),
        row(
            (f"{prefix}-min-hits",),
            f"{name}: {'matches seen before a draft is made' if counts_hits else 'no effect, as in llama.cpp'}",
            field=f"{field}.min_hits", kind=MIN_HITS, idle=None if counts_hits else "only ngram-map-k4v counts hits",
        ),
    )  # fmt: skip


OPTIONS = (
    drafting(
        ("--spec-type",), "drafters, comma-separated; repeated options add up, their order does not matter",
        field="speculation.types", kind=SPEC_TYPE_LIST, env="LLAMA_ARG_SPEC_TYPE",
        default_text="from the draft file", commands=(*RUN, "check"),
    ),
    drafting(
        ("--spec-default",), "add ngram-mod with match 24, min 48, max 64",
        implies=(
            ("--spec-type", "ngram-mod"), ("--spec-ngram-mod-n-match", "24"),
            ("--spec-ngram-mod-n-min", "48"), ("--spec-ngram-mod-n-max", "64"),
        ),
    ),
    drafting(
        ("--spec-draft-n-max",), "most tokens a draft network proposes per round, up to 1024",
        field="speculation.draft.n_max", kind=integer(0, 1024), env="LLAMA_ARG_SPEC_DRAFT_N_MAX", types=NETWORK_TYPES,
    ),
    drafting(
        ("--spec-draft-n-min",), "shorter drafts of a network are dropped, unless they are sampled",
        field="speculation.draft.n_min", kind=integer(), env="LLAMA_ARG_SPEC_DRAFT_N_MIN", types=NETWORK_TYPES,
    ),
    drafting(
        ("--spec-draft-p-min", "--draft-p-min", "--spec-draft-conf-min"),
        "a draft ends before a token less probable than this; the confidence threshold of draft-dspark",
        field="speculation.draft.p_min", kind=number(), env="LLAMA_ARG_SPEC_DRAFT_P_MIN", types=NETWORK_TYPES,
    ),
    drafting(
        ("--spec-draft-survival",),
        "draft-dspark: the threshold bounds the chance that the draft stands up to a token, not that of the token",
        negative=("--no-spec-draft-survival",), field="speculation.draft.survival", types=("draft-dspark",),
        needs=("speculation.draft.p_min",),
    ),
    drafting(
        ("--spec-draft-p-split", "--draft-p-split"), "split probability of tree drafting",
        kind=number(), env="LLAMA_ARG_SPEC_DRAFT_P_SPLIT", satisfied=("0.1",),
        idle="drafts are chains, not trees; llama.cpp reads it in llama-speculative only",
    ),
    drafting(
        ("--spec-draft-sampling",), "how drafts are verified at temperature > 0: same sampled token, or rejection",
        field="speculation.draft.probabilistic", env="LLAMA_ARG_SPEC_DRAFT_SAMPLING",
        kind=replace(SAMPLING, parse=lambda text: SAMPLING.parse(text) == "probabilistic"), default_text="greedy",
    ),
    drafting(
        ("--spec-draft-backend-sampling",), "choose draft tokens on the device of the drafter",
        negative=("--no-spec-draft-backend-sampling",), env="LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING",
        satisfied=("on",), idle="draft tokens are always chosen where the draft network runs",
    ),
    drafting(
        ("--spec-synth-len",), "synthetic acceptance: mean tokens per round, the target's own included",
        field="speculation.synth.length", kind=SYNTH_LENGTH, env="LLAMA_ARG_SPEC_SYNTH_LEN", default_text="off",
    ),
    drafting(
        ("--spec-synth-rates",), "synthetic acceptance: unconditional rate of each draft position",
        field="speculation.synth.rates", kind=RATES, env="LLAMA_ARG_SPEC_SYNTH_RATES", default_text="off",
    ),
    ngram(
        ("--spec-ngram-mod-n-match",), "ngram-mod: tokens looked up",
        field="speculation.ngram_mod.n_match", kind=NGRAM_N, types=("ngram-mod",),
    ),
    ngram(
        ("--spec-ngram-mod-n-min",), "ngram-mod: shorter drafts are dropped",
        field="speculation.ngram_mod.n_min", types=("ngram-mod",),
        kind=integer(0, 1024, "ngram n-min must be between 0 and 1024 inclusive"),
    ),
    ngram(
        ("--spec-ngram-mod-n-max",), "ngram-mod: most tokens proposed",
        field="speculation.ngram_mod.n_max", types=("ngram-mod",),
        kind=integer(0, 1024, "ngram n-max must be between 0 and 1024 inclusive"),
    ),
    *map_options("ngram-simple"),
    *map_options("ngram-map-k"),
    *map_options("ngram-map-k4v"),
    ngram(
        ("-lcs", "--lookup-cache-static"), "ngram-cache: file of n-grams that stays as it is",
        field="speculation.lookup_cache_static", kind=path(), types=("ngram-cache",),
    ),
    ngram(
        ("-lcd", "--lookup-cache-dynamic"), "ngram-cache: file of n-grams that earlier generations left",
        field="speculation.lookup_cache_dynamic", kind=path(), types=("ngram-cache",),
    ),
)  # fmt: skip
