"""Which slot a request gets, what slots share, and slots as files."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra specli[serve]")
pytest.importorskip("uvicorn", reason="needs the extra specli[serve]")

from specli.serve.config import ServeConfig
from tests.serve.support import Served, run_config, serving
from tests.serve.test_life import LONG, TARGET, long_answer
from tests.support.tiny_pairs import tiny_pair, tiny_target

COMPLETION = "/completion"
PROMPT = list(range(300, 340))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slots")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    config = ServeConfig(port=0, slot_path=folder, has_metrics=True)
    with serving(run_config(TARGET, n_slots=2), config) as server:
        yield server


def ask(served: Served, prompt: list[int] = PROMPT, **fields: Any) -> Any:
    reply = served.post(COMPLETION, {"prompt": prompt, "n_predict": 8, "return_tokens": True, **fields})
    assert reply.status == 200
    return reply.json


def test_wanted_slot_is_used_and_waited_for(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = served.run[0].engine
    whole = engine.evaluate

    def slowly(parts: Any) -> Any:
        time.sleep(0.01)
        return whole(parts)

    monkeypatch.setattr(engine, "evaluate", slowly)
    assert [ask(served, id_slot=number)["id_slot"] for number in (1, 0, 3)] == [1, 0, 1]  # numbers wrap around
    with long_answer(served, id_slot=0) as first:
        assert ask(served)["id_slot"] == 1
        with pytest.raises(TimeoutError):
            served.post(COMPLETION, {**LONG, "n_predict": 1, "id_slot": 0}, timeout=0.3)
        first.close()
    assert ask(served, id_slot=0)["id_slot"] == 0


def test_slot_that_knows_more_than_a_tenth_of_a_prompt_is_taken_or_the_one_idle_longest(served: Served) -> None:
    ask(served, id_slot=0)
    ask(served, [*range(400, 440)], id_slot=1)
    # llama.cpp's rule: 5 of 40 tokens are more than a tenth, 4 of 50 are not and slot 0 has been idle longer.
    assert ask(served, [*range(400, 405), *range(500, 535)])["id_slot"] == 1
    assert ask(served, [*range(400, 404), *range(500, 546)])["id_slot"] == 0


def test_similarity_of_zero_takes_the_slot_idle_longest() -> None:
    with serving(run_config(TARGET, n_slots=2), ServeConfig(port=0, similarity=0.0)) as served:
        assert [ask(served)["id_slot"] for _ in range(3)] == [0, 1, 0]


@pytest.mark.parametrize("family", ["llama", "qwen35", "gemma4"])
def test_several_answers_evaluate_their_prompt_once(tmp_path: Path, family: str) -> None:
    """The other choices copy cells, or the states of recurrent layers, and get the texts that they get alone."""
    target = tiny_target(tmp_path / "target.gguf", family)
    body = {"prompt": [*range(40, 90)], "n": 3, "seed": 7, "temperature": 1.2, "max_tokens": 12, "ignore_eos": True}
    setup = run_config(target, types=("ngram-simple", "ngram-mod"), n_slots=3)
    with serving(setup, ServeConfig(port=0, has_metrics=True)) as served:
        reply = served.post("/v1/completions", body).json
        assert b"llamacpp:prompt_tokens_total 52\n" in served.get("/metrics").body
        assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == 2 * 49
        for number, choice in enumerate(reply["choices"]):
            alone = {**body, "n": 1, "seed": 7 + number, "cache_prompt": False}
            assert choice["text"] == served.post("/v1/completions", alone).json["choices"][0]["text"]


def test_twin_of_a_request_that_is_cancelled_goes_on(served: Served) -> None:
    engine = served.run[0].engine
    from specli.engine.config import RequestConfig

    first, second = (engine.sequence(PROMPT, RequestConfig(n_predict=2)) for _ in range(2))
    second.twin = first
    engine.step([second])
    assert second.slot is None
    first.end()
    while not second.is_done:
        engine.step([first, second])
    assert len(second.tokens) == 2


@pytest.mark.parametrize("family", ["llama", "qwen35", "deepseek2"])
def test_slot_is_saved_and_restored_elsewhere_and_by_another_server(tmp_path: Path, family: str) -> None:
    target = tiny_target(tmp_path / "target.gguf", family)
    setup, config = run_config(target, n_slots=2), ServeConfig(port=0, slot_path=tmp_path)
    with serving(setup, config) as served:
        first = ask(served, [*range(40, 90)], id_slot=1)
        saved = served.post("/slots/1?action=save", {"filename": "one.bin"}).json
        assert (saved["id_slot"], saved["filename"], saved["n_saved"]) == (1, "one.bin", 57)
        assert saved["n_written"] == (tmp_path / "one.bin").stat().st_size
        assert saved["timings"]["save_ms"] > 0
    with serving(setup, config) as served:
        restored = served.post("/slots/0?action=restore", {"filename": "one.bin"}).json
        assert (restored["id_slot"], restored["n_restored"]) == (0, 57)
        assert restored["n_read"] == saved["n_written"]
        longer = [*range(40, 90), *first["tokens"][:7], 77]  # the last token of an answer is never evaluated
        again = ask(served, longer, id_slot=0)
        assert (again["timings"]["cache_n"], again["timings"]["prompt_n"]) == (57, 1)
        assert again["tokens"] == ask(served, longer, cache_prompt=False)["tokens"]
        assert served.post("/slots/0?action=erase", {}).json == {"id_slot": 0, "n_erased": 65}
        assert ask(served, [*range(40, 90)], id_slot=0)["timings"]["cache_n"] == 0


def test_slot_that_cannot_be_written_leaves_nothing(served: Served, folder: Path) -> None:
    """A limit on the size of files stands for a full disk: writing fails in the middle."""
    ask(served, id_slot=0)
    before, limits = sorted(folder.iterdir()), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
    try:
        reply = served.post("/slots/0?action=save", {"filename": "full.bin"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (reply.status, reply.json["error"]["type"]) == (500, "server_error")
    assert reply.json["error"]["message"].startswith("Unable to save slot: ")
    assert sorted(folder.iterdir()) == before
    assert ask(served, id_slot=0)["timings"]["cache_n"] == len(PROMPT) - 1


@pytest.mark.parametrize("damage", ["cut", "flipped", "other", "missing", "text"])
def test_broken_file_changes_no_slot(served: Served, folder: Path, damage: str) -> None:
    ask(served, id_slot=0)
    served.post("/slots/0?action=save", {"filename": "good.bin"})
    raw = bytearray((folder / "good.bin").read_bytes())
    if damage == "cut":
        del raw[-100:]
    elif damage == "flipped":
        raw[-1000] ^= 1
    elif damage == "other":
        raw = bytearray(raw.replace(b'"model": "', b'"model": "x', 1))
    elif damage == "text":
        raw = bytearray(b'{"format": []}\n')
    if damage != "missing":
        (folder / f"{damage}.bin").write_bytes(raw)
    reply = served.post("/slots/0?action=restore", {"filename": f"{damage}.bin"})
    assert (reply.status, reply.json["error"]["type"]) == (400, "invalid_request_error")
    assert reply.json["error"]["message"].startswith("Unable to restore slot: ")
    assert ask(served, id_slot=0)["timings"]["cache_n"] == len(PROMPT) - 1


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/slots/2?action=erase", {}, "Invalid slot ID"),
        ("/slots/x?action=erase", {}, "Invalid slot ID"),
        ("/slots/0?action=read", {}, "Invalid action"),
        ("/slots/0?action=save", {}, "Invalid filename"),
        ("/slots/0?action=save", {"filename": "../x"}, "Invalid filename"),
        ("/slots/0?action=save", {"filename": ".."}, "Invalid filename"),
        ("/slots/0?action=save", {"filename": "a\x00b"}, "Invalid filename"),
        ("/slots/0?action=restore", {"filename": "\ud800"}, "Invalid filename"),
    ],
)
def test_wrong_slot_actions(served: Served, path: str, body: Any, message: str) -> None:
    reply = served.post(path, body)
    assert (reply.status, reply.json["error"]["message"]) == (400, message)


def test_slot_of_a_drafter_that_reads_states_is_not_saved(tmp_path: Path) -> None:
    target, draft = tiny_pair(tmp_path, "draft-eagle3")
    with serving(run_config(target, draft, ("draft-eagle3",)), ServeConfig(port=0, slot_path=tmp_path)) as served:
        reply = served.post("/slots/0?action=save", {"filename": "a.bin"})
        assert (reply.status, reply.json["error"]["type"]) == (501, "not_supported_error")


def test_progress_of_a_prompt_is_told(served: Served) -> None:
    body = {"prompt": PROMPT * 5, "n_predict": 2, "stream": True, "return_progress": True, "timings_per_token": True}
    served.post("/slots/1?action=erase", {})
    ask(served, PROMPT[:30], id_slot=0)
    events = served.post(COMPLETION, body).events
    told = [each for each in events if "prompt_progress" in each]
    first, *others = [each["prompt_progress"] for each in told]
    assert (first["total"], first["cache"], first["processed"], first["time_ms"]) == (200, 30, 30, 0)
    assert [each["processed"] for each in others][-1] == 200
    assert (told[0]["timings"]["prompt_n"], told[-1]["timings"]["prompt_n"]) == (0, 170)
    assert "prompt_progress" not in events[len(told)]
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "stream": True, "return_progress": True}
    head, *_ = served.post("/v1/chat/completions", chat).events
    assert head["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert head["prompt_progress"]["processed"] == head["prompt_progress"]["cache"]
