from specli.drafters.stats import DrafterStats


def three_rounds() -> DrafterStats:
    """The hand-made trace of docs/faults.md S5: drafts of 3, of which 0, 2 and 3 stood."""
    stats = DrafterStats("ngram-mod")
    stats.count_begin(10)
    for n_accepted in (0, 2, 3):
        stats.count_call(100)
        stats.count_used(3)
        stats.count_accept(n_accepted, 3, 7)
    stats.count_call(5)
    stats.count_process(11)
    return stats


def test_counts_of_a_hand_made_trace() -> None:
    stats = three_rounds()
    assert (stats.n_begin, stats.n_draft, stats.n_accept) == (1, 4, 3)
    assert (stats.gen_drafts, stats.acc_drafts, stats.gen_tokens, stats.acc_tokens) == (3, 2, 9, 5)
    assert stats.acc_per_pos == [2, 2, 1]
    assert stats.reached_per_pos == [3, 2, 2]
    assert stats.acc_len_histogram == [1, 0, 1, 1]
    assert (stats.begin_ns, stats.draft_ns, stats.accept_ns, stats.process_ns) == (10, 305, 21, 11)


def test_rates_of_a_hand_made_trace() -> None:
    stats = three_rounds()
    assert stats.mean_acc_len == 1 + 5 / 3
    assert stats.acceptance == 5 / 9
    assert stats.acceptance_per_pos == [2 / 3, 2 / 3, 1 / 3]
    assert stats.conditional_per_pos == [2 / 3, 1.0, 0.5]


def test_a_short_draft_does_not_count_as_a_rejection_behind_its_end() -> None:
    stats = DrafterStats("x")
    stats.count_accept(1, 1, 0)
    stats.count_accept(2, 3, 0)
    assert stats.reached_per_pos == [2, 1, 1]
    assert stats.conditional_per_pos == [1.0, 1.0, 0.0]


def test_rates_without_a_denominator_are_none() -> None:
    stats = DrafterStats("x")
    assert stats.mean_acc_len is None
    assert stats.acceptance is None
    assert stats.acceptance_per_pos == []
    assert stats.conditional_per_pos == []
