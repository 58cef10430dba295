"""Over HTTP every request gets the text it gets alone, whatever else arrives, runs or leaves; OpenAI's own client."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra specli[serve]")
pytest.importorskip("uvicorn", reason="needs the extra specli[serve]")

from specli.demo import MODELS
from specli.engine.config import RequestConfig, SamplingConfig
from tests.serve.support import Served, run_config, serving
from tests.support.tiny_pairs import tiny_pair

TARGET = next(model.path for model in MODELS if model.is_target)
EAGLE = next(model.path for model in MODELS if model.spec_type == "draft-eagle3")
PAIRS = [
    (("none",), 3),
    (("ngram-simple", "ngram-mod"), 4),
    (("ngram-cache", "draft-simple"), 2),
    (("draft-mtp",), 3),
    (("draft-dspark",), 2),
]


def bodies(n: int, rng: random.Random) -> list[dict[str, Any]]:
    """Requests of token ids with repetitions for tables to find; greedy and sampled, with stop strings and counts."""
    made = []
    for number in range(n):
        words = [rng.randrange(20, 60) for _ in range(rng.randrange(2, 8))]
        made.append(
            {
                "prompt": [*range(20, 30), *words * rng.randrange(1, 5)],
                "n_predict": rng.choice([1, 9, 25]),
                "temperature": rng.choice([0.0, 0.8]),
                "seed": number,
                "repeat_penalty": rng.choice([1.0, 1.1]),
                "ignore_eos": True,
                "return_tokens": True,
                "n_probs": rng.choice([0, 2]),
                "stop": rng.choice([[], ["th", "qz"]]),
                "cache_prompt": rng.random() < 0.8,
            }
        )
    return made


def expected(served: Served, body: dict[str, Any]) -> tuple[list[int], str, list[float | None]]:
    """The same request when there is no other, on an engine that has forgotten everything."""
    engine = served.run[0].engine
    engine.reset()
    sampling = SamplingConfig(
        temperature=body["temperature"],
        seed=body["seed"],
        repeat_penalty=body["repeat_penalty"],
        ignore_eos=True,
    )
    request = RequestConfig(
        n_predict=body["n_predict"], sampling=sampling, stop=tuple(body["stop"]), logprobs=body["n_probs"]
    )
    done = engine.generate(body["prompt"], request)
    for _ in done:
        pass
    return done.tokens, done.text, [item.logprob for item in done.logprobs]


@pytest.mark.parametrize(
    ("types", "n_slots"), PAIRS, ids=lambda value: "+".join(value) if isinstance(value, tuple) else ""
)
def test_text_is_that_of_the_request_alone(tmp_path: Path, types: tuple[str, ...], n_slots: int) -> None:
    target, draft = tiny_pair(tmp_path, types[-1]) if types[-1].startswith("draft") else (TARGET, None)
    rng = random.Random(len(types) + n_slots)
    wanted = bodies(9, rng)
    if draft is None and target == TARGET:
        wanted = [{**body, "prompt": [token + 200 for token in body["prompt"]]} for body in wanted]
    found: list[Any] = [None] * len(wanted)
    delays = [rng.random() * 0.3 for _ in wanted]
    with serving(run_config(target, draft, types, n_slots=n_slots)) as served:

        def ask(number: int) -> None:
            threading.Event().wait(delays[number])
            if number % 3 == 0:
                *parts, last = served.post("/completion", {**wanted[number], "stream": True}).events
                probabilities = [p for part in [*parts, last] for p in part.get("completion_probabilities", [])]
                tokens = [token for part in parts for token in part["tokens"]]
                found[number] = tokens, "".join(part["content"] for part in parts), probabilities
            else:
                reply = served.post("/completion", wanted[number]).json
                found[number] = reply["tokens"], reply["content"], reply.get("completion_probabilities", [])

        def leave(number: int) -> None:
            threading.Event().wait(delays[number])
            with served.connect() as client:
                body = b'{"prompt": [300, 301, 302, 303], "n_predict": 200, "ignore_eos": true, "stream": true}'
                client.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                if number % 2:
                    client.recv(100)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(wanted))]
        threads += [threading.Thread(target=leave, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        served.wait_until(served.is_idle)
        for body, (tokens, text, probabilities) in zip(wanted, found, strict=True):
            alone_tokens, alone_text, alone_logprobs = expected(served, body)
            assert (tokens, text) == (alone_tokens, alone_text)
            assert [item["logprob"] for item in probabilities] == alone_logprobs


def test_openai_client_sync_streaming_and_many_at_once() -> None:
    openai = pytest.importorskip("openai", reason="needs the openai package")
    questions = ["Tell me a story about a fox.", "What is a draft?", "Who are you?"]
    with serving(run_config(TARGET, EAGLE, ("draft-eagle3",), n_slots=2)) as served:
        settings = {"base_url": f"http://127.0.0.1:{served.port}/v1", "api_key": "none", "max_retries": 0}
        client = openai.OpenAI(**settings)

        def request(question: str) -> dict[str, Any]:
            return {"model": "x", "messages": [{"role": "user", "content": question}], "max_tokens": 24}

        assert [model.id for model in client.models.list()] == ["target.gguf"]
        answers = [client.chat.completions.create(**request(question)) for question in questions]
        texts = [answer.choices[0].message.content for answer in answers]
        assert all(texts)
        assert answers[0].usage.completion_tokens == 24
        assert answers[0].timings["draft_n_accepted"] > 0
        events = list(
            client.chat.completions.create(**request(questions[0]), stream=True, stream_options={"include_usage": True})
        )
        assert "".join(event.choices[0].delta.content or "" for event in events if event.choices) == texts[0]
        assert events[-1].usage.completion_tokens == 24
        assert client.completions.create(model="x", prompt="Once", max_tokens=3).usage.completion_tokens == 3
        with pytest.raises(openai.BadRequestError, match="exceeds the available context size"):
            client.completions.create(model="x", prompt=[100] * 300)

        async def many() -> list[str]:
            async with openai.AsyncOpenAI(**settings) as other:

                async def one(question: str) -> str:
                    stream = await other.chat.completions.create(**request(question), stream=True)
                    return "".join([event.choices[0].delta.content or "" async for event in stream])

                return await asyncio.gather(*(one(question) for question in questions * 3))

        assert asyncio.run(many()) == texts * 3
        client.close()
