"""Every n-gram drafter against its written rules, the recorded runs of llama.cpp, and the vectors of the reference."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from specli.drafters import TableParts, ngram_map, ngram_mod
from specli.drafters.base import DraftRequest
from specli.drafters.lookup import Followers, LookupTable, ngram_key, write_lookup
from specli.drafters.ngram import NgramDrafter, NgramTable, match_grade
from specli.drafters.ngram_cache import LookupFiles, NgramCache
from specli.drafters.ngram_map import NgramMapK, NgramMapK4V
from specli.drafters.ngram_mod import NgramMod, build_ngram_mod
from specli.drafters.ngram_simple import NgramSimple
from tests.support.ngram_rules import CacheRules, MapRules, ModRules, SimpleRules, UnorderedMap

UNLIMITED = 10**6


class Rules(Protocol):
    def begin(self, T: list[int]) -> None: ...
    def draft(self, T: list[int], s: int) -> list[int]: ...
    def accept(self, a: int) -> None: ...


def draft_of(drafter: NgramTable, history: list[int], last: int) -> list[int]:
    return drafter.draft(DraftRequest(0, history, last, UNLIMITED)).tokens


def ids(text: str) -> list[int]:
    return [int(word) for word in text.split()]


# --- against the written rules -------------------------------------------------------------------------------------


def compare(rng: random.Random, make: Callable[[], tuple[NgramTable, Rules]], n_calls: int, alphabet: int) -> int:
    """Random requests; the text follows the drafts often enough that all branches are reached. Returns draft calls."""
    drafter, rules = make()
    history: list[int] = []
    n_done = 0
    while n_done < n_calls:
        goes_on = history and rng.random() < 0.4
        prompt = [rng.randrange(alphabet) for _ in range(rng.randrange(0, 120))]
        if rng.random() < 0.5:
            prompt += prompt[: rng.randrange(0, 60)]
        if not goes_on:
            history = []
            rules = make()[1]  # another request finds a fresh process
        history = history + prompt
        drafter.begin(history)
        rules.begin(history)
        trust = rng.random()
        expected: list[int] = []
        for _ in range(rng.randrange(1, 80)):
            last = expected[0] if expected and rng.random() < trust else rng.randrange(alphabet)
            wanted = rules.draft(list(history), last)
            assert draft_of(drafter, history, last) == wanted
            n_done += 1
            capped = wanted[: rng.choice((1, 2, 5, UNLIMITED))]
            n_accepted = 0
            while n_accepted < len(capped) and rng.random() < trust:
                n_accepted += 1
            if capped:
                rules.accept(n_accepted)
                drafter.accept(n_accepted)
            history += [last, *capped[:n_accepted]]
            expected = capped[n_accepted + 1 :] or [history[rng.randrange(len(history))]]
    return n_done


def simple_pair(rng: random.Random) -> tuple[NgramTable, Rules]:
    n, m = rng.randrange(1, 5), rng.randrange(1, 9)
    return NgramSimple(m, n), SimpleRules(n, m)


def map_k_pair(rng: random.Random) -> tuple[NgramTable, Rules]:
    n, m, hits = rng.randrange(1, 5), rng.randrange(1, 7), rng.randrange(1, 4)
    return NgramMapK(m, n), MapRules(n, m, hits, k4v=False)


def map_k4v_pair(rng: random.Random) -> tuple[NgramTable, Rules]:
    n, m, hits = rng.randrange(1, 5), rng.randrange(1, 7), rng.randrange(1, 4)
    return NgramMapK4V(m, n, hits), MapRules(n, m, hits, k4v=True)


def mod_pair(rng: random.Random) -> tuple[NgramTable, Rules]:
    n, low, high = rng.randrange(1, 40), rng.randrange(0, 4), rng.randrange(0, 12)
    return NgramMod(high, n, low), ModRules(n, low, high)


def cache_pair(_: random.Random) -> tuple[NgramTable, Rules]:
    return NgramCache(8, LookupFiles(n_vocab=1000)), CacheRules()


PAIRS = {
    "ngram-simple": simple_pair,
    "ngram-map-k": map_k_pair,
    "ngram-map-k4v": map_k4v_pair,
    "ngram-mod": mod_pair,
    "ngram-cache": cache_pair,
}


@pytest.mark.parametrize("crowded", [False, True], ids=["", "crowded"])
@pytest.mark.parametrize("name", PAIRS)
def test_drafts_equal_the_written_rules(name: str, crowded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Crowded: hash tables so small that n-grams meet in one place all the time."""
    if crowded:
        monkeypatch.setattr(ngram_map, "N_PLACES", 7)
        monkeypatch.setattr(MapRules, "PLACES", 7)
        monkeypatch.setattr(ngram_mod, "N_ENTRIES", 256)
        monkeypatch.setattr(ngram_mod, "_MASK", 255)
        monkeypatch.setattr(ModRules, "SIZE", 256)
    n_calls = 0
    for seed in range(18):
        rng = random.Random(seed)
        sizes = rng.getrandbits(32)
        n_calls += compare(
            rng, lambda sizes=sizes: PAIRS[name](random.Random(sizes)), 900, rng.choice((2, 3, 6, 12, 60, 1000))
        )
    assert n_calls >= 16_000


def random_cache(rng: random.Random, orders: tuple[int, ...], alphabet: int) -> dict[tuple[int, ...], UnorderedMap]:
    cache: dict[tuple[int, ...], UnorderedMap] = {}
    for _ in range(rng.randrange(1, 150)):
        followers = cache.setdefault(tuple(rng.randrange(alphabet) for _ in range(rng.choice(orders))), UnorderedMap())
        for _ in range(rng.randrange(1, 20)):
            followers.add(rng.randrange(alphabet), rng.randrange(1, 4))
    return cache


def table_of(cache: dict[tuple[int, ...], UnorderedMap]) -> LookupTable:
    table = LookupTable()
    for ngram, followers in cache.items():
        for token, count in reversed(followers.items()):
            table.add(ngram_key(ngram), token, count)
    return table


def reread(cache: dict[tuple[int, ...], UnorderedMap]) -> dict[tuple[int, ...], UnorderedMap]:
    """The cache after a trip through a file: followers inserted in the order a fresh map would list them."""
    again: dict[tuple[int, ...], UnorderedMap] = {}
    for ngram, followers in cache.items():
        first, second = UnorderedMap(), UnorderedMap()
        for token, count in reversed(followers.items()):
            first.add(token, count)
        for token, count in first.items():
            second.add(token, count)
        again[ngram] = second
    return again


def test_ngram_cache_with_lookup_files_equals_the_written_rules(tmp_path: Path) -> None:
    """Weights of the static table, strict dynamic table, and ties between weighted and plain counts."""
    for seed in range(16):
        rng = random.Random(seed)
        alphabet = rng.choice((3, 8, 40))
        static, dynamic = random_cache(rng, (1, 2, 2, 3), alphabet), random_cache(rng, (1, 2, 3, 4), alphabet)
        write_lookup(tmp_path / "static", table_of(static))
        write_lookup(tmp_path / "dynamic", table_of(dynamic))
        caches = reread(static), reread(dynamic)

        def make(caches: tuple[Any, Any] = caches) -> tuple[NgramTable, Rules]:
            drafter = NgramCache(8, LookupFiles(n_vocab=1000, static=tmp_path / "static", dynamic=tmp_path / "dynamic"))
            return drafter, CacheRules(*caches)

        compare(rng, make, 600, alphabet)


def test_followers_keep_the_iteration_order_of_libstdcxx() -> None:
    rng = random.Random(5)
    for alphabet in (20, 1000, 200_000):
        ours, theirs = Followers(), UnorderedMap()
        for _ in range(1500):
            token, count = rng.randrange(alphabet), rng.randrange(1, 3)
            ours.add(token, count)
            theirs.add(token, count)
            assert ours.best == max(theirs.items(), key=lambda item: item[1])[0]
        assert list(ours) == theirs.order
        assert ours.total == sum(theirs.counts.values())


# --- vectors of docs/speculation.md §§5.9, 5.10 ---------------------------------------------------------------------


def test_hash_values() -> None:
    assert ngram_map.hash_ngram(range(1, 13)) == 3885258222
    assert ngram_map.hash_ngram(range(1, 13)) % ngram_map.N_PLACES == 21998
    assert ngram_mod.hash_ngram(range(1, 25)) == 1449372
    assert ngram_mod.hash_ngram([1, 2, 3]) == 3845190


@pytest.mark.parametrize(
    ("last", "history", "draft"),
    [(3, "9 1 2 3 4 5 6 7 1 2", "4 5 6 7"), (3, "9 1 2 3 4 5 1 2", ""), (3, "1 2 3 4 5 6 7 8 1 2", "")],
)
def test_ngram_simple_vectors(last: int, history: str, draft: str) -> None:
    assert draft_of(NgramSimple(4, 3), ids(history), last) == ids(draft)


def test_ngram_map_k_vector() -> None:
    drafter = NgramMapK(3, 2)
    drafter.begin(ids("9 5 6 1 2 3 8 8"))
    assert draft_of(drafter, ids("9 5 6 1 2 3 8 8 5"), 6) == [1, 2, 3]
    drafter.accept(1)
    assert draft_of(drafter, ids("9 5 6 1 2 3 8 8 5 6 1 7 5"), 6) == [1]
    drafter.accept(0)
    assert draft_of(drafter, ids("9 5 6 1 2 3 8 8 5 6 1 7 5 6 4 5"), 6) == []


def test_ngram_map_k4v_vector() -> None:
    drafter = NgramMapK4V(2, 2, 1)
    drafter.begin(ids("9 5 6 1 2 7 5 6 3 4 7 7 8"))
    assert draft_of(drafter, ids("9 5 6 1 2 7 5 6 3 4 7 7 8 5"), 6) == []
    assert draft_of(drafter, ids("9 5 6 1 2 7 5 6 3 4 7 7 8 5 6 0 5"), 6) == [3, 4]
    drafter.accept(0)
    assert draft_of(drafter, ids("9 5 6 1 2 7 5 6 3 4 7 7 8 5 6 0 5 6 0 5"), 6) == []


@pytest.mark.parametrize(
    ("last", "history", "draft"),
    [
        (1, "1 2 3 4 1 2 3 4", "2 3 4 1 2 3 4 1"),
        (9, "1 2 3 4 1 2 3 4 1", ""),
        (1, "1 2 3 4 1 2 3 4 1 9", "2 3 4 1 2 3 4 1"),
    ],
)
def test_ngram_cache_vectors(last: int, history: str, draft: str) -> None:
    """The three calls are one sequence: each line is reached through the ones before."""
    drafter = NgramCache(8, LookupFiles(n_vocab=10))
    calls = [(1, "1 2 3 4 1 2 3 4"), (9, "1 2 3 4 1 2 3 4 1"), (1, "1 2 3 4 1 2 3 4 1 9")]
    drafts = [draft_of(drafter, ids(text), token) for token, text in calls]
    assert drafts[calls.index((last, history))] == ids(draft)


# --- requests one after the other (docs/faults.md §3) --------------------------------------------------------------

SMALL: dict[str, Callable[[], NgramTable]] = {
    "ngram-simple": lambda: NgramSimple(3, 2),
    "ngram-map-k": lambda: NgramMapK(3, 2),
    "ngram-map-k4v": lambda: NgramMapK4V(3, 2, 1),
    "ngram-mod": lambda: NgramMod(4, 2, 1),
    "ngram-cache": lambda: NgramCache(8, LookupFiles(n_vocab=100)),
}


def run_request(drafter: NgramTable, prompt: list[int], n_rounds: int = 12) -> list[list[int]]:
    """Drafts of a request whose text repeats the prompt; every second draft token stands."""
    drafter.begin(prompt)
    history, drafts = list(prompt), []
    for i in range(n_rounds):
        last = prompt[i % len(prompt)]
        draft = draft_of(drafter, history, last)
        drafts.append(draft)
        n_accepted = len(draft) // 2
        if draft:
            drafter.accept(n_accepted)
        history += [last, *draft[:n_accepted]]
    return drafts


@pytest.mark.parametrize("name", SMALL)
def test_short_prompt_after_a_long_one_drafts_as_in_a_fresh_process(name: str) -> None:
    """docs/faults.md D2, D4: state of a 600-token request must not reach, or silence, a request of 12 tokens."""
    rng = random.Random(1)
    long, short = [rng.randrange(30) for _ in range(600)], [7, 8, 9, 7, 8, 9, 7, 8, 9, 7, 8, 9]
    used = SMALL[name]()
    run_request(used, long)
    fresh = run_request(SMALL[name](), short)
    assert run_request(used, short) == fresh
    assert any(fresh)


@pytest.mark.parametrize("name", SMALL)
def test_same_prompt_ten_times_gives_the_same_drafts(name: str) -> None:
    """docs/faults.md D4, D7."""
    prompt = ids("1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3")
    drafter = SMALL[name]()
    runs = [run_request(drafter, prompt) for _ in range(10)]
    assert all(run == runs[0] for run in runs)


@pytest.mark.parametrize("name", SMALL)
def test_the_next_turn_of_a_conversation_keeps_what_was_learnt(name: str) -> None:
    """The rules never clear anything when the prompt has grown; compare() covers it at random, this by example."""
    drafter = SMALL[name]()
    prompt = ids("1 2 3 4 5 6 1 2 3 4 5 6 1 2 3 4 5")
    drafter.begin(prompt)
    draft_of(drafter, prompt, 6)
    known = list(drafter._tokens)
    drafter.begin([*prompt, 6, 1, 2, 20, 21, 22])
    assert drafter._tokens[: len(known)] == known


@pytest.mark.parametrize("m", range(1, 5))
def test_k4v_proposes_the_most_frequent_continuation(m: int) -> None:
    """docs/faults.md D5: `k A k A k A k B`, then k: A was seen three times, B once."""
    k, a, b = 1, 2, 3
    history = [k, a, k, a, k, a, k, b]
    drafter = NgramMapK4V(m, 1, 1)
    drafter.begin(history)
    assert draft_of(drafter, history, k)[:1] == [a]


@pytest.mark.parametrize("name", SMALL)
def test_prompt_of_equal_tokens(name: str) -> None:
    """docs/faults.md D8: prompt `1 1 1`; a draft is only ever what the history holds."""
    drafter = SMALL[name]()
    drafter.begin([1, 1, 1])
    history = [1, 1, 1]
    for _ in range(12):
        draft = draft_of(drafter, history, 1)
        assert set(draft) <= {1}
        history.append(1)


# --- ngram-mod's pool ----------------------------------------------------------------------------------------------


def test_ngram_simple_says_that_its_sizes_rule_out_any_draft(caplog: pytest.LogCaptureFixture) -> None:
    NgramDrafter(lambda: NgramSimple(4, 4))
    assert caplog.messages == []
    NgramDrafter(lambda: NgramSimple(4, 5))
    assert caplog.messages == ["ngram-simple: never drafts, size-m 4 is less than size-n 5"]


def test_ngram_mod_warns_of_a_short_match(caplog: pytest.LogCaptureFixture) -> None:
    NgramDrafter(lambda: NgramMod(64, 4, 48))
    assert caplog.messages == ["ngram-mod: n-match 4 is small, drafts may be poor (below 16)"]


def test_ngram_mod_clears_a_pool_that_is_a_quarter_full(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ngram_mod, "MAX_OCCUPANCY", 5 / ngram_mod.N_ENTRIES)
    drafter = NgramMod(4, 16, 1)
    drafter.begin(list(range(16)) * 2)
    assert caplog.messages == ["ngram-mod: occupancy 0.00 exceeds 0.00, resetting the pool"]
    assert draft_of(drafter, list(range(16)) * 2, 0) == []


# --- a table per sequence ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_sequences_side_by_side_get_the_drafts_of_one_alone(name: str) -> None:
    rng = random.Random(8)
    texts = [[rng.randrange(3) for _ in range(120)] for _ in range(3)]
    together = NgramDrafter(SMALL[name])
    alone = [SMALL[name]() for _ in texts]
    for slot, text in enumerate(texts):
        together.begin(slot, text[:40])
        alone[slot].begin(text[:40])
    n_drafted = 0
    for end in range(40, 120):
        requests = [DraftRequest(slot, text[:end], text[end], UNLIMITED) for slot, text in enumerate(texts)]
        asked = rng.sample(requests, rng.randrange(1, 4))
        drafts = together.draft(asked)
        for request, draft in zip(asked, drafts, strict=True):
            assert draft == alone[request.slot].draft(request)
            if draft.tokens:
                n_drafted += 1
                n_accepted = rng.randrange(len(draft.tokens) + 1)
                together.accept(request.slot, n_accepted)
                alone[request.slot].accept(n_accepted)
    assert n_drafted > 20


def test_the_grade_of_a_match_is_the_length_of_what_precedes_it() -> None:
    common = list(range(100, 120))
    for n, grade in ((0, 0), (3, 0), (4, 1), (15, 1), (16, 2), (20, 2)):
        before = common[len(common) - n :]
        tokens = [*before, 1, 2, 3, 50, 51, *before, 1, 2, 3]
        assert match_grade(tokens, n, 2 * n + 5) == grade
    assert match_grade([9, 1, 2, 7, 1, 2], 1, 4) == 0


def pooled(*, shared: bool) -> NgramDrafter:
    drafter = build_ngram_mod(TableParts(4, 100, {"n_match": 4, "n_min": 1}, shared_pool=shared))
    drafter.begin(0, SAID)
    drafter.begin(1, SAID[:4])
    return drafter


SAID = list(range(1, 50))


def test_sequences_that_share_a_pool_draft_what_others_said() -> None:
    """llama.cpp `common/speculative.cpp`: the ngram-mod pool belongs to all slots."""
    asked = [DraftRequest(1, SAID[:4], 5, UNLIMITED)]
    assert pooled(shared=True).draft(asked)[0].tokens == [6, 7, 8, 9]
    assert pooled(shared=False).draft(asked)[0].tokens == []


def test_a_pool_that_one_sequence_empties_learns_the_others_anew() -> None:
    drafter = pooled(shared=True)
    for _ in range(ngram_mod.MAX_LOW_ROUNDS):
        assert drafter.draft([DraftRequest(1, SAID[:4], 5, UNLIMITED)])[0].tokens
        drafter.accept(1, 0)
    assert drafter.draft([DraftRequest(1, SAID[:4], 5, UNLIMITED)])[0].tokens == []
    assert drafter.draft([DraftRequest(0, SAID, 1, UNLIMITED)])[0].tokens == []  # its newest n-gram is unknown
    assert drafter.draft([DraftRequest(1, SAID[:4], 5, UNLIMITED)])[0].tokens == [6, 7, 8, 9]


def test_another_request_of_a_sequence_leaves_a_shared_pool() -> None:
    drafter = pooled(shared=True)
    drafter.begin(0, [90, 91, 92])
    assert drafter.draft([DraftRequest(1, SAID[:4], 5, UNLIMITED)])[0].tokens == [6, 7, 8, 9]
