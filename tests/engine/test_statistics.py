"""The lines character for character, the rates by hand, the record's fields and its nulls."""

import json
import math

from specli.drafters.stats import DrafterStats
from specli.engine.stats import (
    Round,
    Statistics,
    Timings,
    drafter_line,
    dump_record,
    position_line,
    request_lines,
    run_record,
)


def three_rounds() -> Timings:
    """0, 2 and 3 of 3 draft tokens stood, and one round had no draft: 5 + 4 tokens, one more from the prompt."""
    timings = Timings(prompt_n=12, prompt_ns=60_000_000, predicted_n=10, predicted_ns=450_000_000)
    for n_draft, n_accepted in ((3, 0), (3, 2), (0, 0), (3, 3)):
        timings.count_round(n_draft, n_accepted, 0)
    timings.draft_ns, timings.verify_ns, timings.sample_ns = 40_000_000, 400_000_000, 8_000_000
    return timings


def test_counts_and_rates_of_a_hand_made_trace() -> None:
    t = three_rounds()
    assert (t.draft_n, t.draft_n_accepted, t.n_rounds, t.n_rounds_drafted) == (9, 5, 4, 3)
    assert t.accepted_per_position == [2, 2, 1]
    assert t.accepted_length_histogram == [1, 0, 1, 1]
    assert t.acceptance == 5 / 9
    assert t.mean_acc_len == 1 + 5 / 3
    assert t.coverage == 0.5
    assert t.predicted_per_second == 20.0  # nine tokens after the first in 450 ms
    assert t.predicted_per_token_ms == 50.0
    assert t.prompt_per_second == 200.0
    assert t.other_ns == 2_000_000


def test_request_lines() -> None:
    assert request_lines(three_rounds()) == [
        "prompt eval time =      60.00 ms /    12 tokens (    5.00 ms per token,   200.00 tokens per second)",
        "       eval time =     450.00 ms /    10 tokens (   50.00 ms per token,    20.00 tokens per second)",
        "      total time =     510.00 ms /    22 tokens",
        "   graphs reused =          0",
        "draft acceptance = 0.55556 (    5 accepted /     9 generated), mean len =  2.67",
    ]
    assert position_line(three_rounds(), 4) == "     acc per pos = (0.667, 0.667, 0.333, 0.000)"


def test_lines_of_an_empty_run_have_zeros_and_no_acceptance() -> None:
    assert request_lines(Timings(predicted_n=1)) == [
        "prompt eval time =       0.00 ms /     0 tokens (    0.00 ms per token,     0.00 tokens per second)",
        "       eval time =       0.00 ms /     1 tokens (    0.00 ms per token,     0.00 tokens per second)",
        "      total time =       0.00 ms /     1 tokens",
        "   graphs reused =          0",
    ]
    assert position_line(Timings(), 3) == "     acc per pos = ()"


def drafter() -> DrafterStats:
    stats = DrafterStats("ngram-mod", begin_ns=1_500, process_ns=9_000_000)
    stats.n_begin = 1
    for n_accepted in (0, 2, 3):
        stats.count_call(2_000_000)
        stats.count_used(3)
        stats.count_accept(n_accepted, 3, 10_400)
    return stats


def test_drafter_lines() -> None:
    assert drafter_line(drafter()) == (
        "statistics        ngram-mod: #calls(b,g,a) =    1      3      3, #gen drafts =      3, #acc drafts =     2, "
        "#gen tokens =      9, #acc tokens =     5, #mean acc len = 2.67, #acc rate/pos = (0.667, 0.667, 0.333), "
        "dur(b,g,a) = 0.002, 6.000, 0.031 ms"
    )
    never = DrafterStats("draft-simple", n_accept=2)
    assert ", #mean acc len = 1.00, #acc rate/pos = (), dur" in drafter_line(never)
    assert drafter_line(DrafterStats("ngram-cache")) == (
        "statistics      ngram-cache: #calls(b,g,a) =    0      0      0, #gen drafts =      0, #acc drafts =     0, "
        "#gen tokens =      0, #acc tokens =     0, dur(b,g,a) = 0.000, 0.000, 0.000 ms"
    )


def test_lines_of_a_run_in_order() -> None:
    lines = Statistics(three_rounds(), [drafter()], max_draft=3).lines(details=True)
    assert [line.split(" = ")[0].strip() for line in lines[4:6]] == ["draft acceptance", "acc per pos"]
    assert lines[6].startswith("statistics ")
    assert Statistics(Timings(), []).lines(details=True)[-1].startswith("   graphs reused")


def record(statistics: Statistics) -> dict[str, object]:
    return run_record(
        version="1.2.3",
        target={"path": "m.gguf", "arch": "llama", "quant": "q8_0", "n_params": 5, "bytes": 6},
        settings={"temp": 0.0},
        prompt={"text": "a", "n_tokens": 1, "ids": [7], "logprobs": []},
        tokens=[1, 2],
        text="bc",
        logprobs=[{"id": 1, "logprob": -math.inf, "top": [[1, -0.5]]}],
        stop="limit",
        statistics=statistics,
    )


def test_record_has_the_fields_of_the_schema() -> None:
    trace = [Round("ngram-mod", 9, (1, 2, 3), (1, 5), 1, 1_000_000, 2_000_000)]
    found = json.loads(dump_record(record(Statistics(three_rounds(), [drafter()], trace))))
    assert found["schema"] == "specli.run/1"
    assert {"specli", "target", "drafters", "settings", "prompt", "tokens", "text", "logprobs", "stop"} <= set(found)
    assert found["drafters"] == ["ngram-mod"]
    assert found["logprobs"] == [{"id": 1, "logprob": None, "top": [[1, -0.5]]}]
    timings = found["timings"]
    wanted = (
        "prompt_n prompt_ms prompt_per_second predicted_n predicted_ms predicted_per_second draft_n draft_n_accepted"
    )
    assert {*wanted.split(), "load_ms", "draft_ms", "verify_ms", "sample_ms", "other_ms"} <= set(timings)
    assert (timings["draft_n"], timings["draft_n_accepted"], timings["predicted_per_second"]) == (9, 5, 20.0)
    assert timings["other_ms"] == 2.0
    assert found["statistics"] == [
        {
            "type": "ngram-mod",
            "calls": {"begin": 1, "draft": 3, "accept": 3},
            "gen_drafts": 3,
            "acc_drafts": 2,
            "gen_tokens": 9,
            "acc_tokens": 5,
            "acceptance": 5 / 9,
            "mean_acc_len": 1 + 5 / 3,
            "acc_per_pos": [2 / 3, 2 / 3, 1 / 3],
            "acc_per_pos_conditional": [2 / 3, 1.0, 0.5],
            "acc_len_histogram": [1, 0, 1, 1],
            "dur_ms": {"begin": 0.0015, "draft": 6.0, "accept": 0.0312, "process": 9.0},
        }
    ]
    assert found["rounds"] == [
        {
            "drafter": "ngram-mod",
            "position": 9,
            "n_draft": 3,
            "n_accepted": 1,
            "draft": [1, 2, 3],
            "target_token": 5,
            "draft_ms": 1.0,
            "verify_ms": 2.0,
        }
    ]


def test_record_of_a_run_without_anything_has_nulls_and_no_rounds() -> None:
    text = dump_record(record(Statistics(Timings(), [DrafterStats("ngram-mod")])))
    found = json.loads(text)
    assert "NaN" not in text
    assert "Infinity" not in text
    assert "rounds" not in found
    for rate in ("prompt_per_second", "predicted_per_second", "acceptance", "mean_acc_len", "coverage"):
        assert found["timings"][rate] is None
    assert found["statistics"][0]["mean_acc_len"] is None
    assert found["statistics"][0]["acceptance"] is None
