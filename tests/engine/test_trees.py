"""Draft trees: the text is that of plain decoding, and what is kept of a tree is as if it had been a chain."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from specli.drafters.settings import DraftConfig
from specli.drafters.tree import tree_of
from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig, SamplingConfig
from specli.engine.load import open_engine
from specli.engine.loop import Part
from specli.errors import SpecliError
from specli.kernels.ops import host
from tests.support.runs import GREEDY, ONE_THREAD, executors, run, speculation
from tests.support.tiny_gguf import tiny_gguf
from tests.support.tiny_pairs import NETWORK_TYPES, tiny_pair

KERNELS = pytest.mark.parametrize("kernels", executors())
UNLIKE = [(7 * i * i + 3 * i) % 190 + 5 for i in range(40)]
LOOP = [5, 6, 7, 8, 9, 10, 11, 12] * 6


@KERNELS
@pytest.mark.parametrize("name", NETWORK_TYPES)
def test_text_is_that_of_plain_decoding(tmp_path: Path, kernels: str, name: str) -> None:
    """Greedy and sampled, with log-probabilities, which show that the bits are the same."""
    target, draft = tiny_pair(tmp_path, name, "llama")
    for sampling in (GREEDY, SamplingConfig(temperature=0.8, seed=7)):
        request = RequestConfig(n_predict=16 if kernels == "cpu" else 8, sampling=sampling, logprobs=2, trace=True)
        plain = run(target, [UNLIKE, LOOP], kernels=kernels, request=request)
        spec = speculation([name], 4, tree=12, p_split=0.0)
        drafted = run(target, [UNLIKE, LOOP], draft=draft, spec=spec, kernels=kernels, request=request)
        assert [(o.tokens, o.text, o.record["logprobs"]) for o in drafted] == [
            (o.tokens, o.text, o.record["logprobs"]) for o in plain
        ]
        assert max(r["n_draft"] for o in drafted for r in o.record["rounds"]) > 4


@KERNELS
@pytest.mark.parametrize(
    ("family", "cache"),
    [("llama", "f16"), ("llama", "q8_0"), ("gemma3", "f16"), ("llama4", "f16"), ("deepseek2", "q8_0")],
)
def test_rows_and_cells_are_those_of_chains(tmp_path: Path, kernels: str, family: str, cache: str) -> None:
    """Any trees, also such as no drafter makes, behind 250 tokens: across the borders of what is summed together."""
    target = tiny_gguf(tmp_path / "m.gguf", family, width=128, n_head=2, n_head_kv=1)
    model = ModelLoadConfig(target, device="cpu", kernels=kernels, threads=ONE_THREAD, type_k=cache, type_v=cache)
    spec = speculation(["draft-simple"], 6, tree=16)
    chance = random.Random(5)
    with open_engine(RunConfig(model, model, spec, n_ctx=320)) as run:
        engine = run.engine
        slot = engine.slots[0]
        prompt = Part(slot, [chance.randrange(5, 190) for _ in range(250)], 0)
        engine.extend([prompt], engine.evaluate([prompt]).features)
        for n in (1, 8, 16):
            parents, levels = [], [0]
            for node in range(n):
                parents.append(chance.choice([i - 1 for i in range(node + 1) if levels[i] < 6]))
                levels.append(1 + levels[parents[-1] + 1])
            nodes = chance.sample(range(5, 190), n + 1)
            tree = Part(slot, nodes)
            tree.parents = parents
            rows = engine.evaluate([tree]).read().copy()
            paths = [_path(parents, node) for node in range(n)]
            for path in paths:
                chain = Part(slot, [nodes[0], *(nodes[1 + node] for node in path)])
                assert np.array_equal(engine.evaluate([chain]).read()[-1], rows[path[-1] + 1])
            engine.truncate(slot, len(slot.history))
            best = max(paths, key=len)
            kept = Part(slot, [nodes[0], *(nodes[1 + node] for node in best)])
            engine.evaluate([kept])
            length = len(slot.history) + len(kept.tokens)
            cells = [host(part).copy() for part in engine.target.cache.arrays(slot.index, length)]
            engine.truncate(slot, len(slot.history))
            again = engine.evaluate([tree])
            tree.n_kept, tree.path = len(kept.tokens), best
            engine.extend([tree], again.features)
            assert slot.history[-len(kept.tokens) :] == kept.tokens
            assert engine.target.cache.length(slot.index) == length
            for found, expected in zip(engine.target.cache.arrays(slot.index, length), cells, strict=True):
                assert np.array_equal(host(found), expected)


def _path(parents: Sequence[int], node: int) -> list[int]:
    path = [node]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path


def test_several_requests_at_once_get_what_they_get_alone(tmp_path: Path) -> None:
    target, draft = tiny_pair(tmp_path, "draft-eagle3", "llama")
    assert draft is not None
    model = ModelLoadConfig(target, device="cpu", kernels=executors()[-1], threads=ONE_THREAD)
    request = RequestConfig(n_predict=24, sampling=GREEDY)
    prompts = [UNLIKE, LOOP, UNLIKE[:7]]
    plain = run(target, prompts, kernels=executors()[-1], request=request)
    spec = speculation(["draft-eagle3", "ngram-map-k"], 4, tree=9, p_split=0.0)
    with open_engine(RunConfig(model, replace(model, path=draft), spec, n_ctx=256, n_slots=3)) as opened:
        requests = [opened.engine.sequence(prompt, request) for prompt in prompts]
        while opened.engine.step(requests):
            pass
    assert [(each.tokens, each.text) for each in requests] == [(o.tokens, o.text) for o in plain]


def test_a_node_beside_the_likeliest_branch_is_accepted(tmp_path: Path) -> None:
    """A draft model of another seed is often wrong: trees need fewer rounds than chains of their depth."""
    target, draft = tiny_pair(tmp_path, "draft-simple", "llama")
    request = RequestConfig(n_predict=40, sampling=SamplingConfig(temperature=1.5, seed=3), trace=True)
    n_rounds = []
    for tree in (0, 33):
        spec = speculation(["draft-simple"], 4, tree=tree, p_split=0.0)
        (outcome,) = run(target, [LOOP], draft=draft, spec=spec, kernels=executors()[-1], request=request)
        n_rounds.append(len(outcome.record["rounds"]))
    assert n_rounds[1] < n_rounds[0]


def test_nodes_are_those_of_the_greatest_joint_probability() -> None:
    """Against all sets of nodes that hold their parents, of which the best sum of joint probabilities is EAGLE-2's."""
    numbers = np.random.default_rng(8)
    for _ in range(20):
        chances = -np.sort(-numbers.dirichlet(np.ones(3), size=3), axis=1)
        ids = np.arange(9, dtype=np.int32).reshape(3, 3)
        places = [(level, rank) for level in range(3) for rank in range(3)]
        joint = {(level, rank): chances[level, rank] * chances[:level, 0].prod() for level, rank in places}
        for n in (1, 3, 5):
            draft = tree_of(np.log(chances).astype(np.float32), ids, DraftConfig(n_max=3, tree=n, p_split=0.0), limit=9)
            levels = [token // 3 for token in draft.tokens]
            assert draft.parents == [level - 1 for level in levels]
            whole = [
                nodes
                for nodes in combinations(joint, n)
                if all(level == 0 or (level - 1, 0) in nodes for level, _ in nodes)
            ]
            best = max(whole, key=lambda nodes: sum(joint[node] for node in nodes))
            assert sorted(draft.tokens) == sorted(3 * level + rank for level, rank in best)


def test_improbable_runners_up_are_no_nodes() -> None:
    """Above p-split, not at it; candidates that are not finite never; the branch ends before such a step."""
    values = np.log(np.array([[0.5, 0.25, 0.25], [0.625, 0.25, 0.125], [0.5, 0.5, 1e-9]], np.float32))
    ids = np.arange(9, dtype=np.int32).reshape(3, 3)
    assert tree_of(values, ids, DraftConfig(n_max=3, tree=9, p_split=0.25), limit=9).tokens == [0, 3, 6, 7]
    assert tree_of(values, ids, DraftConfig(n_max=2, tree=9, p_split=0.2), limit=9).tokens == [0, 3, 1, 2, 4]
    values[1] = np.nan
    assert tree_of(values, ids, DraftConfig(n_max=3, tree=9, p_split=0.3), limit=9).tokens == [0]


@pytest.mark.parametrize(
    ("family", "fields", "words"),
    [
        ("llama", {"probabilistic": True}, "--spec-draft-sampling"),
        ("llama", {"p_min": 0.5}, "--spec-draft-p-min"),
        ("qwen35", {}, "recurrent"),
    ],
)
def test_what_trees_cannot_do_is_refused(tmp_path: Path, family: str, fields: dict[str, object], words: str) -> None:
    target, draft = tiny_pair(tmp_path, "draft-simple", family)
    with pytest.raises(SpecliError, match=words) as caught:
        run(target, [LOOP], draft=draft, spec=speculation(["draft-simple"], 4, tree=8, **fields))
    assert caught.value.hint
