"""The record of a request made from Python: its own prompt, and the settings in force."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig, SamplingConfig
from specli.engine.load import Run, open_engine
from specli.engine.stats import dump_record
from tests.support.runs import ONE_THREAD, speculation
from tests.support.tiny_gguf import tiny_gguf

REQUEST = RequestConfig(n_predict=2, sampling=SamplingConfig(temperature=0.5, seed=-1 & 0xFFFFFFFF))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    path = tiny_gguf(tmp_path_factory.mktemp("result") / "m.gguf")
    load = ModelLoadConfig(path, device="cpu", kernels="reference", threads=ONE_THREAD)
    with open_engine(RunConfig(load, speculation=speculation(["ngram-mod"], 4), n_ctx=200)) as run:
        yield run


def test_a_record_has_its_own_prompt_whatever_was_encoded_since(run: Run) -> None:
    first, second = run.encode("the cat"), run.encode("a dog and a cat")
    texts = []
    for prompt in (first, second, "the dog", first):
        list(run.generate(prompt, REQUEST))
        run.encode("something else")
        texts.append(run.result().to_dict()["prompt"]["text"])
    assert texts == ["the cat", "a dog and a cat", "the dog", "the cat"]
    list(run.generate(first, REQUEST, text="as it was written"))
    assert run.result().to_dict()["prompt"]["text"] == "as it was written"


def test_a_record_has_the_settings_in_force(run: Run) -> None:
    generation = run.generate("the cat", REQUEST)
    list(generation)
    settings = json.loads(dump_record(run.result().to_dict()))["settings"]
    assert settings["n_ctx"] == 256  # as rounded
    assert settings["speculation"]["types"] == ["ngram-mod"]
    assert settings["target"]["path"].endswith("m.gguf")
    sampling = settings["request"]["sampling"]
    assert (sampling["temperature"], sampling["seed"]) == (0.5, generation.sampler.seed)
    assert sampling["top_k"] == 40  # left open, so llama.cpp's
    run.change_drafters(RunConfig(run.loader.config.target, speculation=speculation(["ngram-simple"], 4)))
    list(run.generate("the cat", REQUEST))
    assert run.result().settings()["speculation"]["types"] == ["ngram-simple"]


def test_requests_side_by_side_have_records_of_their_own(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf")
    load = ModelLoadConfig(path, device="cpu", kernels="reference", threads=ONE_THREAD)
    with open_engine(RunConfig(load, speculation=speculation(["ngram-mod"], 4), n_ctx=256, n_slots=2)) as run:
        requests = [run.sequence(text, RequestConfig(n_predict=n)) for text, n in (("the cat", 2), ("a dog", 3))]
        while run.engine.step(requests):
            pass
        records = [run.result(request).to_dict() for request in requests]
    assert [record["prompt"]["text"] for record in records] == ["the cat", "a dog"]
    assert [record["timings"]["predicted_n"] for record in records] == [2, 3]
    assert [record["settings"]["request"]["n_predict"] for record in records] == [2, 3]
