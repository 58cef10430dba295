import json
from typing import Any

import numpy as np
import pytest

from specli.errors import SpecliError, UsageError
from specli.sampling.grammar import Grammar
from specli.sampling.sampler import Sampler
from specli.sampling.settings import SamplingConfig
from tests.support.vocabulary import ByteVocabulary

N_VOCAB = 300
END = 256
WORDS = (b"ab", b"abc", b'{"', b"yes")


def make(seed: int = 1, **settings: Any) -> Sampler:
    return Sampler(SamplingConfig(seed=seed, **settings), ByteVocabulary(words=WORDS), n_vocab=N_VOCAB)


def write(sampler: Sampler, rows: np.ndarray) -> str:
    """Samples until the end token and returns the text."""
    text = b""
    for row in rows:
        token = sampler.sample(row)
        sampler.accept(token)
        if token == END:
            return text.decode()
        text += ByteVocabulary(words=WORDS).piece(token)
    raise AssertionError(f"did not end: {text!r}")


def noise(n: int, seed: int) -> np.ndarray:
    return (np.random.RandomState(seed).standard_normal((n, N_VOCAB)) * 3).astype(np.float32)


def grammar(text: str) -> Grammar:
    made = Grammar.from_config(SamplingConfig(grammar=text), ByteVocabulary(words=WORDS), N_VOCAB)
    assert made is not None
    return made


def test_tokens_that_fit_are_allowed() -> None:
    state = grammar('root ::= "abc" | "abd"')
    allowed = {ord("a"), 258, 259}
    assert set(np.flatnonzero(state.allowed()).tolist()) == allowed
    assert [t for t in range(N_VOCAB) if state.allows(t)] == sorted(allowed)
    state.accept(258)
    assert set(np.flatnonzero(state.allowed()).tolist()) == {ord("c"), ord("d")}


def test_the_end_is_allowed_where_the_text_may_end_and_not_before() -> None:
    state = grammar('root ::= "a" "b"?')
    assert not state.allows(END)
    state.accept(ord("a"))
    assert state.allows(END)
    assert state.allows(ord("b"))
    state.accept(ord("b"))
    assert [t for t in range(N_VOCAB) if state.allows(t)] == [END]
    assert np.flatnonzero(state.allowed()).tolist() == [END]
    state.accept(END)


def test_a_token_that_does_not_fit_is_refused() -> None:
    state = grammar('root ::= "a"')
    with pytest.raises(SpecliError, match=r"^the grammar rejects token 98: "):
        state.accept(98)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_sampled_text_matches_the_grammar(seed: int, temperature: float) -> None:
    text = write(make(seed, temperature=temperature, grammar='root ::= ("yes" | "no") [0-9]{2,3}'), noise(9, seed))
    assert text.startswith(("yes", "no"))
    assert text.removeprefix("yes").removeprefix("no").isdigit()


@pytest.mark.parametrize("seed", range(5))
def test_sampled_text_matches_the_schema(seed: int) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "on": {"type": "boolean"}},
        "required": ["n", "on"],
        "additionalProperties": False,
    }
    found = json.loads(write(make(seed, json_schema=json.dumps(schema)), noise(200, seed)))
    assert set(found) == {"n", "on"}
    assert 0 <= found["n"] <= 99
    assert isinstance(found["on"], bool)


def test_a_text_that_fits_anyway_costs_no_second_draw() -> None:
    """The grammar is checked on the picked token only: the same seed gives the same tokens as without it."""
    rows = noise(30, 4)
    rows[:, :32] = rows[:, 127:] = -50
    free, bound = make(7), make(7, grammar="root ::= [a-zA-Z0-9 -~]+")
    for row in rows:
        token = free.sample(row)
        assert bound.sample(row) == token
        free.accept(token)
        bound.accept(token)
    assert free._picker._stream._next == bound._picker._stream._next  # type: ignore[attr-defined]


def test_distribution_leaves_out_what_the_grammar_forbids() -> None:
    row = np.full(N_VOCAB, -np.inf, np.float32)
    row[[ord("a"), ord("b"), ord("c")]] = np.log([0.5, 0.3, 0.2])
    sampler = make(temperature=1.0, top_p=1.0, min_p=0.0, grammar="root ::= [ac]+")
    assert sampler.sample(row) in (ord("a"), ord("c"))
    ids, p = sampler.distribution()
    found = {int(t): float(x) for t, x in zip(ids, p, strict=True) if x}
    assert found == pytest.approx({ord("a"): 5 / 7, ord("c"): 2 / 7}, rel=1e-6)


def test_prompt_tokens_do_not_advance_the_grammar() -> None:
    sampler = make(temperature=0, grammar='root ::= "a"')
    sampler.accept_prompt([1, 2, 3])
    sampler.accept(5, generated=False)
    assert write(sampler, noise(2, 0)) == "a"


def test_lark_is_taken_as_it_is() -> None:
    assert write(make(temperature=0, grammar='%llguidance {}\nstart: "yes"'), noise(5, 0)) == "yes"


@pytest.mark.parametrize(
    ("settings", "start"),
    [
        ({"grammar": "%llguidance {}\nnothing"}, "grammar: "),
        ({"json_schema": "{"}, "JSON schema: not JSON: Expecting"),
        ({"json_schema": '{"type": "foo"}'}, "JSON schema: #: unknown type 'foo', known are object"),
        ({"json_schema": "[1]"}, "JSON schema: "),
        ({"json_schema": ""}, "JSON schema: "),
    ],
)
def test_wrong_grammars_are_usage_errors_of_one_line(settings: dict[str, str], start: str) -> None:
    with pytest.raises(UsageError) as caught:
        make(**settings)
    assert str(caught.value).startswith(start)
    assert "\n" not in str(caught.value)
