"""Lazy grammars: free before their trigger, held behind it; each expectation follows from the texts themselves."""

import json
from typing import Any

import numpy as np
import pytest

from specli.errors import UsageError
from specli.sampling.grammar import Grammar
from specli.sampling.lazy import LazyGrammar
from specli.sampling.sampler import Sampler
from specli.sampling.settings import SamplingConfig, Triggers
from tests.support.vocabulary import ByteVocabulary

N_VOCAB = 300
END = 256
WORDS = (b"<call>", b"x<ca", b"ll>", b"ll>1", b"ll>9", b"a<call>12", b"<think>", b"<call>9")
CALL, X_CA, LL, LL_1, LL_9, A_CALL_12, THINK, CALL_9 = range(258, 258 + len(WORDS))
GRAMMAR = 'root ::= "<call>" [1-3]+ "!"'
TRIGGERS = Triggers(words=("<call>",))
VOCABULARY = ByteVocabulary(words=WORDS)


def lazy(triggers: Triggers = TRIGGERS, grammar: str = GRAMMAR) -> Grammar:
    made = LazyGrammar.from_config(SamplingConfig(grammar=grammar, triggers=triggers), VOCABULARY, N_VOCAB)
    assert made is not None
    return made


def takes(state: Grammar, tokens: list[int]) -> bool:
    """Whether the grammar lets the tokens through; its mask has to say the same."""
    for token in tokens:
        allowed = state.allows(token)
        assert bool(state.allowed()[token]) == allowed
        if not allowed:
            return False
        state.accept(token)
    return True


def spelled(text: str) -> list[int]:
    return list(text.encode())


@pytest.mark.parametrize(
    ("tokens", "fits"),
    [
        (spelled("any 987 <cal text <<call>12!"), True),
        ([*spelled("free text that ends"), END], True),
        (spelled("<call>4"), False),
        ([*spelled("a"), CALL, *spelled("12!"), END], True),
        ([*spelled("a"), CALL, *spelled("12"), END], False),
        ([*spelled("a"), CALL, *spelled("12!?")], False),
        ([X_CA, LL, *spelled("3!")], True),
        ([X_CA, LL_1, *spelled("3!")], True),
        ([X_CA, LL_9], False),  # completes the trigger and goes on with what the grammar forbids
        ([X_CA, LL, *spelled("9")], False),
        ([LL_9, *spelled("<c"), LL_9], True),  # "<cll>9" is no trigger
        ([A_CALL_12, *spelled("3!")], True),  # begins before the trigger
        ([CALL_9], False),
        (spelled("<<<call>2!"), True),
    ],
)
def test_text_is_free_until_the_trigger_and_held_from_there(tokens: list[int], fits: bool) -> None:
    assert takes(lazy(), tokens) == fits


def test_tokens_trigger_and_their_text_does_not() -> None:
    by_token = Triggers(tokens=(CALL,))
    assert takes(lazy(by_token), spelled("<call>999"))
    assert not takes(lazy(by_token), [*spelled("a"), CALL, *spelled("9")])
    assert takes(lazy(by_token), [*spelled("a"), CALL, *spelled("1!"), END])
    held = lazy(Triggers(tokens=(ord("z"),)))
    assert not takes(held, [ord("z")])  # the grammar begins otherwise


@pytest.mark.parametrize(
    ("text", "is_thinking", "fits"),
    [
        ("<think>a <call>9 b</think><call>9", False, False),
        (" \n<think>a <call>9 b</think> so <call>1!", False, True),
        ("<think>a <call>9", False, True),
        ("b <think><call>9", False, False),  # only the beginning is a thought
        ("<thin <call>9", False, False),
        ("a <call>9 b</think>x<call>1!", True, True),
        ("a <call>9 b</think>x<call>9", True, False),
        ("<think>a</think><think><call>9", False, False),
    ],
)
def test_thoughts_trigger_nothing(text: str, is_thinking: bool, fits: bool) -> None:
    triggers = Triggers(("<call>",), thought=("<think>", "</think>"), is_thinking=is_thinking)
    assert takes(lazy(triggers), spelled(text)) == fits


def test_a_trigger_that_the_grammar_does_not_begin_with_is_refused() -> None:
    with pytest.raises(UsageError, match="does not begin with its trigger '<tool>'"):
        lazy(Triggers(("<tool>",)))


@pytest.mark.parametrize("seed", range(4))
def test_sampled_calls_match_and_free_tokens_cost_no_second_draw(seed: int) -> None:
    rows = (np.random.RandomState(seed).standard_normal((400, N_VOCAB)) * 3).astype(np.float32)
    rows[:5, ord("q")] += 100
    rows[5, CALL] += 100
    schema: dict[str, Any] = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
    schema["additionalProperties"] = False
    lark = f'%llguidance {{}}\nstart: "<call>" args\nargs: %json {json.dumps(schema)}\n'
    free = Sampler(SamplingConfig(seed=seed), VOCABULARY, n_vocab=N_VOCAB)
    held = Sampler(SamplingConfig(seed=seed, grammar=lark, triggers=TRIGGERS), VOCABULARY, n_vocab=N_VOCAB)
    text, has_called = b"", False
    for row in rows:
        token = held.sample(row)
        held.accept(token)
        if not has_called:
            assert token == free.sample(row)
            free.accept(token)
            has_called = token == CALL
        if token == END:
            break
        text += VOCABULARY.piece(token)
    assert text.startswith(b"qqqqq<call>")
    assert json.loads(text.removeprefix(b"qqqqq<call>"))["n"] in (1, 2)
