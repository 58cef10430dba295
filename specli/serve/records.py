"""The JSON of answers: native records, OpenAI's, and events (llama.cpp `tools/server/server-task.cpp`, b11434)."""

from __future__ import annotations

import json
import math
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specli._version import __version__
from specli.engine.sequence import Sequence, TokenEvent, TokenLogprob
from specli.engine.stats import Timings
from specli.sampling.settings import SamplingSettings
from specli.serve.fields import Params
from specli.serve.worker import Progress
from specli.tokenizer import Tokenizer
from specli.tokenizer.answer import AnswerReader
from specli.tokenizer.calls import Piece

BUILD = f"b0-specli-{__version__}"  # llama.cpp's begin with b, and clients look at that
LOWEST = -3.4028234663852886e38  # log-probability of what cannot be: JSON has no infinity
STOP_TYPES = {"eos": "eos", "stop": "word", "limit": "limit", "context": "limit"}
FINISHED = {"eos": "stop", "stop": "stop", "limit": "length", "context": "length"}


def dump(value: Any) -> bytes:
    """JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def event(value: Any) -> bytes:
    """An event of a stream."""
    return b"data: " + dump(value) + b"\n\n"


@dataclass(frozen=True)
class Context:
    """What all answers of one request share.

    Attributes:
        params: What was asked for.
        model: The model's name.
        types: Drafter types at work.
        tokenizer: The target's.
        id: The request's name.
    """

    params: Params
    model: str
    types: tuple[str, ...]
    tokenizer: Tokenizer
    id: str = field(default_factory=lambda: "chatcmpl-" + uuid.uuid4().hex)


def early_timings(sequence: Sequence, progress: Progress) -> dict[str, Any]:
    """Times and counts of a request whose prompt has been read so far."""
    cache_n = sequence.timings.cache_n
    return _timings(Timings(cache_n=cache_n, prompt_n=progress.n_read - cache_n, prompt_ns=progress.ns))


def timings_record(sequence: Sequence) -> dict[str, Any]:
    """Times and counts of a request. `drafters` is specli's own."""
    record = _timings(sequence.timings)
    if sequence.drafters:
        record["drafters"] = [
            {
                "type": stats.name,
                "draft_n": stats.gen_tokens,
                "draft_n_accepted": stats.acc_tokens,
                "n_drafts": stats.gen_drafts,
                "accepted_per_position": list(stats.acc_per_pos),
            }
            for stats in sequence.drafters
        ]
    return record


def _timings(t: Timings) -> dict[str, Any]:
    """Rates without a denominator are 0."""
    prompt_ms, predicted_ms = t.prompt_ns / 1e6, t.predicted_ns / 1e6
    record: dict[str, Any] = {
        "cache_n": t.cache_n,
        "prompt_n": t.prompt_n,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": t.prompt_per_token_ms or 0.0,
        "prompt_per_second": t.prompt_per_second or 0.0,
        "predicted_n": t.predicted_n,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": t.predicted_per_token_ms or 0.0,
        "predicted_per_second": t.predicted_per_second or 0.0,
    }
    if t.draft_n:
        record |= {"draft_n": t.draft_n, "draft_n_accepted": t.draft_n_accepted}
    return record


def progress_record(sequence: Sequence, progress: Progress) -> dict[str, Any]:
    """How far the prompt has been read."""
    return {
        "total": len(sequence.prompt),
        "cache": sequence.timings.cache_n,
        "processed": progress.n_read,
        "time_ms": progress.ns // 1_000_000,
    }


def usage_record(sequences: Iterable[Sequence]) -> dict[str, Any]:
    """Token counts; a prompt that several answers share counts once per answer, as in llama.cpp."""
    known = list(sequences)
    made, given = sum(len(each.tokens) for each in known), sum(len(each.prompt) for each in known)
    return {
        "completion_tokens": made,
        "prompt_tokens": given,
        "total_tokens": made + given,
        "prompt_tokens_details": {"cached_tokens": sum(each.timings.cache_n for each in known)},
    }


def probabilities(items: Iterable[TokenLogprob], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Log-probabilities of tokens and of the most likely ones at their places."""

    def entry(token: int, logprob: float | None) -> dict[str, Any]:
        piece = tokenizer.piece(token, special=True)
        value = LOWEST if logprob is None or logprob < LOWEST else logprob
        return {"id": token, "token": piece.decode(errors="ignore"), "bytes": list(piece), "logprob": value}

    return [
        {**entry(item.id, item.logprob), "top_logprobs": [entry(token, logprob) for token, logprob in item.top]}
        for item in items
    ]


def settings_record(
    params: Params, sampling: SamplingSettings, types: tuple[str, ...], end_ids: Iterable[int] = ()
) -> dict[str, Any]:
    """What a request was generated with. A bias of minus infinity, which those of `end_ids` get too, is null."""
    s, request = sampling, params.request
    banned = [(token, -math.inf) for token in end_ids] if s.ignore_eos else []
    return {
        "seed": s.seed,
        "temperature": s.temperature,
        "dynatemp_range": s.dynatemp_range,
        "dynatemp_exponent": s.dynatemp_exponent,
        "top_k": s.top_k,
        "top_p": s.top_p,
        "min_p": s.min_p,
        "top_n_sigma": s.top_n_sigma,
        "xtc_probability": s.xtc_probability,
        "xtc_threshold": s.xtc_threshold,
        "typical_p": s.typical_p,
        "repeat_last_n": s.repeat_last_n,
        "repeat_penalty": s.repeat_penalty,
        "presence_penalty": s.presence_penalty,
        "frequency_penalty": s.frequency_penalty,
        "dry_multiplier": s.dry_multiplier,
        "dry_base": s.dry_base,
        "dry_allowed_length": s.dry_allowed_length,
        "dry_penalty_last_n": s.dry_penalty_last_n,
        "dry_sequence_breakers": list(s.dry_sequence_breakers),
        "mirostat": s.mirostat,
        "mirostat_tau": s.mirostat_ent,
        "mirostat_eta": s.mirostat_lr,
        "adaptive_target": s.adaptive_target,
        "adaptive_decay": s.adaptive_decay,
        "stop": list(request.stop),
        "max_tokens": request.n_predict,
        "n_predict": request.n_predict,
        "ignore_eos": s.ignore_eos,
        "stream": params.is_stream,
        "logit_bias": [
            {"token": token, "bias": None if math.isinf(bias) else bias} for token, bias in (*s.logit_bias, *banned)
        ],
        "n_probs": request.logprobs,
        "min_keep": s.min_keep,
        "grammar": s.grammar or "",
        "grammar_lazy": s.triggers is not None,
        "samplers": list(s.samplers),
        "speculative.types": ",".join(types or ("none",)),
        "timings_per_token": params.has_timings,
        "post_sampling_probs": False,
    }


def native_record(context: Context, sequence: Sequence, index: int, *, is_part: bool) -> dict[str, Any]:
    """The answer of `/completion`.

    Args:
        context: Of the request.
        sequence: The finished generation.
        index: Its number in the request.
        is_part: It ends a stream, which has told text and tokens before.
    """
    params = context.params
    sampling = sequence.request.sampling.settings()
    record = {
        "index": index,
        "content": "" if is_part else sequence.text,
        "tokens": sequence.tokens if params.has_tokens and not is_part else [],
        "id_slot": sequence.slot_index,
        "stop": True,
        "model": context.model,
        "tokens_predicted": len(sequence.tokens),
        "tokens_evaluated": len(sequence.prompt),
        "generation_settings": settings_record(params, sampling, context.types, context.tokenizer.eog_ids)
        | {"seed": sequence.sampler.seed},
        "prompt": context.tokenizer.decode(sequence.prompt, special=True),
        "has_new_line": "\n" in sequence.text,
        "truncated": sequence.stop == "context",
        "stop_type": STOP_TYPES.get(sequence.stop, "none"),
        "stopping_word": sequence.stopping_word,
        "tokens_cached": len(sequence.prompt) + max(0, len(sequence.tokens) - 1),
        "timings": timings_record(sequence),
    }
    if sequence.logprobs and not is_part:
        record["completion_probabilities"] = probabilities(sequence.logprobs, context.tokenizer)
    return select(record, params.response_fields)


def select(record: dict[str, Any], paths: tuple[str, ...]) -> dict[str, Any]:
    """The members at these paths, such as `timings/prompt_n`, under the paths as their names; all without paths."""
    if not paths:
        return record
    found: dict[str, Any] = {}
    for path in paths:
        value: Any = record
        for name in path.split("/"):
            if not isinstance(value, Mapping) or name not in value:
                break
            value = value[name]
        else:
            found[path] = value
    return found


class NativeForm:
    """`/completion`: one record, or a list of them for several prompts."""

    ends_with_done = False

    def __init__(self, context: Context) -> None:
        self._context = context

    def whole(self, sequences: list[Sequence]) -> Any:
        """The answer that is not streamed."""
        records = [
            native_record(self._context, sequence, index, is_part=False) for index, sequence in enumerate(sequences)
        ]
        return records[0] if len(records) == 1 else records

    def begin(self, index: int) -> list[dict[str, Any]]:
        """Events before the first token."""
        return []

    def progress(self, sequence: Sequence, index: int, progress: Progress) -> list[dict[str, Any]]:
        """An event while the prompt is read."""
        return [{**self._event(sequence, index), "prompt_progress": progress_record(sequence, progress)}]

    def parts(
        self, sequence: Sequence, index: int, token: TokenEvent, logprobs: list[TokenLogprob]
    ) -> list[dict[str, Any]]:
        """The events of a token."""
        record = {**self._event(sequence, index), "content": token.text, "tokens": [token.id]}
        if logprobs:
            record["completion_probabilities"] = probabilities(logprobs, self._context.tokenizer)
        return [record]

    def _event(self, sequence: Sequence, index: int) -> dict[str, Any]:
        return {
            "index": index,
            "content": "",
            "tokens": [],
            "stop": False,
            "id_slot": sequence.slot_index,
            "tokens_predicted": len(sequence.tokens),
            "tokens_evaluated": len(sequence.prompt),
        }

    def end(self, sequence: Sequence, index: int, logprobs: list[TokenLogprob]) -> list[dict[str, Any]]:
        """Events behind the last token."""
        record = native_record(self._context, sequence, index, is_part=True)
        if logprobs:
            record["completion_probabilities"] = probabilities(logprobs, self._context.tokenizer)
        return [record]


class OpenAIForm(ABC):
    """What `/v1/completions` and `/v1/chat/completions` have in common."""

    ends_with_done = True
    whole_object = ""
    part_object = ""

    def __init__(self, context: Context) -> None:
        self._context = context

    def _head(self, name: str) -> dict[str, Any]:
        context = self._context
        return {
            "created": int(time.time()),
            "model": context.model,
            "system_fingerprint": BUILD,
            "object": name,
            "id": context.id,
        }

    @abstractmethod
    def _choice(self, sequence: Sequence, index: int) -> dict[str, Any]:
        """The entry of `choices` of an answer that is not streamed."""

    @abstractmethod
    def _texts(self, index: int, text: str) -> list[dict[str, Any]]:
        """The entries of `choices` of streamed events with this text."""

    @abstractmethod
    def _last(self, index: int, reason: str) -> dict[str, Any]:
        """The entry of `choices` of the last streamed event."""

    def _rest(self, index: int) -> list[dict[str, Any]]:
        """The entries of `choices` of what was held back until the end."""
        return []

    def _reason(self, sequence: Sequence, index: int) -> str:
        """Why the answer ends."""
        return FINISHED.get(sequence.stop, "length")

    def _events(self, choices: list[dict[str, Any]], logprobs: list[TokenLogprob]) -> list[dict[str, Any]]:
        if choices and logprobs:
            choices[0]["logprobs"] = {"content": probabilities(logprobs, self._context.tokenizer)}
        return [{"choices": [choice], **self._head(self.part_object)} for choice in choices]

    def whole(self, sequences: list[Sequence]) -> Any:
        """The answer that is not streamed."""
        record = {
            "choices": [self._choice(sequence, index) for index, sequence in enumerate(sequences)],
            **self._head(self.whole_object),
            "usage": usage_record(sequences),
            "timings": timings_record(sequences[0]),
        }
        if self._context.params.is_verbose:
            record["__verbose"] = native_record(self._context, sequences[0], 0, is_part=False)
        return record

    def begin(self, index: int) -> list[dict[str, Any]]:
        """Events before the first token."""
        return []

    def progress(self, sequence: Sequence, index: int, progress: Progress) -> list[dict[str, Any]]:
        """An event while the prompt is read."""
        events = self.begin(index) or self._events(self._texts(index, ""), [])
        events[-1]["prompt_progress"] = progress_record(sequence, progress)
        return events

    def parts(
        self, sequence: Sequence, index: int, token: TokenEvent, logprobs: list[TokenLogprob]
    ) -> list[dict[str, Any]]:
        """The events of a token with text; none while it is not certain what the text belongs to."""
        return self._events(self._texts(index, token.text), logprobs)

    def end(self, sequence: Sequence, index: int, logprobs: list[TokenLogprob]) -> list[dict[str, Any]]:
        """Events behind the last token."""
        choices = [*self._rest(index), self._last(index, self._reason(sequence, index))]
        events = self._events(choices, logprobs)
        if self._context.params.is_verbose:
            events[0]["__verbose"] = native_record(self._context, sequence, index, is_part=True)
        events[-1]["timings"] = timings_record(sequence)
        return events

    def usage(self, sequences: list[Sequence]) -> dict[str, Any]:
        """The event of `stream_options.include_usage`."""
        record = {"choices": [], **self._head(self.part_object), "usage": usage_record(sequences)}
        return {**record, "timings": timings_record(sequences[0])}


class CompletionForm(OpenAIForm):
    """`/v1/completions`."""

    whole_object = "text_completion"
    part_object = "text_completion"

    def _choice(self, sequence: Sequence, index: int) -> dict[str, Any]:
        found = probabilities(sequence.logprobs, self._context.tokenizer)
        return {
            "text": sequence.text,
            "index": index,
            "logprobs": {"content": found} if found else None,
            "finish_reason": FINISHED.get(sequence.stop, "length"),
        }

    def _texts(self, index: int, text: str) -> list[dict[str, Any]]:
        return [{"text": text, "index": index, "logprobs": None, "finish_reason": None}]

    def _last(self, index: int, reason: str) -> dict[str, Any]:
        return {"text": "", "index": index, "logprobs": None, "finish_reason": reason}


class ChatForm(OpenAIForm):
    """`/v1/chat/completions`: thoughts and tool calls stand apart from the content."""

    whole_object = "chat.completion"
    part_object = "chat.completion.chunk"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._readers: dict[int, AnswerReader] = {}
        self._calls: dict[int, int] = {}  # answer → calls so far

    def _choice(self, sequence: Sequence, index: int) -> dict[str, Any]:
        reader = AnswerReader(self._context.params.answer_form)
        message = message_record([*reader.push(sequence.text), *reader.flush()])
        self._calls[index] = len(message.get("tool_calls", []))
        choice: dict[str, Any] = {"finish_reason": self._reason(sequence, index), "index": index, "message": message}
        if sequence.logprobs:
            choice["logprobs"] = {"content": probabilities(sequence.logprobs, self._context.tokenizer)}
        return choice

    def begin(self, index: int) -> list[dict[str, Any]]:
        """The event that opens an answer."""
        choice = {"finish_reason": None, "index": index, "delta": {"role": "assistant", "content": None}}
        return [{"choices": [choice], **self._head(self.part_object)}]

    def _reason(self, sequence: Sequence, index: int) -> str:
        reason = super()._reason(sequence, index)
        return "tool_calls" if reason == "stop" and self._calls.get(index) else reason

    def _texts(self, index: int, text: str) -> list[dict[str, Any]]:
        if index not in self._readers:
            self._readers[index] = AnswerReader(self._context.params.answer_form)
        return self._deltas(index, self._readers[index].push(text))

    def _rest(self, index: int) -> list[dict[str, Any]]:
        return self._deltas(index, self._readers[index].flush()) if index in self._readers else []

    def _deltas(self, index: int, pieces: Iterable[Piece]) -> list[dict[str, Any]]:
        choices = []
        for piece in pieces:
            self._calls[index] = max(self._calls.get(index, 0), piece.call + 1)
            choices.append({"finish_reason": None, "index": index, "delta": delta_record(piece)})
        return choices

    def _last(self, index: int, reason: str) -> dict[str, Any]:
        return {"finish_reason": reason, "index": index, "delta": {}}


def delta_record(piece: Piece) -> dict[str, Any]:
    """A part of an answer as `delta`."""
    if piece.call < 0:
        return {"reasoning_content" if piece.is_thought else "content": piece.text}
    if not piece.name:
        return {"tool_calls": [{"index": piece.call, "function": {"arguments": piece.text}}]}
    function = {"name": piece.name, "arguments": piece.text}
    return {"tool_calls": [{"index": piece.call, "id": call_id(), "type": "function", "function": function}]}


def message_record(pieces: Iterable[Piece]) -> dict[str, Any]:
    """A whole answer as `message`."""
    content, thoughts = "", ""
    calls: list[dict[str, Any]] = []
    for piece in pieces:
        if piece.name:
            calls.append({"type": "function", "function": {"name": piece.name, "arguments": ""}, "id": call_id()})
        if piece.call >= 0:
            calls[piece.call]["function"]["arguments"] += piece.text
        elif piece.is_thought:
            thoughts += piece.text
        else:
            content += piece.text
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if thoughts:
        message["reasoning_content"] = thoughts
    if calls:
        message["tool_calls"] = calls
    return message


def call_id() -> str:
    """The name of a call: nine letters and digits, as the templates of Mistral ask for."""
    return uuid.uuid4().hex[:9]


Form = NativeForm | CompletionForm | ChatForm
