"""Options of speculative decoding: types, what `specli.drafters.DRAFTERS` says that they read, synthetic acceptance."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from specli.cli.options.kinds import (
    FLAG,
    INT_MAX,
    INT_MIN,
    RATES,
    SPEC_TYPE_LIST,
    SYNTH_LENGTH,
    Kind,
    choice,
    integer,
    number,
    path,
)
from specli.cli.options.option import RUN, Option
from specli.drafters import DRAFTERS, NetworkSpec, Setting

drafting = partial(Option, panel="Drafting")
ORDER = choice("best", "fixed")


def setting_options(*, networks: bool) -> Iterator[Option]:
    """One option per setting of the types with a network, or of those without."""
    rows = [row for row in DRAFTERS.values() if isinstance(row, NetworkSpec) == networks]
    for setting in dict.fromkeys(setting for row in rows for setting in row.settings):
        readers = [row for row in rows if setting in row.settings]
        record = f"speculation.{readers[0].record}"
        yield Option(
            setting.options,
            setting.help,
            "Drafting" if networks else "n-gram drafters",
            field=f"{record}.{setting.name}",
            kind=kind_of(setting),
            negative=setting.negative,
            env=setting.env,
            types=tuple(row.name for row in readers),
            needs=(f"{record}.{setting.needs}",) if setting.needs else (),
            idle=setting.idle,
            default_text=setting.words[0] if setting.words else None,
        )


def kind_of(setting: Setting) -> Kind:
    """How a setting reads its value."""
    if setting.kind == "path":
        return path()
    if setting.kind == "number":
        return number()
    if setting.kind == "flag":
        return words_of(setting) if setting.words else FLAG
    low, high = (INT_MIN if setting.low is None else setting.low), (INT_MAX if setting.high is None else setting.high)
    return integer(low, high, setting.error) if setting.auto is None else integer(low, high, auto=setting.auto)


def words_of(setting: Setting) -> Kind:
    """Two words for off and on."""
    kind = choice(*setting.words, error=f"invalid value, must be one of: {', '.join(setting.words)}")
    return replace(kind, parse=lambda text: kind.parse(text) == setting.words[1])


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
        ("--spec-adaptive",),
        "choose before every round whether and how long to draft, by measured costs and acceptance; lengths are caps; "
        "if not, rounds are those of llama.cpp, and with rejection sampling a seed gives the same text again",
        negative=("--no-spec-adaptive",), field="speculation.adaptive",
    ),
    drafting(
        ("--spec-order",),
        "which of several drafts is used: the most promising, or the first in llama.cpp's fixed order",
        field="speculation.ordered", kind=replace(ORDER, parse=lambda text: ORDER.parse(text) == "fixed"),
        default_text="best",
    ),
    *setting_options(networks=True),
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
    *setting_options(networks=False),
)  # fmt: skip
