"""Other drafters on the same target: weights are read once, state never crosses, failures leave the old ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specli.drafters.settings import AUTO_LENGTH, SpeculationConfig
from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig, SamplingConfig
from specli.engine.drafting import TargetNeeds
from specli.engine.load import Run, open_engine, open_target
from specli.errors import SpecliError, UsageError
from tests.support.runs import GREEDY, ONE_THREAD, speculation
from tests.support.tiny_drafters import tiny_eagle3
from tests.support.tiny_gguf import tiny_gguf

PROMPT = [5, 6, 7, 8, 5, 6, 7, 8, 5, 6]
REQUEST = RequestConfig(n_predict=24, sampling=replace(GREEDY, ignore_eos=True))


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    path = tiny_gguf(tmp_path / "t.gguf", "llama")
    load = ModelLoadConfig(path, device="cpu", kernels="reference", threads=ONE_THREAD)
    return RunConfig(load, speculation=SpeculationConfig(types=("none",)))


@pytest.fixture
def eagle3(tmp_path: Path, config: RunConfig) -> RunConfig:
    draft = replace(config.target, path=tiny_eagle3(tmp_path / "e.gguf", follows_target=True))
    return replace(config, draft=draft, speculation=speculation(["draft-eagle3"], 4))


def tokens(run: Run) -> list[int]:
    generation = run.generate(PROMPT, REQUEST)
    for _ in generation:
        pass
    return generation.tokens


def test_drafters_change_without_reading_the_target_again(config: RunConfig) -> None:
    reports: list[str] = []
    ngram = replace(config, speculation=speculation(["ngram-simple"], 6))
    with open_engine(ngram, reports.append) as run:
        first = tokens(run)
        run.change_drafters(config)
        assert run.drafter_names == ()
        assert tokens(run) == first
        run.change_drafters(replace(config, speculation=speculation(["ngram-mod", "ngram-simple"], 6)))
        assert run.drafter_names == ("ngram-simple", "ngram-mod")
        assert tokens(run) == first
        assert "ngram-mod" in "\n".join(run.start_lines())
    assert len(reports) == 1


def test_hidden_states_that_are_not_captured_make_the_target_load_again(config: RunConfig, eagle3: RunConfig) -> None:
    reports: list[str] = []
    with open_engine(config, reports.append) as run:
        first = tokens(run)
        run.change_drafters(eagle3)
        assert tokens(run) == first
        assert run.result().statistics.drafters[0].gen_tokens > 0
        run.change_drafters(config)
        assert tokens(run) == first
    assert [line.rpartition("/")[2] for line in reports] == ["t.gguf", "t.gguf", "e.gguf"]


def test_sets_side_by_side_take_turns(config: RunConfig, eagle3: RunConfig) -> None:
    with open_target(config) as run:
        plain, table, network = run.binding.build(
            [config, replace(config, speculation=speculation(["ngram-simple"], 6)), eagle3]
        )
        outcomes = []
        for drafters in (plain, network, table, network, plain):
            drafters.renew()
            run.binding.use(drafters)
            outcomes.append((tokens(run), [(stats.name, stats.acc_tokens) for stats in drafters.chain.stats]))
        assert len({tuple(found) for found, _ in outcomes}) == 1
        assert outcomes[1] == outcomes[3]


def test_renewed_table_counts_from_zero(config: RunConfig) -> None:
    with open_target(config) as run:
        [drafters] = run.binding.build([replace(config, speculation=speculation(["ngram-simple"], 6))])
        counts = []
        for _ in range(2):
            drafters.renew()
            run.binding.use(drafters)
            tokens(run)
            stats = drafters.chain.stats[0]
            counts.append((stats.n_begin, stats.n_draft, stats.gen_tokens))
        assert counts[0] == counts[1]
        assert counts[0][0] == 1


def test_drafters_that_do_not_fit_leave_the_old_ones_in_use(config: RunConfig, tmp_path: Path) -> None:
    wide = replace(config.target, path=tiny_eagle3(tmp_path / "wide.gguf", target_width=128))
    with open_engine(replace(config, speculation=speculation(["ngram-simple"], 6))) as run:
        first = tokens(run)
        for bad in (
            replace(config, draft=wide, speculation=speculation(["draft-eagle3"], 4)),
            replace(config, speculation=speculation(["draft-simple"], 4)),
            replace(
                config,
                speculation=replace(
                    speculation(["ngram-mod"], 4), synth=replace(config.speculation.synth, rates=(2.0,))
                ),
            ),
        ):
            with pytest.raises(SpecliError):
                run.change_drafters(bad)
            assert run.drafter_names == ("ngram-simple",)
            assert tokens(run) == first


def test_a_target_other_than_the_drafters_own_is_warned_of(
    config: RunConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = {"specli.target.name": ("str", "Qwen"), "specli.target.vocabulary": ("str", "0" * 64)}
    path = tiny_eagle3(tmp_path / "other.gguf", metadata=metadata)
    draft = replace(config.target, path=path)
    with open_engine(replace(config, draft=draft, speculation=speculation(["draft-eagle3"], 4))):
        pass
    assert caplog.messages == [
        f"{path}: was converted for Qwen, but {config.target.path} has another vocabulary: few drafts may be accepted"
    ]


def test_lookup_file_is_left_alone_when_asked(config: RunConfig, tmp_path: Path) -> None:
    path = tmp_path / "lookup"
    cache = replace(
        config, speculation=SpeculationConfig(types=("ngram-cache",), tables={"ngram-cache": {"dynamic": path}})
    )
    with open_target(config) as run:
        run.binding.use(run.binding.build([cache])[0])
        tokens(run)
        run.binding.build([config], keeps_files=True)
        assert not path.exists()
        run.binding.use(run.binding.build([cache])[0])
        tokens(run)
    assert path.exists()


def test_needs_add_up() -> None:
    needs = [TargetNeeds(3, (1, 2)), TargetNeeds(48), TargetNeeds(0, (), True)]
    union = TargetNeeds.union(needs)
    assert union == TargetNeeds(48, (1, 2), True)
    assert all(union.covers(need) for need in needs)
    assert not TargetNeeds(48).covers(TargetNeeds(3, (1, 2)))
    with pytest.raises(UsageError, match="read different hidden states"):
        TargetNeeds.union([TargetNeeds(3, (1, 2)), TargetNeeds(3, (2,))])


def test_a_request_keeps_what_it_asks_for_and_leaves_the_rest_to_the_model(tmp_path: Path) -> None:
    """A temperature of 0 is greedy in Python, too, where the model recommends another one."""
    path = tiny_gguf(
        tmp_path / "t.gguf",
        metadata={"general.sampling.temp": ("f32", 1.5), "general.sampling.top_k": ("i32", 0)},
    )
    load = ModelLoadConfig(path, device="cpu", kernels="reference", threads=ONE_THREAD)

    def sampled(seed: int, **fields: Any) -> list[int]:
        sampling = SamplingConfig(seed=seed, ignore_eos=True, **fields)
        generation = run.generate(PROMPT, RequestConfig(n_predict=24, sampling=sampling))
        ids = [event.id for event in generation]
        assert run.result().sampling.top_k == 0
        return ids

    with open_engine(RunConfig(load, speculation=SpeculationConfig(types=("none",)))) as run:
        assert sampled(1, temperature=0) == sampled(2, temperature=0) != sampled(1)
        assert sampled(1) == sampled(1, temperature=1.5)
        assert sampled(1) != sampled(1, temperature=0.8)
        assert run.result().sampling.temperature == 0.8


def test_the_length_auto_of_a_network_without_a_limit(eagle3: RunConfig) -> None:
    draft = replace(eagle3.speculation.draft, n_max=AUTO_LENGTH)
    with open_engine(replace(eagle3, speculation=replace(eagle3.speculation, draft=draft))) as run:
        assert run.engine.chain.max_draft == 8
        assert any("up to 8 tokens" in line for line in run.start_lines())
        assert tokens(run)
