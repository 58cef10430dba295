"""The training code's own arithmetic, on networks of a few thousand weights."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specli.demo.train import block, eagle3, mtp, simple
from specli.demo.train.answers import Answer, Batch, with_features
from specli.demo.train.evaluate import Tally, calibration, measure, replay
from specli.demo.train.fitting import Recipe, factor, fit
from specli.demo.train.network import Qwen3, Shape
from specli.demo.train.target import grow

SHAPE = Shape(width=32, n_layers=12, n_heads=2, n_groups=1, inner=32, head=16, n_tokens=64)


@pytest.fixture
def target() -> Qwen3:
    torch.manual_seed(1)
    return Qwen3(SHAPE).eval().requires_grad_(requires_grad=False)


@pytest.fixture
def batch(target: Qwen3) -> Batch:
    tokens = torch.randint(0, 64, (2, 24), generator=torch.Generator().manual_seed(2)).tolist()
    made = with_features(target, [Answer("x", "", 4, row) for row in tokens])
    return replace(made, features=made.features.float(), hidden=made.hidden.float())


def test_a_grown_network_computes_the_same() -> None:
    torch.manual_seed(1)
    network, tokens = Qwen3(replace(SHAPE, n_layers=8)), torch.tensor([[1, 2, 3, 4]])
    grown = grow(network, 12)
    weights = grown.state_dict()
    assert [k for k in range(12) if not weights[f"layers.{k}.mlp.down_proj.weight"].any()] == [2, 5, 8, 11]
    assert torch.equal(grown(tokens)[0], network(tokens)[0])


def test_a_confidence_head_learns_how_often_drafts_are_right(target: Qwen3) -> None:
    """Answers of chance tokens are foreseen by chance alone, so the fitted confidence is the share that is right."""
    network = block.BlockDrafter(target, 63, block=4, is_dspark=True)
    rows = torch.randint(0, 3, (8, 40), generator=torch.Generator().manual_seed(5))
    answers = [Answer("x", "", 4, row) for row in rows.tolist()]
    assert block.fit_confidence(network, target, answers) < 0.69
    tally = measure(target, answers, partial(block.draft_batch, network))["all"]
    sure, right = zip(*tally.sure, strict=True)
    assert sum(sure) / len(sure) == pytest.approx(sum(right) / len(right), abs=0.02)


def test_taps_are_boundaries(target: Qwen3) -> None:
    tokens = torch.tensor([[1, 2, 3]])
    _, features = target(tokens, taps=(0, 12))
    hidden, _ = target(tokens)
    assert torch.equal(features[..., :32], target.embed_tokens(tokens))
    assert torch.equal(target.norm(features[..., 32:]), hidden)


def test_eagle3_draft_of_a_slot_does_not_depend_on_later_tokens(target: Qwen3, batch: Batch) -> None:
    network = eagle3.Eagle3(target, torch.arange(0, 64, 2))
    whole = eagle3.drafts(network, batch.tokens[0], batch.features[0], 3)
    part = eagle3.drafts(network, batch.tokens[0, :10], batch.features[0, :10], 3)
    assert whole.shape == (24, 3)
    assert torch.equal(whole[:10], part)
    assert (whole[1:] % 2 == 0).all()  # only kept tokens are drafted


def test_eagle3_drafts_what_training_predicts_on_its_own_tokens(target: Qwen3, batch: Batch) -> None:
    network = eagle3.Eagle3(target, torch.arange(64))
    tokens, features = batch.tokens[:1], batch.features[:1]
    own = eagle3.drafts(network, tokens[0], features[0], 3)[1:]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        forced = network.steps(features[:, :-1], tokens[:, 1:], own[None, :, :2], 3)
    assert torch.equal(torch.stack([step[0].argmax(-1) for step in forced], -1), own)


def test_mtp_drafts_what_training_predicts_on_its_own_tokens(target: Qwen3, batch: Batch) -> None:
    network = mtp.Mtp(target)
    tokens, hidden = batch.tokens[:1], batch.hidden[:1]
    own = mtp.drafts(network, tokens[0], hidden[0], 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        forced = network.steps(tokens, hidden, own[None, :, :2], 3)
    assert torch.equal(torch.stack([step[0].argmax(-1) for step in forced], -1), own)


@pytest.mark.parametrize("is_dspark", [False, True])
def test_a_block_sees_features_before_its_anchor_only(target: Qwen3, batch: Batch, is_dspark: bool) -> None:
    network = block.BlockDrafter(target, 63, block=4, is_dspark=is_dspark)
    anchors = torch.tensor([[10]])
    first = network(batch.tokens[:1], batch.features[:1], anchors)
    changed = batch.features[:1].clone()
    changed[:, 10:] += 1
    assert torch.equal(network(batch.tokens[:1], changed, anchors), first)
    changed[:, 9] += 1
    assert not torch.equal(network(batch.tokens[:1], changed, anchors), first)


def test_blocks_do_not_see_each_other(target: Qwen3, batch: Batch) -> None:
    network = block.BlockDrafter(target, 63, block=4, is_dspark=False)
    both = network(batch.tokens, batch.features, torch.tensor([[5, 9], [6, 12]]))
    alone = network(batch.tokens, batch.features, torch.tensor([[9], [12]]))
    torch.testing.assert_close(both[:, 1:], alone, atol=1e-5, rtol=1e-4)


def test_shifted_moves_columns_to_the_left() -> None:
    assert eagle3.shifted(torch.tensor([[1, 2, 3]]), 2).tolist() == [[3, 0, 0]]
    assert eagle3.shifted(torch.arange(6.0).view(1, 3, 2), 1).tolist() == [[[2, 3], [4, 5], [0, 0]]]


def test_draft_vocabulary_keeps_the_frequent_and_fills_with_low_ids() -> None:
    assert eagle3.draft_vocabulary([[9, 9, 7], [9]], 4, 16).tolist() == [0, 1, 7, 9]


@pytest.mark.parametrize("name", ["simple", "eagle3", "mtp", "dflash", "dspark"])
def test_a_loss_reaches_every_weight(target: Qwen3, batch: Batch, name: str) -> None:
    draw = torch.Generator().manual_seed(3)
    if name == "simple":
        network: torch.nn.Module = Qwen3(SHAPE)
        value, _ = simple.loss(network, target, batch)
    elif name == "eagle3":
        network = eagle3.Eagle3(target, torch.arange(64))
        value, _ = eagle3.loss(network, target, batch)
    elif name == "mtp":
        network = mtp.Mtp(target)
        value, _ = mtp.loss(network, target, batch)
    else:
        network = block.BlockDrafter(target, 63, block=4, is_dspark=name == "dspark")
        value, _ = block.loss(network, target, batch, draw)
    value.backward()
    assert [key for key, weight in network.named_parameters() if weight.grad is None] == []


def test_rounds_counted_by_hand() -> None:
    """Tokens 1 2 3 4 5 6 after the first: drafts 2 3 x (2 accepted, bonus 4), then x (0, bonus 5), then 6 (1)."""
    answer = Answer("x", "", 1, [9, 1, 2, 3, 4, 5, 6])
    drafts = torch.full((7, 3), 60)
    drafts[1] = torch.tensor([2, 3, 60])
    drafts[5] = torch.tensor([6, 8, 8])
    tally = Tally()
    replay(answer, drafts, torch.full((7, 3), 0.5), tally)
    assert (tally.n_rounds, tally.n_accepted, tally.length) == (3, 3, 2.0)
    assert [right for _, right in tally.sure] == [True, True, False, False, True]


def test_calibration_bins() -> None:
    rows = calibration([(0.1, False), (0.15, False), (0.9, True), (1.0, False)], n_bins=2)
    assert [(round(chance, 3), share, n) for chance, share, n in rows] == [(0.125, 0.0, 2), (0.95, 0.5, 2)]


def test_learning_rate_rises_stays_and_falls() -> None:
    recipe = Recipe(n_steps=100, warm_up=10, cool_down=0.4)
    assert [round(factor(step, recipe), 3) for step in (0, 9, 60, 80, 99)] == [0.1, 1.0, 1.0, 0.5, 0.025]
    assert factor(99, replace(recipe, cool_down=0)) == 1


def test_an_interrupted_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    def run(folder: Path, stop: int | None) -> Tensor:
        torch.manual_seed(4)
        network = torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 8))

        def loss(step: int) -> tuple[Tensor, dict[str, float]]:
            if step == stop:
                raise InterruptedError
            x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
            return (network(x) - x.flip(-1)).square().mean(), {}

        fit(network, loss, Recipe(n_steps=60, warm_up=5), folder)
        return torch.cat([weight.flatten() for weight in network.parameters()])

    whole = run(tmp_path / "whole", None)
    with pytest.raises(InterruptedError):
        run(tmp_path / "parts", 55)
    assert torch.equal(run(tmp_path / "parts", None), whole)
    assert (tmp_path / "parts" / "curve.jsonl").read_text().count("\n") >= 6
