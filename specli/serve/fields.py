"""The fields of a request: from JSON to the settings of a generation.

Names, aliases, limits and texts are those of llama.cpp's server (`tools/server/server-schema.cpp`, b11434). A null
counts as absent, and unknown fields are ignored. What llama.cpp knows and specli does not do is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specli.engine.config import RequestConfig
from specli.rng import RANDOM_SEED
from specli.sampling.names import SAMPLER_LETTERS, canonical_sampler
from specli.sampling.settings import SamplingSettings, Triggers
from specli.serve.errors import RequestError, unsupported
from specli.tokenizer import Tokenizer
from specli.tokenizer.answer import AnswerForm

Body = Mapping[str, Any]

INT_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
FLOAT_MAX = 3.4028234663852886e38
MAX_GRAMMAR = 1 << 16  # characters; this many take a few seconds to compile
_TOKEN, _WORD, _PATTERN, _PATTERN_FULL = range(4)  # types of triggers
MAX_PROBS = 1000  # tokens reported per place; a whole vocabulary of each would be gigabytes


@dataclass(frozen=True)
class Number:
    """A field that is a number.

    Attributes:
        names: The field and its aliases; the first that is there counts.
        low: Smallest value.
        high: Largest value.
        is_hard: A value outside is an error; otherwise the nearest inside is taken.
        is_whole: It is an integer; a fraction is cut off.
    """

    names: tuple[str, ...]
    low: float = -math.inf
    high: float = math.inf
    is_hard: bool = False
    is_whole: bool = False

    def read(self, body: Body) -> int | float | None:
        """The value; None without one.

        Raises:
            RequestError: It is no number, beyond float32, or outside hard limits.
        """
        for name in self.names:
            value = body.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(_float(value)):
                raise wrong_type(name, "number", value)
            number = int(value) if self.is_whole else _float(value)
            if not self.is_whole and abs(number) > FLOAT_MAX:
                raise field_error(name, f"{number:g} is beyond float32")
            if self.is_hard and not self.low <= number <= self.high:
                limits = f"{self._text(self.low)} <= value <= {self._text(self.high)}"
                raise field_error(name, f"Value must be between {limits}, but got {self._text(number)}")
            return max(self.low, min(self.high, number)) if not self.is_whole else int(self._clamped(int(number)))
        return None

    def _clamped(self, number: int) -> int:
        low, high = (
            (-INT_MAX - 1 if self.low == -math.inf else self.low),
            (INT_MAX if math.isinf(self.high) else self.high),
        )
        return int(max(low, min(high, number)))

    def _text(self, number: float) -> str:
        return str(int(number)) if self.is_whole else f"{number:.6f}"


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def count(*names: str, low: float = 0, high: float = INT_MAX) -> Number:
    """An integer with hard limits."""
    return Number(names, low, high, is_hard=True, is_whole=True)


def share(name: str) -> Number:
    """A number that is moved into 0 … 1."""
    return Number((name,), 0.0, 1.0)


SAMPLING: dict[str, Number] = {
    "top_k": Number(("top_k",), 0, INT_MAX, is_whole=True),
    "top_p": share("top_p"),
    "min_p": share("min_p"),
    "top_n_sigma": Number(("top_n_sigma",)),
    "xtc_probability": share("xtc_probability"),
    "xtc_threshold": share("xtc_threshold"),
    "typical_p": Number(("typical_p",)),
    "temperature": Number(("temperature",), 0.0),
    "dynatemp_range": Number(("dynatemp_range",)),
    "dynatemp_exponent": Number(("dynatemp_exponent",)),
    "repeat_last_n": count("repeat_last_n"),
    "repeat_penalty": Number(("repeat_penalty",)),
    "frequency_penalty": Number(("frequency_penalty",)),
    "presence_penalty": Number(("presence_penalty",)),
    "dry_multiplier": Number(("dry_multiplier",)),
    "dry_allowed_length": count("dry_allowed_length"),
    "dry_penalty_last_n": count("dry_penalty_last_n"),
    "mirostat": Number(("mirostat",), 0, 2, is_whole=True),
    "mirostat_ent": Number(("mirostat_tau",)),
    "mirostat_lr": Number(("mirostat_eta",)),
    "adaptive_target": Number(("adaptive_target",), -FLOAT_MAX, 1.0),
    "adaptive_decay": Number(("adaptive_decay",), 0.0, 0.99, is_hard=True),
    "min_keep": count("min_keep"),
}
"""Field of `SamplingSettings` → field of the request."""

N_PREDICT = count("n_predict", "max_completion_tokens", "max_tokens", low=-1)
N_PROBS = Number(("n_probs", "logprobs"), 0, MAX_PROBS, is_hard=True, is_whole=True)
SLOT = Number(("id_slot",), -1, INT_MAX, is_whole=True)
PING = count("sse_ping_interval", low=-1)
DRY_BASE = Number(("dry_base",))
SEED = Number(("seed",), -INT64_MAX, INT64_MAX, is_whole=True, is_hard=True)

UNSUPPORTED: dict[str, Callable[[Any], bool]] = {
    "n_indent": lambda value: value == 0,
    "t_max_predict_ms": lambda value: value in (0, -1),
    "n_cache_reuse": lambda value: value == 0,
    "post_sampling_probs": lambda value: value is False,
    "lora": lambda value: value == [],
    "echo": lambda value: value is False,
    "reasoning_control": lambda value: value is False,
    "reasoning_budget_tokens": lambda value: value == -1,
    "thinking_budget_tokens": lambda value: value == -1,
}
"""Fields that would change an answer, if they did anything → whether a value asks for what happens anyway."""


@dataclass(frozen=True)
class Params:
    """What a request asks for besides its prompt.

    Attributes:
        request: The generation.
        n: Answers per prompt.
        is_stream: Tokens come as they are made.
        has_usage: A stream ends with an event of token counts.
        has_timings: Every event of a stream has timings.
        has_progress: A stream tells how far the prompt has been read.
        has_tokens: Native answers have token ids.
        is_verbose: OpenAI's answers have the native one within.
        reuses: What a slot holds of the prompt is not evaluated again.
        response_fields: Paths of the native answer that are wanted; empty = all of it.
        ping_interval: Seconds of silence after which a stream gets a comment; -1 = never.
        slot: Number of the slot that is wanted; -1 = any.
        shows_drafters: Every event of a stream names the drafter of its token.
        answer_form: How thoughts and calls stand in the answer to a conversation.
    """

    request: RequestConfig
    n: int = 1
    is_stream: bool = False
    has_usage: bool = False
    has_timings: bool = False
    has_progress: bool = False
    has_tokens: bool = False
    is_verbose: bool = False
    reuses: bool = True
    response_fields: tuple[str, ...] = field(default=())
    ping_interval: int = 30
    slot: int = -1
    shows_drafters: bool = False
    answer_form: AnswerForm = field(default_factory=AnswerForm)

    def numbered(self, number: int) -> RequestConfig:
        """The generation of the answer `number` to a prompt: a given seed counts up, as in llama.cpp."""
        seed = self.request.sampling.seed
        if not number or seed == RANDOM_SEED:
            return self.request
        return replace(self.request, sampling=replace(self.request.sampling, seed=(seed + number) % 2**32))


def field_error(name: str, reason: str) -> RequestError:
    """The error of one field."""
    return RequestError(f"Field '{name}': {reason}")


def wrong_type(name: str, expected: str, value: Any) -> RequestError:
    """The error of a field whose value is of another JSON type."""
    return field_error(name, f"type must be {expected}, but is {type_name(value)}")


def type_name(value: Any) -> str:
    """The JSON type of a value."""
    names: dict[type, str] = {bool: "boolean", str: "string", list: "array", dict: "object", type(None): "null"}
    return names.get(type(value), "number")


def flag(body: Body, name: str, *, default: bool = False) -> bool:
    """A field that is true or false.

    Raises:
        RequestError: It is something else.
    """
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise wrong_type(name, "boolean", value)
    return value


def texts(body: Body, name: str) -> tuple[str, ...]:
    """A field that is a list of texts.

    Raises:
        RequestError: It is something else.
    """
    value = body.get(name)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise wrong_type(name, "array", value)
    wrong = next((item for item in value if not isinstance(item, str)), None)
    if wrong is not None or None in value:
        raise wrong_type(name, "string", wrong)
    return tuple(value)


def read_params(
    body: Body,
    base: RequestConfig,
    tokenizer: Tokenizer,
    *,
    n_slots: int,
    ping_interval: int,
    is_verbose: bool,
    reuses: bool,
    n_vocab: int,
) -> Params:
    """The settings of a request.

    Args:
        body: The JSON object.
        base: What counts where the request says nothing; its sampling is complete.
        tokenizer: The target's.
        n_slots: Most answers per prompt.
        ping_interval: The server's.
        is_verbose: What counts where the request does not say.
        reuses: The same for `cache_prompt`.
        n_vocab: Width of the logits.

    Raises:
        RequestError: A field is wrong, or asks for what is not done here.
    """
    for name, is_idle in UNSUPPORTED.items():
        value = body.get(name)
        if value is not None and not is_idle(value):
            raise unsupported(f"field '{name}'")
    n_predict, n, ping = N_PREDICT.read(body), count("n_cmpl", "n", low=1, high=n_slots).read(body), PING.read(body)
    options = body.get("stream_options")
    return Params(
        request=replace(
            base,
            n_predict=base.n_predict if n_predict is None else int(n_predict),
            sampling=read_sampling(body, base.sampling.settings(), tokenizer, n_vocab),
            stop=read_stop(body) or base.stop,
            visible=texts(body, "preserved_tokens"),
            logprobs=int(N_PROBS.read(body) or 0),
        ),
        n=int(n or 1),
        is_stream=flag(body, "stream"),
        has_usage=isinstance(options, dict) and flag(options, "include_usage"),
        has_timings=flag(body, "timings_per_token"),
        has_progress=flag(body, "return_progress"),
        has_tokens=flag(body, "return_tokens"),
        is_verbose=flag(body, "verbose", default=is_verbose),
        reuses=flag(body, "cache_prompt", default=reuses),
        response_fields=texts(body, "response_fields"),
        ping_interval=ping_interval if ping is None else int(ping),
        slot=-1 if (slot := SLOT.read(body)) is None else int(slot),
        shows_drafters=flag(body, "return_drafters"),
    )


def read_stop(body: Body) -> tuple[str, ...]:
    """Stop strings.

    Raises:
        RequestError: They are neither a text nor a list of texts.
    """
    stop = body.get("stop")
    if isinstance(stop, str):
        return (stop,) if stop else ()
    return tuple(filter(None, texts(body, "stop")))


def read_sampling(body: Body, base: SamplingSettings, tokenizer: Tokenizer, n_vocab: int) -> SamplingSettings:
    """The sampling of a request.

    Raises:
        RequestError: A field is wrong.
    """
    found: dict[str, Any] = {}
    for name, number in SAMPLING.items():
        value = number.read(body)
        if value is not None:
            found[name] = value
    seed = SEED.read(body)
    if seed is not None:
        found["seed"] = int(seed) % 2**32
    dry_base = DRY_BASE.read(body)
    if dry_base is not None and dry_base >= 1:  # smaller ones count as none, as in llama.cpp
        found["dry_base"] = dry_base
    if body.get("dry_sequence_breakers") is not None:
        found["dry_sequence_breakers"] = texts(body, "dry_sequence_breakers")
        if not found["dry_sequence_breakers"]:
            reason = "Error: dry_sequence_breakers must be a non-empty array of strings"
            raise field_error("dry_sequence_breakers", reason)
    samplers = body.get("samplers")
    if isinstance(samplers, str):
        found["samplers"] = tuple(SAMPLER_LETTERS[letter] for letter in samplers if letter in SAMPLER_LETTERS)
    elif samplers is not None:
        found["samplers"] = tuple(filter(None, map(canonical_sampler, texts(body, "samplers"))))
    if body.get("ignore_eos") is not None:
        found["ignore_eos"] = flag(body, "ignore_eos")
    if body.get("logit_bias") is not None:
        found["logit_bias"] = read_logit_bias(body["logit_bias"], tokenizer, n_vocab)
    return replace(base, **found, **read_grammar(body), triggers=read_triggers(body, tokenizer))


def read_grammar(body: Body) -> dict[str, Any]:
    """Grammar or JSON schema; with both the grammar counts."""
    grammar, schema = body.get("grammar"), body.get("json_schema")
    if grammar is not None:
        if not isinstance(grammar, str):
            raise wrong_type("grammar", "string", grammar)
        return {"grammar": _bounded("grammar", grammar) or None, "json_schema": None}
    if schema is None:
        return {}
    text = json.dumps(schema if schema != {} else {"type": "object"})
    return {"grammar": None, "json_schema": _bounded("json_schema", text)}


def read_triggers(body: Body, tokenizer: Tokenizer) -> Triggers | None:
    """What the grammar waits for if it is lazy; None: it holds from the beginning.

    Raises:
        RequestError: There is nothing it could wait for, or something is wrong, or a regular expression, which could
            take forever.
    """
    given = body.get("grammar_triggers")
    if given is not None and not isinstance(given, list):
        raise wrong_type("grammar_triggers", "array", given)
    preserved = [_tokens(text, tokenizer) for text in texts(body, "preserved_tokens")]
    words: list[str] = []
    tokens: list[int] = []
    for trigger in given or []:
        kind, value = (trigger.get("type"), trigger.get("value")) if isinstance(trigger, dict) else (None, None)
        if kind in (_PATTERN, _PATTERN_FULL) and not isinstance(kind, bool):
            raise unsupported("a pattern in 'grammar_triggers'")
        if kind not in (_TOKEN, _WORD) or isinstance(kind, bool) or not isinstance(value, str) or not value:
            raise field_error("grammar_triggers", "every trigger needs a 'type' from 0 to 3 and a 'value'")
        ids = [trigger.get("token")] if kind == _TOKEN else _tokens(value, tokenizer)
        if len(ids) != 1:
            words.append(value)
        elif not _is_id(ids[0]) or not 0 <= ids[0] < tokenizer.n_vocab:
            raise field_error("grammar_triggers", "a trigger of type 0 needs the id of its 'token'")
        elif kind == _WORD and ids not in preserved:
            reason = f"Grammar trigger word should be marked as preserved token: {value}"
            raise field_error("grammar_triggers", reason)
        else:
            tokens.append(ids[0])
    if not flag(body, "grammar_lazy"):
        return None
    if not words and not tokens:
        raise field_error("grammar_triggers", "Error: no triggers set for lazy grammar!")
    return Triggers(tuple(words), tuple(tokens))


def _tokens(text: str, tokenizer: Tokenizer) -> list[Any]:
    return tokenizer.encode(text, add_special=False, parse_special=True)


def _bounded(name: str, text: str) -> str:
    if len(text) > MAX_GRAMMAR:
        raise field_error(name, f"{len(text)} characters, at most {MAX_GRAMMAR} are compiled")
    return text


def read_logit_bias(value: Any, tokenizer: Tokenizer, n_vocab: int) -> tuple[tuple[int, float], ...]:
    """Biases by token id or by text, all of whose tokens are meant; what is neither is passed over, as in llama.cpp."""
    pairs: list[Any] = []
    if isinstance(value, list):
        pairs = [pair for pair in value if isinstance(pair, list) and len(pair) == 2]
    elif isinstance(value, dict):
        pairs = [(int(key) if _is_integer(key) else key, bias) for key, bias in value.items()]
    found: list[tuple[int, float]] = []
    for key, bias in pairs:
        if bias is False:
            weight = -math.inf
        elif isinstance(bias, int | float) and not isinstance(bias, bool):
            weight = _float(bias)
            weight = math.copysign(math.inf, weight) if abs(weight) > FLOAT_MAX else weight
        else:
            continue
        if isinstance(key, int) and not isinstance(key, bool):
            found += [(key, weight)] if 0 <= key < n_vocab else []
        elif isinstance(key, str):
            found += [(token, weight) for token in tokenizer.encode(key, add_special=False, parse_special=False)]
    return tuple(found)


def _is_integer(text: str) -> bool:
    return len(text) < 20 and text.removeprefix("-").isdecimal() and text.isascii()


def read_prompts(value: Any, tokenizer: Tokenizer) -> list[list[int]]:
    """The prompts of a completion: text, token ids, a mix of both, or a list of these.

    Raises:
        RequestError: There is none, or it is something else.
    """
    is_list = isinstance(value, list) and not any(map(_is_id, value))
    prompts = [read_prompt(item, tokenizer) for item in (value if is_list else [value])]
    if not prompts:
        raise RequestError('"prompt" must not be empty')
    return prompts


def read_prompt(value: Any, tokenizer: Tokenizer) -> list[int]:
    """One prompt; BOS is added to a text, and to a mix that begins with one, where the model wants it."""
    if isinstance(value, dict) and "prompt_string" in value:
        if "multimodal_data" in value:
            raise RequestError("Multimodal data provided, but model does not support multimodal requests.")
        value = value["prompt_string"]
    if isinstance(value, str):
        return tokenizer.encode(value, add_special=True, parse_special=True)
    if isinstance(value, list) and value and all(_is_id(item) or isinstance(item, str) for item in value):
        return read_mix(value, tokenizer, add_special=True)
    raise RequestError(
        '"prompt" elements must be a string, a list of tokens, a JSON object containing a prompt string, '
        "or a list of mixed strings & tokens."
    )


def read_mix(items: list[Any], tokenizer: Tokenizer, *, add_special: bool, parse_special: bool = True) -> list[int]:
    """Tokens of texts and ids in a row; only a text at the beginning gets BOS."""
    ids: list[int] = []
    for number, item in enumerate(items):
        if isinstance(item, str):
            wants_bos = add_special and number == 0
            ids += tokenizer.encode(item, add_special=wants_bos, parse_special=parse_special)
        else:
            ids.append(int(item))
    return ids


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
