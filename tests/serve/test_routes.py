"""Routes, fields and errors of the server; texts and statuses are llama-server's (tools/server, b11434)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra specli[serve]")
pytest.importorskip("uvicorn", reason="needs the extra specli[serve]")

from specli.demo import MODELS
from specli.engine.config import RequestConfig, SamplingConfig
from specli.serve.config import ServeConfig
from specli.serve.fields import read_logit_bias
from tests.serve.support import Served, run_config, serving

TARGET = next(model.path for model in MODELS if model.is_target)
HELLO = {"messages": [{"role": "user", "content": "Hello, who are you?"}]}
CHAT, COMPLETION, LEGACY = "/v1/chat/completions", "/completion", "/v1/completions"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(run_config(TARGET, types=("ngram-simple",))) as server:
        yield server


def alone(served: Served, prompt: str | list[int], **request: Any) -> Any:
    """The same request on the Python API, when the server has nothing to do."""
    run = served.run[0]
    served.wait_until(served.is_idle)
    ids = run.encode(prompt) if isinstance(prompt, str) else prompt
    sampling = SamplingConfig(**{"temperature": 0.0, "seed": 1, **request.pop("sampling", {})})
    generation = run.engine.generate(ids, RequestConfig(**{"n_predict": 16, "sampling": sampling, **request}))
    for _ in generation:
        pass
    return generation


def test_chat_is_what_the_template_and_the_engine_give(served: Served) -> None:
    reply = served.post(CHAT, HELLO).json
    prompt = served.run[0].session().render(HELLO["messages"])
    expected = alone(served, served.run[0].tokenizer.encode_chat(prompt))
    (choice,) = reply["choices"]
    assert choice["message"] == {"role": "assistant", "content": expected.text}
    assert choice["finish_reason"] == {"eos": "stop", "limit": "length"}[expected.stop]
    assert reply["usage"]["completion_tokens"] == len(expected.tokens) == reply["timings"]["predicted_n"]
    assert reply["usage"]["prompt_tokens"] == len(expected.prompt)
    assert reply["system_fingerprint"].startswith("b")
    assert reply["id"].startswith("chatcmpl-")
    assert (reply["object"], reply["model"]) == ("chat.completion", "target.gguf")
    assert served.post("/apply-template", HELLO).json == {"prompt": prompt}
    assert served.post(f"{CHAT}/input_tokens", HELLO).json["input_tokens"] == len(expected.prompt)


def test_stream_is_the_answer_in_pieces(served: Served) -> None:
    whole = served.post(CHAT, HELLO).json
    reply = served.post(CHAT, {**HELLO, "stream": True, "stream_options": {"include_usage": True}})
    assert reply.headers["content-type"].startswith("text/event-stream")
    *events, done = reply.events
    assert done == "[DONE]"
    first, *parts, last, usage = events
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": None}
    contents = [part["choices"][0]["delta"]["content"] for part in parts]
    assert "".join(contents) == whole["choices"][0]["message"]["content"]
    assert all(contents)
    assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "length")
    assert usage["choices"] == []
    assert usage["usage"] == {**whole["usage"], "prompt_tokens_details": usage["usage"]["prompt_tokens_details"]}


def test_native_completion_and_its_stream(served: Served) -> None:
    prompt = "One, two, three, one, two,"
    expected = alone(served, prompt, n_predict=40, sampling={"ignore_eos": True})
    body = {"prompt": prompt, "n_predict": 40, "ignore_eos": True}
    whole = served.post(COMPLETION, {**body, "return_tokens": True}).json
    assert (whole["content"], whole["tokens"]) == (expected.text, expected.tokens)
    assert (whole["stop_type"], whole["truncated"], whole["prompt"]) == ("limit", False, prompt)
    assert whole["timings"]["draft_n"] == expected.timings.draft_n > 0
    assert whole["timings"]["draft_n_accepted"] == expected.timings.draft_n_accepted
    (drafter,) = whole["timings"]["drafters"]
    assert (drafter["type"], drafter["draft_n"]) == ("ngram-simple", expected.timings.draft_n)
    *parts, last = served.post(COMPLETION, {**body, "stream": True, "return_drafters": True}).events
    assert "".join(part["content"] for part in parts) == expected.text
    assert sum(part["drafter"] == "ngram-simple" for part in parts) == expected.timings.draft_n_accepted
    assert (last["stop"], last["content"], last["tokens_predicted"]) == (True, "", 40)


def test_prompts_are_texts_ids_mixes_and_lists_of_them(served: Served) -> None:
    tokenizer = served.run[0].tokenizer
    ids = served.run[0].encode("Hello there")
    bodies = ["Hello there", ids, [*ids[:1], tokenizer.decode(ids[1:])], {"prompt_string": "Hello there"}]
    alike = served.post(COMPLETION, {"prompt": bodies, "n_predict": 4}).json
    assert [each["index"] for each in alike] == [0, 1, 2, 3]
    assert len({each["content"] for each in alike}) == 1
    choices = served.post(LEGACY, {"prompt": ["Hello there", "Good"], "max_tokens": 4}).json["choices"]
    assert [choice["index"] for choice in choices] == [0, 1]
    assert choices[0]["text"] == alike[0]["content"]
    assert choices[1]["text"] == alone(served, "Good", n_predict=4).text


def test_several_answers_count_the_seed_up(served: Served) -> None:
    body = {"prompt": "Once", "n": 2, "seed": 7, "temperature": 1.5, "max_tokens": 8}
    texts = [choice["text"] for choice in served.post(LEGACY, body).json["choices"]]
    expected = [alone(served, "Once", n_predict=8, sampling={"temperature": 1.5, "seed": s}).text for s in (7, 8)]
    assert texts == expected
    assert texts[0] != texts[1]


def test_probabilities_are_those_of_the_engine(served: Served) -> None:
    expected = alone(served, "Hello there", n_predict=3, logprobs=2).logprobs
    native = served.post(COMPLETION, {"prompt": "Hello there", "n_predict": 3, "n_probs": 2}).json
    body = {"prompt": "Hello there", "max_tokens": 3, "logprobs": 2}
    openai = served.post(LEGACY, body).json["choices"][0]["logprobs"]["content"]
    events = served.post(LEGACY, {**body, "stream": True}).events
    streamed = [item for event in events[:-1] for item in (event["choices"][0]["logprobs"] or {}).get("content", [])]
    for found in (native["completion_probabilities"], openai, streamed):
        assert [(item["id"], item["logprob"]) for item in found] == [(item.id, item.logprob) for item in expected]
        assert [[(t["id"], t["logprob"]) for t in item["top_logprobs"]] for item in found] == [
            list(item.top) for item in expected
        ]
        assert "".join(item["token"] for item in found) == native["content"]
    assert "logprobs" not in served.post(CHAT, HELLO).json["choices"][0]
    assert len(served.post(CHAT, {**HELLO, "logprobs": True, "top_logprobs": 3}).json["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 3  # fmt: skip  # noqa: E501


def test_stop_strings_end_the_text(served: Served) -> None:
    text = served.post(COMPLETION, {"prompt": "Hello there"}).json["content"]
    word = text[4:9]
    reply = served.post(COMPLETION, {"prompt": "Hello there", "stop": ["\0none", word]}).json
    assert reply["content"] == text[: text.index(word)]
    assert (reply["stop_type"], reply["stopping_word"]) == ("word", word)


def test_logit_bias_in_all_its_forms(served: Served) -> None:
    tokenizer = served.run[0].tokenizer
    first = served.post(COMPLETION, {"prompt": "Hello there", "n_predict": 1, "return_tokens": True}).json["tokens"][0]
    piece = tokenizer.decode([first])
    body = {"prompt": "Hello there", "return_tokens": True}
    for bias in ([[first, False]], {str(first): False}, {str(first): -100.0}, [[piece, False]]):
        reply = served.post(COMPLETION, {**body, "n_predict": 4, "logit_bias": bias})
        assert first not in reply.json["tokens"]
    (wanted,) = tokenizer.encode(" the", add_special=False, parse_special=False)
    reply = served.post(
        COMPLETION, {"prompt": "Hello", "n_predict": 3, "return_tokens": True, "logit_bias": {str(wanted): 1000}}
    )
    assert reply.json["tokens"] == [wanted] * 3
    beyond_float32 = read_logit_bias({"3": 1e300, "4": -1e39}, tokenizer, n_vocab=5)
    assert beyond_float32 == ((3, math.inf), (4, -math.inf))


def test_grammar_and_schemas_bind(served: Served) -> None:
    reply = served.post(COMPLETION, {"prompt": "x", "grammar": 'root ::= "yes" | "no"'}).json
    assert reply["content"] in ("yes", "no")
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    for form in (
        {"json_schema": schema},
        {"response_format": {"type": "json_object", "schema": schema}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}},
    ):
        content = served.post(CHAT, {**HELLO, "max_tokens": 40, **form}).json["choices"][0]["message"]["content"]
        assert json.loads(content)["a"] in (1, 2)


def test_content_that_is_null_is_empty(served: Served) -> None:
    roles = ("system", "user", "assistant", "user")
    empty, null = (
        served.post("/apply-template", {"messages": [{"role": role, "content": content} for role in roles]})
        for content in ("", None)
    )
    assert (null.status, null.json) == (200, empty.json)


def test_last_assistant_message_is_continued(served: Served) -> None:
    messages = [*HELLO["messages"], {"role": "assistant", "content": "I am"}]
    rendered = served.run[0].session().render(HELLO["messages"])
    assert served.post("/apply-template", {"messages": messages}).json["prompt"] == rendered + "I am"
    answer = served.post("/apply-template", {"messages": [*messages, messages[-1]]})
    assert (answer.status, answer.json["error"]["message"]) == (
        400,
        "Cannot have 2 or more assistant messages at the end of the list.",
    )


def test_context_that_fills_up_ends_the_answer(served: Served) -> None:
    reply = served.post(COMPLETION, {"prompt": [100] * 250, "n_predict": -1, "ignore_eos": True}).json
    assert (reply["truncated"], reply["stop_type"]) == (True, "limit")
    assert reply["tokens_evaluated"] + reply["tokens_predicted"] == 256


def test_prompt_reuse_adds_up_and_can_be_declined(served: Served) -> None:
    body = {"prompt": "A sentence that is asked for twice", "n_predict": 2}
    served.post(COMPLETION, body)
    again = served.post(COMPLETION, body).json
    assert again["timings"]["cache_n"] > 0
    assert again["timings"]["cache_n"] + again["timings"]["prompt_n"] == again["tokens_evaluated"]
    assert served.post(COMPLETION, {**body, "cache_prompt": False}).json["timings"]["cache_n"] == 0


def test_no_tokens_are_asked_for(served: Served) -> None:
    reply = served.post(COMPLETION, {"prompt": "Hello", "n_predict": 0}).json
    assert (reply["content"], reply["tokens_predicted"], reply["stop_type"]) == ("", 0, "limit")


def test_response_fields_select(served: Served) -> None:
    fields = ["content", "generation_settings/n_predict", "missing/x"]
    reply = served.post(COMPLETION, {"prompt": "Hello", "n_predict": 1, "response_fields": fields}).json
    assert set(reply) == {"content", "generation_settings/n_predict"}


def test_tokenize_and_detokenize(served: Served) -> None:
    text = "Grüße, <|im_end|> you"
    ids = served.run[0].tokenizer.encode(text, add_special=False, parse_special=True)
    assert served.post("/tokenize", {"content": text}).json == {"tokens": ids}
    assert served.post("/detokenize", {"tokens": ids}).json == {"content": text}
    plain = served.post("/tokenize", {"content": text, "parse_special": False}).json["tokens"]
    assert len(plain) > len(ids)
    pieces = served.post("/tokenize", {"content": "😀", "with_pieces": True}).json["tokens"]
    raw = b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode() for p in pieces)
    assert raw == "😀".encode()
    assert served.post("/tokenize", {}).json == {"tokens": []}


BAD = [
    (CHAT, {}, "'messages' is required"),
    (CHAT, {"messages": 3}, "Expected 'messages' to be an array"),
    (CHAT, {"messages": [{"role": "user"}]}, "All non-assistant messages must contain 'content'"),
    (CHAT, {**HELLO, "top_logprobs": 2}, "top_logprobs requires logprobs to be set to true"),
    (CHAT, {**HELLO, "response_format": {"type": "xml"}}, 'response_format type must be one of "text" or "json_object", but got: xml'),  # noqa: E501
    (CHAT, {**HELLO, "grammar": "root ::= \"a\"", "json_schema": {}}, "Cannot use both json_schema and grammar"),
    (CHAT, {**HELLO, "chat_template_kwargs": {"enable_thinking": "no"}}, 'invalid type for "enable_thinking" (expected boolean, got string)'),  # noqa: E501
    (CHAT, {**HELLO, "n": 3}, "Field 'n': Value must be between 1 <= value <= 2, but got 3"),
    (CHAT, {**HELLO, "max_tokens": -2}, "Field 'max_tokens': Value must be between -1 <= value <= 2147483647, but got -2"),  # noqa: E501
    (COMPLETION, {"prompt": "x", "temperature": "hot"}, "Field 'temperature': type must be number, but is string"),
    (COMPLETION, {"prompt": "x", "top_k": True}, "Field 'top_k': type must be number, but is boolean"),
    (COMPLETION, {"prompt": "x", "adaptive_decay": 1}, "Field 'adaptive_decay': Value must be between 0.000000 <= value <= 0.990000, but got 1.000000"),  # noqa: E501
    (COMPLETION, {"prompt": "x", "dry_sequence_breakers": []}, "Field 'dry_sequence_breakers': Error: dry_sequence_breakers must be a non-empty array of strings"),  # noqa: E501
    (COMPLETION, {"prompt": []}, '"prompt" must not be empty'),
    (COMPLETION, {"prompt": {"a": 1}}, '"prompt" elements must be'),
    (COMPLETION, {"prompt": [99999999]}, "prompt token 99999999 is outside the vocabulary of 4096"),
    (COMPLETION, {"prompt": "x", "grammar": "root ::= ("}, "grammar"),
    (COMPLETION, {"prompt": "x", "grammar": 'root ::= "' + "a" * 70_000 + '"'}, "Field 'grammar': 70011 characters, at most 65536 are compiled"),  # noqa: E501
    (COMPLETION, {"prompt": "x", "json_schema": {"enum": ["a" * 70_000]}}, "Field 'json_schema': 70014 characters, at most 65536 are compiled"),  # noqa: E501
    (LEGACY, {"prompt": "x", "echo": True}, "Only no echo is supported"),
    (LEGACY, {"prompt": "x", "best_of": 2}, "Unsupported param: best_of"),
    (LEGACY, {}, '"prompt" is required'),
    ("/detokenize", {"tokens": [-1]}, "token -1 is outside the vocabulary of 4096"),
    (CHAT, b"{", "the request body is not valid JSON"),
    (CHAT, b"[1]", "the request body must be a JSON object"),
    (CHAT, b"[" * 100_000, "the request body is not valid JSON"),
    (COMPLETION, b'{"prompt": "x", "temperature": NaN}', "the request body is not valid JSON"),
    (COMPLETION, b'{"prompt": "x", "temperature": 1e999}', "Field 'temperature': type must be number"),
    (COMPLETION, {"prompt": "x", "temperature": 1e39}, "Field 'temperature': 1e+39 is beyond float32"),
    (COMPLETION, {"prompt": "x", "repeat_penalty": -1e300}, "Field 'repeat_penalty': -1e+300 is beyond float32"),
    (COMPLETION, b'\xff{"prompt": "x"}', "the request body is not valid JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "message"), BAD, ids=range(len(BAD)))
def test_bad_requests_are_told_what_is_wrong(served: Served, path: str, body: Any, message: str) -> None:
    reply = served.post(path, body)
    error = reply.json["error"]
    assert (reply.status, error["code"], error["type"]) == (400, 400, "invalid_request_error")
    assert error["message"].startswith(message)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
        (COMPLETION, {"prompt": "x", "post_sampling_probs": True}),
        (COMPLETION, {"prompt": "x", "t_max_predict_ms": 5}),
        ("/v1/responses", {}),
        ("/v1/messages", {}),
        ("/v1/embeddings", {}),
        ("/infill", {}),
        ("/slots/0?action=save", {}),
        ("/props", {}),
    ],
)
def test_what_is_not_done_is_refused_by_name(served: Served, path: str, body: Any) -> None:
    reply = served.post(path, body)
    assert (reply.status, reply.json["error"]["type"]) == (501, "not_supported_error")


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/nope"), ("GET", CHAT), ("DELETE", "/slots"), ("POST", "/health")]
)
def test_unknown_routes(served: Served, method: str, path: str) -> None:
    error = {"code": 404, "message": "File Not Found", "type": "not_found_error"}
    reply = served.ask(method, path)
    assert (reply.status, reply.json) == (404, {"error": error})


def test_long_prompt_is_an_error_of_its_own(served: Served) -> None:
    reply = served.post(COMPLETION, {"prompt": [100] * 256, "stream": True})
    message = "request (256 tokens) exceeds the available context size (256 tokens), try increasing it"
    error = {"code": 400, "message": message, "type": "exceed_context_size_error", "n_prompt_tokens": 256, "n_ctx": 256}
    assert (reply.status, reply.json) == (400, {"error": error})
    assert served.post(COMPLETION, {"prompt": [100] * 255, "n_predict": 1}).status == 200


def test_metrics_are_sums_of_timings(served: Served) -> None:
    def value(name: str) -> float:
        text = served.get("/metrics").body.decode()
        return float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"llamacpp:{name} ")))

    names = {
        "prompt_tokens_total": "prompt_n",
        "tokens_predicted_total": "predicted_n",
        "prompt_tokens_cached_total": "cache_n",
        "spec_decode_num_draft_tokens_total": "draft_n",
        "spec_decode_num_accepted_tokens_total": "draft_n_accepted",
    }
    before = {name: value(name) for name in names}
    timings = served.post(COMPLETION, {"prompt": "One, two, one, two,", "n_predict": 40, "ignore_eos": True}).json[
        "timings"
    ]
    assert {name: value(name) - before[name] for name in names} == {name: timings[key] for name, key in names.items()}
    assert (value("requests_processing"), value("requests_deferred")) == (0, 0)
    assert served.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")


def test_model_and_settings_are_shown(served: Served) -> None:
    (info,) = served.get("/v1/models").json["data"]
    assert (info["id"], info["object"], info["meta"]["n_ctx"], info["meta"]["n_vocab"]) == (
        "target.gguf",
        "model",
        256,
        4096,
    )
    props = served.get("/props").json
    assert props["total_slots"] == len(served.get("/slots").json) == 2
    assert props["default_generation_settings"]["params"]["temperature"] == 0
    assert props["default_generation_settings"]["n_ctx"] == 256
    assert "<|im_start|>" in props["chat_template"]
    assert props["default_generation_settings"]["params"]["speculative.types"] == "ngram-simple"


def test_origins_are_reflected_and_options_answered(served: Served) -> None:
    assert (
        served.get("/health", headers={"Origin": "http://a.example"}).headers["access-control-allow-origin"]
        == "http://a.example"
    )
    reply = served.ask("OPTIONS", CHAT)
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"
    assert reply.headers["access-control-allow-headers"] == "*"


def test_keys_names_and_switches() -> None:
    config = ServeConfig(
        port=0, api_keys=("sécret", "other"), aliases=("zeta", "alpha"), has_slots=False, cors_origins="localhost"
    )
    with serving(run_config(TARGET, n_slots=1), replace(config, has_props=True)) as served:
        served.headers.clear()
        assert served.get("/health").status == 200
        reply = served.post(CHAT, HELLO)
        assert (reply.status, reply.json["error"]) == (
            401,
            {"code": 401, "message": "Invalid API Key", "type": "authentication_error"},
        )
        assert served.get("/v1/models", headers={"Authorization": "Bearer wrong"}).status == 401
        for headers in ({"Authorization": "Bearer other"}, {"Authorization": "other"}, {"X-Api-Key": "other"}):
            assert served.get("/v1/models", headers=headers).json["data"][0]["id"] == "alpha"
        known = {"X-Api-Key": "other"}
        assert served.post("/props", {}, headers=known).json == {"success": True}
        for path, option in (("/slots", "--slots"), ("/metrics", "--metrics")):
            reply = served.get(path, headers=known)
            assert reply.status == 501
            assert f"Start it with `{option}`" in reply.json["error"]["message"]
        for origin, allowed in (("http://localhost:3000", True), ("http://[::1]", True), ("http://a.example", False)):
            headers = served.get("/health", headers={"Origin": origin}).headers
            assert headers.get("access-control-allow-origin") == (origin if allowed else None)
