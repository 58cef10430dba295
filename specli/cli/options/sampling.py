"""Options of the target's sampler."""

from dataclasses import replace
from functools import partial

from specli.cli.options.kinds import (
    BREAKER,
    DRY_BASE,
    LOGIT_BIAS,
    SAMPLER_SEQUENCE,
    SAMPLERS,
    SEED,
    file_text,
    integer,
    number,
    text,
)
from specli.cli.options.option import Option

sampling = partial(Option, panel="Sampling")

NUMBER = number()
FINITE = number(finite=True)

OPTIONS = (
    sampling(
        ("-s", "--seed"), "random seed; -1 = a new one for each run",
        field="request.sampling.seed", kind=SEED, default_text="-1",
    ),
    sampling(
        ("--temp", "--temperature"), "temperature; 0 = greedy",
        field="request.sampling.temperature", kind=replace(NUMBER, parse=lambda text: max(0.0, NUMBER.parse(text))),
        env="LLAMA_ARG_TEMPERATURE",
    ),
    sampling(
        ("--top-k",), "keep the k most probable tokens; 0 = off",
        field="request.sampling.top_k", kind=integer(), env="LLAMA_ARG_TOP_K",
    ),
    sampling(
        ("--top-p",), "keep the most probable tokens that add up to p; 1 = off",
        field="request.sampling.top_p", kind=NUMBER, env="LLAMA_ARG_TOP_P",
    ),
    sampling(
        ("--min-p",), "drop tokens less probable than this share of the best one's; 0 = off",
        field="request.sampling.min_p", kind=NUMBER, env="LLAMA_ARG_MIN_P",
    ),
    sampling(
        ("--top-nsigma", "--top-n-sigma"), "keep logits within n standard deviations of the best; -1 = off",
        field="request.sampling.top_n_sigma", kind=NUMBER,
    ),
    sampling(
        ("--typical", "--typical-p"), "locally typical sampling; 1 = off",
        field="request.sampling.typical_p", kind=NUMBER,
    ),
    sampling(
        ("--xtc-probability",), "chance that XTC removes the top tokens; 0 = off",
        field="request.sampling.xtc_probability", kind=NUMBER,
    ),
    sampling(
        ("--xtc-threshold",), "least probability of a token XTC may remove; above 0.5 = off",
        field="request.sampling.xtc_threshold", kind=NUMBER,
    ),
    sampling(
        ("--samplers",), "samplers in order, separated by `;`",
        field="request.sampling.samplers", kind=SAMPLERS,
    ),
    sampling(
        ("--sampler-seq", "--sampling-seq"), "samplers in order, one letter each",
        field="request.sampling.samplers", kind=SAMPLER_SEQUENCE,
        default_text="edskypmxt",
    ),
    sampling(
        ("--repeat-last-n",), "tokens the penalties look back; 0 = off",
        field="request.sampling.repeat_last_n", kind=integer(0, error="error: invalid repeat-last-n = {}"),
    ),
    sampling(
        ("--repeat-penalty",), "divides the logits of repeated tokens; 1 = off",
        field="request.sampling.repeat_penalty", env="LLAMA_ARG_REPEAT_PENALTY",
        kind=number(above=0, finite=True, error="error: repeat-penalty must be finite and greater than 0"),
    ),
    sampling(
        ("--presence-penalty",), "subtracted from the logits of tokens seen; 0 = off",
        field="request.sampling.presence_penalty", env="LLAMA_ARG_PRESENCE_PENALTY",
        kind=number(finite=True, error="error: presence-penalty must be finite"),
    ),
    sampling(
        ("--frequency-penalty",), "subtracted once per occurrence; 0 = off",
        field="request.sampling.frequency_penalty", env="LLAMA_ARG_FREQUENCY_PENALTY",
        kind=number(finite=True, error="error: frequency-penalty must be finite"),
    ),
    sampling(
        ("--dry-multiplier",), "strength of the DRY penalty on repeated sequences; 0 = off",
        field="request.sampling.dry_multiplier", kind=FINITE,
    ),
    sampling(
        ("--dry-base",), "base of the DRY penalty, at least 1",
        field="request.sampling.dry_base", kind=DRY_BASE,
    ),
    sampling(
        ("--dry-allowed-length",), "longest repetition DRY leaves unpunished",
        field="request.sampling.dry_allowed_length", kind=integer(),
    ),
    sampling(
        ("--dry-penalty-last-n",), "tokens DRY looks back; 0 = off",
        field="request.sampling.dry_penalty_last_n", kind=integer(0, error="error: invalid dry-penalty-last-n = {}"),
    ),
    sampling(
        ("--dry-sequence-breaker",), "text that ends a DRY sequence; the first use clears the defaults, none all",
        field="request.sampling.dry_sequence_breakers", kind=BREAKER, default_text="newline : \" *",
    ),
    sampling(
        ("--adaptive-target",), "adaptive-p: probability to aim at; negative = off",
        field="request.sampling.adaptive_target", kind=NUMBER,
    ),
    sampling(
        ("--adaptive-decay",), "adaptive-p: how slowly the aim moves",
        field="request.sampling.adaptive_decay", kind=FINITE,
    ),
    sampling(
        ("--dynatemp-range",), "dynamic temperature: distance from --temp; 0 = off",
        field="request.sampling.dynatemp_range", kind=FINITE,
    ),
    sampling(
        ("--dynatemp-exp",), "dynamic temperature: exponent",
        field="request.sampling.dynatemp_exponent", kind=FINITE,
    ),
    sampling(
        ("--mirostat",), "Mirostat version; 0 = off",
        field="request.sampling.mirostat", kind=integer(0, 2, metavar="0|1|2"),
    ),
    sampling(
        ("--mirostat-lr",), "Mirostat learning rate",
        field="request.sampling.mirostat_lr", kind=FINITE,
    ),
    sampling(
        ("--mirostat-ent",), "Mirostat target entropy",
        field="request.sampling.mirostat_ent", kind=FINITE,
    ),
    sampling(
        ("-l", "--logit-bias"), "add a bias to a token's logit, for example 15043+1; may be repeated",
        field="request.sampling.logit_bias", kind=LOGIT_BIAS,
    ),
    sampling(
        ("--ignore-eos",), "never end at an end token",
        field="request.sampling.ignore_eos",
    ),
    sampling(
        ("--grammar",), "GBNF grammar the output must follow",
        field="request.sampling.grammar", kind=text("GRAMMAR"), excludes="request.sampling.json_schema",
    ),
    sampling(
        ("--grammar-file",), "file with the grammar",
        field="request.sampling.grammar", kind=file_text(), excludes="request.sampling.json_schema",
    ),
    sampling(
        ("-j", "--json-schema"), "JSON schema the output must follow",
        field="request.sampling.json_schema", kind=text("SCHEMA"), excludes="request.sampling.grammar",
    ),
    sampling(
        ("-jf", "--json-schema-file"), "file with the schema",
        field="request.sampling.json_schema", kind=file_text(), excludes="request.sampling.grammar",
    ),
    sampling(
        ("-bs", "--backend-sampling"), "sample on the device",
        env="LLAMA_ARG_BACKEND_SAMPLING", idle="where tokens are sampled follows from the device and the samplers",
    ),
)  # fmt: skip
