"""Faults that users of other engines reported, tried on the program; each test names its entry of docs/faults.md.

Entries with a closer place have their tests there: parts of C in `convert`, D in `drafters`, R in `gguf`, T in
`tokenizer/test_template.py`, G in `engine/test_lossless.py`, P1 in `engine/test_placement.py`.
"""

from __future__ import annotations

import io
import json
import os
import resource
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specli.cli import main
from specli.engine.loop import Engine
from specli.models.base import ForwardOutput, Ints, Model
from specli.models.writer import Writer
from tests.support.tiny_gguf import tiny_gguf
from tests.support.tiny_vocab import VOCABS

PROMPT = "one two three one two three one two three one two"
GREEDY = ("--temp", "0")
TABLES = (
    "--spec-type", "ngram-simple,ngram-map-k,ngram-map-k4v,ngram-mod,ngram-cache",
    "--spec-ngram-simple-size-n", "1", "--spec-ngram-map-k-size-n", "1", "--spec-ngram-map-k4v-size-n", "1",
    "--spec-ngram-mod-n-match", "1", "--spec-ngram-mod-n-min", "0",
)  # fmt: skip


@dataclass
class Done:
    """One finished command."""

    code: int
    out: str
    err: str

    @property
    def record(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.out)
        return value

    def line(self, start: str) -> str:
        """The only line of stderr that begins so."""
        [line] = [line for line in self.err.splitlines() if line.startswith(start)]
        return line


class Program:
    """Runs commands in this process; models are made once."""

    def __init__(self, models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.models = models
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, environ: Mapping[str, str] | None = None) -> Done:
        for name, value in (environ or {}).items():
            self._monkeypatch.setenv(name, value)
        self._capsys.readouterr()
        code = main(arguments)
        captured = self._capsys.readouterr()
        for name in environ or {}:
            self._monkeypatch.delenv(name)
        assert "Traceback" not in captured.err
        return Done(code, captured.out, captured.err)

    def generate(
        self, *arguments: str, model: str = "T", n: int = 24, environ: Mapping[str, str] | None = None
    ) -> Done:
        command = ("generate", "-m", self.path(model), "-p", PROMPT, "-n", str(n), "-t", "1", *arguments)
        return self(*command, environ=environ)

    def path(self, name: str) -> str:
        return str(self.models / f"{name}.gguf")

    def make(self, name: str, **changes: Any) -> str:
        """A model only one test wants."""
        tiny_gguf(self.models / f"{name}.gguf", **changes)
        return name


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """T, the random draft D (other weights), and S with another kind of vocabulary."""
    folder = tmp_path_factory.mktemp("models")
    tiny_gguf(folder / "T.gguf")
    tiny_gguf(folder / "D.gguf", seed=5)
    tiny_gguf(folder / "S.gguf", vocab="spm")
    return folder


@pytest.fixture
def specli(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Program:
    for name in [name for name in os.environ if name.startswith(("LLAMA_ARG_", "SPECLI_"))]:
        monkeypatch.delenv(name)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Program(models, capsys, monkeypatch)


def drafts(specli: Program) -> list[tuple[str, ...]]:
    """Options of a random draft, a self-draft, all tables, and everything together."""
    return [
        ("-md", specli.path("D"), "--spec-draft-n-max", "4"),
        ("-md", specli.path("T"), "--spec-draft-n-max", "16"),
        TABLES,
        ("-md", specli.path("T"), *TABLES[:1], f"draft-simple,{TABLES[1]}", *TABLES[2:]),
    ]


# Vocabularies


def changed_token(token: int, text: str) -> dict[str, tuple[str, object]]:
    texts = list(VOCABS["bpe"]().metadata["tokenizer.ggml.tokens"][1])  # type: ignore[call-overload]
    texts[token] = text
    return {"tokenizer.ggml.tokens": ("[str]", texts)}


def test_v1_v4_a_differing_token_is_named_with_both_texts(specli: Program) -> None:
    """V1, V4: one token text changed at id 7; the count of differing tokens is told, too."""
    specli.make("V", metadata=changed_token(7, "zzz"))
    done = specli.generate("-md", specli.path("V"))
    assert (done.code, done.out) == (1, "")
    assert f"{specli.path('V')}: token 7 is 'zzz', in {specli.path('T')} 'ć' (1 of 355 tokens differ)" in done.err


def test_v7_another_tokenizer_is_refused(specli: Program) -> None:
    """V7."""
    done = specli.generate("-md", specli.path("S"))
    assert done.code == 1
    assert done.line("error:") == (
        f"error: {specli.path('S')}: vocabulary kind spm does not match {specli.path('T')} (bpe)"
    )


# Drafting and sampling


def test_d16_the_draft_is_its_own_file(specli: Program) -> None:
    """D16: the start line names the draft file; one that is missing fails."""
    assert specli.path("D") in specli.generate("-md", specli.path("D"), n=1).line("drafting: draft-simple")
    assert specli.generate("-md", "/nonexistent").line("error:") == "error: /nonexistent: no such file"


def test_d17_p8_generate_and_chat_draft_alike(specli: Program) -> None:
    """D17, P8: the prompt that chat renders, given to generate, has the same counts."""
    common = ("-n", "16", "-t", "1", *GREEDY, *TABLES, "--no-spec-adaptive", "--stats-json", "s.json")
    specli("chat", "-m", specli.path("T"), "-p", PROMPT, "-st", "--chat-template", "chatml", *common)
    chat = json.loads(Path("s.json").read_text(encoding="utf-8"))
    Path("p.txt").write_text(chat["prompt"]["text"], encoding="utf-8")
    specli("generate", "-m", specli.path("T"), "-bf", "p.txt", *common)
    generated = json.loads(Path("s.json").read_text(encoding="utf-8"))
    assert generated["prompt"]["ids"] == chat["prompt"]["ids"]
    assert generated["tokens"] == chat["tokens"]
    counts = [
        [(s["type"], s["calls"], s["gen_tokens"], s["acc_tokens"]) for s in record["statistics"]]
        for record in (chat, generated)
    ]
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    "sampling",
    [
        ("--temp", "0", "--repeat-penalty", "1.3"),
        ("--temp", "0", "--presence-penalty", "1"),
        ("--temp", "0", "--frequency-penalty", "1"),
        ("--seed", "3", "--min-p", "0.2"),
        ("--temp", "0", "--logit-bias", "5-inf"),
        ("--top-k", "1"),
        ("--seed", "3", "--temp", "1.5", "--dry-multiplier", "0.8", "--xtc-probability", "0.5"),
    ],
    ids=" ".join,
)
def test_g10_g11_history_and_filters_count_per_committed_token(specli: Program, sampling: tuple[str, ...]) -> None:
    """G10, G11; also G1, G2, G4 on the program's level: SAME with every kind of draft."""
    plain = specli.generate(*sampling).out
    assert plain
    assert [specli.generate(*sampling, *draft).out for draft in drafts(specli)] == [plain] * 4


@pytest.mark.parametrize("sampling", [("--temp", "0"), ("--temp", "0.01"), ("--temp", "-1"), ("--top-k", "1")])
def test_g7_a_self_draft_is_accepted_at_any_way_to_be_greedy(specli: Program, sampling: tuple[str, ...]) -> None:
    """G7, with p-min at work."""
    draft = ("--seed", "1", "-md", specli.path("T"), "--spec-draft-p-min", "0.05")
    assert specli.generate(*sampling, *draft).line("draft acceptance").startswith("draft acceptance = 1.00000 ")


def test_g8_sampling_lowers_exact_matches_but_not_rejection_sampling(specli: Program) -> None:
    """G8: the draft proposes from its ten best tokens, so the target keeps ten as well."""
    sampling = ("--temp", "1", "--seed", "1", "--top-k", "10", "--top-p", "1", "--min-p", "0", "-md", specli.path("T"))
    exact = specli.generate(*sampling, "--json").record["timings"]["acceptance"]
    rejection = specli.generate(*sampling, "--spec-draft-sampling", "probabilistic", "--json").record["timings"]
    assert exact < 1
    assert rejection["acceptance"] == 1


def test_g13_a_stop_string_inside_a_draft_block_cuts_everything_alike(specli: Program) -> None:
    """G13, G16, G17: text, tokens, logprobs and counts are those of the run without drafting."""
    text = specli.generate(*GREEDY, "--json").record["text"]
    stop = (*GREEDY, "--json", "--logprobs", "3", "-r", text[8:10])
    plain = specli.generate(*stop).record
    drafted = specli.generate(*stop, "-md", specli.path("T"), "--spec-draft-n-max", "8").record
    assert (plain["stop"], plain["text"]) == ("stop", text[: text.index(text[8:10])])
    for key in ("text", "tokens", "logprobs", "stop"):
        assert drafted[key] == plain[key], key
    assert drafted["timings"]["predicted_n"] == len(drafted["tokens"]) == len(drafted["logprobs"])
    assert all(entry["logprob"] < 0 for entry in drafted["logprobs"])


@pytest.mark.parametrize("n", [0, 1, 5])
def test_g14_never_more_tokens_than_asked_for(specli: Program, n: int) -> None:
    """G14."""
    record = specli.generate(*GREEDY, "--json", "-md", specli.path("T"), "--spec-draft-n-max", "16", n=n).record
    assert (len(record["tokens"]), record["timings"]["predicted_n"], record["stop"]) == (n, n, "limit")
    assert record["prompt"]["n_tokens"] == len(record["prompt"]["ids"]) > 0


def test_g19_characters_of_several_tokens_come_whole(specli: Program) -> None:
    """G19: 🎉 in byte tokens, in a draft too; cut short, the rest is one replacement character."""
    rule = 'root ::= "🎉🎉"'
    for n, text in ((8, "🎉🎉"), (6, "🎉\ufffd")):
        sampling = (*GREEDY, "--grammar", rule)
        for draft in ((), ("--spec-type", "ngram-cache"), ("-md", specli.path("S"))):
            done = specli.generate(*sampling, *draft, model="S", n=n)
            assert done.out == text, draft


# Statistics


def test_s2_totals_equal_the_trace(specli: Program) -> None:
    """S2, S5: counts, mean length 1 + accepted / drafts, and coverage (S4) from the rounds themselves."""
    record = specli.generate(*GREEDY, "--json", "--trace", "-md", specli.path("D"), *TABLES[2:], n=40,
                             environ={"LLAMA_ARG_SPEC_TYPE": f"draft-simple,{TABLES[1]}"}).record  # fmt: skip
    drafted = [r for r in record["rounds"] if r["n_draft"]]
    timings = record["timings"]
    assert timings["draft_n"] == sum(r["n_draft"] for r in drafted) == sum(len(r["draft"]) for r in drafted)
    assert timings["draft_n_accepted"] == sum(r["n_accepted"] for r in drafted)
    assert timings["mean_acc_len"] == 1 + timings["draft_n_accepted"] / len(drafted)
    assert timings["coverage"] == timings["draft_n_accepted"] / len(record["tokens"])
    assert len(record["tokens"]) == 1 + sum(r["n_accepted"] + 1 for r in record["rounds"])
    for entry in record["statistics"]:
        own = [r for r in drafted if r["drafter"] == entry["type"]]
        assert (entry["gen_tokens"], entry["acc_tokens"]) == (
            sum(r["n_draft"] for r in own),
            sum(r["n_accepted"] for r in own),
        )


def test_time_shares_add_up(specli: Program) -> None:
    """The first token's sampling once counted towards generation: draft 15 %, verify 81 %, sample 49 %."""
    timings = specli.generate(*GREEDY, "--json", "-md", specli.path("T"), n=4).record["timings"]
    parts = sum(timings[f"{part}_ms"] for part in ("draft", "verify", "sample", "other"))
    assert parts == pytest.approx(timings["predicted_ms"])


def test_s4_coverage_stands_beside_the_ratio(specli: Program) -> None:
    """S4."""
    [line] = [
        line for line in specli.generate(*GREEDY, "-md", specli.path("T")).err.splitlines() if " tokens/s, " in line
    ]
    assert "% of the tokens from drafts" in line


def test_s7_scopes_are_labelled_and_add_up(specli: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: the request's lines are of the last answer, the drafter's of all."""
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n/stats\ntwo\n/stats\n"))
    done = specli(
        "chat", "-m", specli.path("T"), "-md", specli.path("T"), "-n", "6", "-t", "1", "--no-spec-adaptive", *GREEDY
    )
    lines = done.err.splitlines()
    assert [lines.count(label) for label in ("the last answer:", "all answers since the drafters were loaded:")] == [
        2,
        2,
    ]
    accepted = [int(line.split("(")[1].split()[0]) for line in lines if line.startswith("draft acceptance")]
    totals = [int(line.split("#acc tokens =")[1].split(",")[0]) for line in lines if line.startswith("statistics")]
    assert totals == [accepted[0], sum(accepted)]


def test_p4_drafting_for_experts_is_warned_of(specli: Program) -> None:
    """P4: each verified token wakes other experts."""
    mixture = specli.make("mixture", architecture="qwen3moe")
    line = specli.generate(*TABLES, model=mixture, n=1).line("experts: ")
    assert "of " in line
    assert "compare with specli stats" in line
    assert "experts: " not in specli.generate(model=mixture, n=1).err
    assert "experts: " not in specli.generate(*TABLES, n=1).err


def keeping_target(begin: Callable[..., None], targets: list[Model]) -> Callable[..., None]:
    """`Engine.__init__` that also notes the target."""

    def begin_and_keep(engine: Engine, target: Model, *rest: Any, **more: Any) -> None:
        targets.append(target)
        begin(engine, target, *rest, **more)

    return begin_and_keep


def test_p5_a_rejection_on_a_hybrid_target_computes_nothing_again(
    specli: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P5: every row the target evaluates is one of the prompt, of a draft, or the token before a draft."""
    hybrid = specli.make("hybrid", architecture="qwen35")
    draft = specli.make("hybrid-draft", architecture="qwen35", seed=5)
    rows: list[int] = []
    forward = Model.forward

    def counted(model: Model, tokens: Ints, *rest: Ints) -> ForwardOutput:
        if model is targets[0]:
            rows.append(len(tokens))
        return forward(model, tokens, *rest)

    targets: list[Model] = []
    monkeypatch.setattr(Engine, "__init__", keeping_target(Engine.__init__, targets))
    monkeypatch.setattr(Model, "forward", counted)
    monkeypatch.setattr(Engine, "plain_step_ns", lambda engine: 1.0)
    arguments = ("-md", specli.path(draft), "--spec-draft-n-max", "3", "--no-spec-adaptive", "--trace", "--json")
    record = specli.generate(*GREEDY, *arguments, model=hybrid, n=40).record
    rounds = record["rounds"]
    assert any(r["n_accepted"] < r["n_draft"] for r in rounds)
    assert sum(rows) == record["timings"]["prompt_n"] + sum(1 + r["n_draft"] for r in rounds)


def test_p7_a_draft_at_the_end_of_the_context_costs_no_more(specli: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """P7: the draft model reads what the last round brought and no more, up to the last cell."""
    read: list[int] = []
    write = Writer.write
    monkeypatch.setattr(
        Writer, "write", lambda writer, tokens, position: read.append(len(tokens)) or write(writer, tokens, position)
    )
    for draft in ("D", "T"):
        read.clear()
        arguments = ("-md", specli.path(draft), "--spec-draft-n-max", "3", "--no-spec-adaptive", "-c", "256",
                     "--ignore-eos", "--json")  # fmt: skip
        record = specli.generate(*GREEDY, *arguments, n=-1).record
        assert record["stop"] == "context"
        assert len(read) > 40
        assert max(read) <= 2


LOOP_TOKENS_PER_ROUND = {
    "ngram-simple": 22.0, "ngram-map-k": 14.7, "ngram-map-k4v": 14.7, "ngram-mod": 4.5, "ngram-cache": 5.1,
}  # fmt: skip


def test_p10_what_tables_bring_does_not_fall(specli: Program, tmp_path: Path) -> None:
    """P10: tokens per target forward when 20 lines are written once more, by type and with a draft model behind."""
    lines = "".join(f"line {i} of {i * i} {'abcdefghij'[i % 10]}\n" for i in range(20))
    (tmp_path / "loop.txt").write_text(lines * 2)
    model = ("-m", specli.path(specli.make("long", context=4096)), "-t", "1")
    ids = specli("generate", *model, "-f", "loop.txt", "-n", "0", "--json").record["prompt"]["ids"]
    half = len(ids) // 2
    (tmp_path / "loop.jsonl").write_text(json.dumps({"prompt": {"ids": ids[:half]}, "tokens": ids[half:]}))
    keys = ("--spec-ngram-simple-size-n", "4", "--spec-ngram-map-k-size-n", "4", "--spec-ngram-map-k4v-size-n", "4",
            "--spec-ngram-mod-n-match", "4", "--spec-ngram-mod-n-min", "0")  # fmt: skip
    for name, least in LOOP_TOKENS_PER_ROUND.items():
        arguments = ("-md", specli.path("D"), "--replay", "loop.jsonl", "--json", *keys)
        replays = specli("stats", *model, *arguments, "--spec-type", f"{name},draft-simple").record["replays"]
        alone, network, together = (replay["tokens_per_round"] for replay in replays)
        assert least <= alone == together
        assert network == 1.0


def test_p11_the_template_s_mode_stands_in_the_report(specli: Program) -> None:
    """P11: a drafter may want thoughts or none."""
    study = ("stats", "-m", specli.path("T"), "-p", "hi", "-n", "2", "--repeat", "1", "--warmup-runs", "0", "-t", "1")
    done = specli(*study, "--reasoning", "off", "--chat-template-kwargs", '{"a": 1}')
    assert "chat template applied with a 1, enable_thinking false" in " ".join(done.out.split())
    done = specli(*study, "--reasoning", "off", "--json")
    assert done.record["request"]["template_variables"] == {"enable_thinking": False}
    assert "no chat template with" not in specli(*study, "--reasoning", "off", "-no-cnv").out
    assert "a drafter serves best the mode it was trained in" in " ".join(specli("chat", "--help").out.split())


def test_s11_no_draft_is_no_division_by_zero(specli: Program) -> None:
    """S11: null in the record, no acceptance line."""
    done = specli.generate("--spec-type", "none", "--json")
    assert done.record["timings"]["acceptance"] is None
    assert "draft acceptance" not in done.err
    end = specli.generate(*GREEDY, "--json", n=1).record["tokens"][0]
    specli.make("end", metadata={"tokenizer.ggml.eos_token_id": ("u32", end)})
    done = specli.generate(*GREEDY, "--json", "-md", specli.path("D"), model="end")
    assert (done.record["stop"], done.record["tokens"]) == ("eos", [end])
    assert done.record["statistics"][0]["acceptance"] is None


# Command line


def test_p2_effective_draft_settings_with_their_origin(specli: Program) -> None:
    """P2."""
    done = specli.generate("-md", specli.path("D"), "--spec-draft-n-max", "5", n=1,
                           environ={"LLAMA_ARG_SPEC_DRAFT_P_MIN": "0.5"})  # fmt: skip
    assert done.line("draft settings:") == (
        "draft settings: --spec-draft-n-max 5 (flag), --spec-draft-n-min 0 (default), "
        "--spec-draft-p-min 0.5 (environment), --spec-draft-sampling greedy (default), "
        "--spec-draft-tree 0 (default), --spec-draft-p-split 0.1 (default)"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--draft-max", "8"), "the argument has been removed. use --spec-draft-n-max or --spec-ngram-mod-n-max"),  # L1
        (("--draft", "8"), "the argument has been removed. use --spec-draft-n-max or --spec-ngram-mod-n-max"),
        (("--draft-min", "1"), "the argument has been removed. use --spec-draft-n-min or --spec-ngram-mod-n-min"),
        (("--draft-n-max", "8"), "did you mean --spec-draft-n-max?"),
        (("--draft-model", "T"), "did you mean --spec-draft-model?"),  # L2
        (("--spec-type", "draft-simple"), "draft-simple needs a draft model"),  # L4, the reverse
        (("--spec-type", "ngram-mod,,ngram-simple"), "unknown speculative type: "),  # L8
        (("--spec-type", "ngram-mod,ngram-mod"), "speculative type given twice: ngram-mod"),
        (("--spec-type", "ngram-mod, ngram-simple"), "unknown speculative type:  ngram-simple"),
        (("--spec-type", "none,ngram-mod"), "none cannot be combined with other speculative types"),
        (("--spec-draft-n-min", "5"), "--spec-draft-n-min 5 is larger than --spec-draft-n-max 3"),  # L10
        (("-fa", "--temp", "0"), 'error while handling argument "-fa": expected value for argument'),  # L13
        (("--spec-type", "--temp", "0"), 'error while handling argument "--spec-type": expected value for argument'),
    ],
)  # fmt: skip
def test_l1_to_l13_wrong_usage_exits_with_2_before_any_model(
    specli: Program, arguments: tuple[str, ...], message: str
) -> None:
    """L1, L2, L4, L8, L10, L13. The model is nonsense, so that reading it would exit with 1."""
    Path("x.gguf").write_bytes(b"nonsense")
    done = specli("generate", "-m", "x.gguf", "-p", "a", *arguments)
    if arguments == ("--spec-type", "draft-simple"):  # what a type needs is known with the target
        done = specli.generate(*arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


@pytest.mark.parametrize("spelling", ["-md", "--model-draft", "--spec-draft-model"])
def test_l2_l4_a_draft_model_is_used(specli: Program, spelling: str) -> None:
    """L2, L4: the type is read off the file, and the start line says so."""
    done = specli.generate(spelling, specli.path("T"), *GREEDY)
    assert "draft-simple (read off the draft file" in done.line("drafting: draft-simple")
    assert done.line("draft acceptance").startswith("draft acceptance = 1.00000")


def test_l4_a_draft_model_that_no_type_reads_is_named(specli: Program) -> None:
    """L4."""
    done = specli.generate("-md", specli.path("T"), "--spec-type", "ngram-mod", n=1)
    assert f"drafting: {specli.path('T')} is not used, none of ngram-mod reads a draft model" in done.err


@pytest.mark.parametrize(
    ("value", "code", "text"),
    [
        ("", 0, "--spec-draft-n-max 3 (default)"),
        ("abc", 2, 'environment variable "LLAMA_ARG_SPEC_DRAFT_N_MAX": stoi: "abc" is not an integer'),
        ("-1", 2, 'environment variable "LLAMA_ARG_SPEC_DRAFT_N_MAX": invalid value'),
        ("3.5", 2, 'environment variable "LLAMA_ARG_SPEC_DRAFT_N_MAX": stoi: "3.5" is not an integer'),
    ],
)
def test_l5_environment_values(specli: Program, value: str, code: int, text: str) -> None:
    """L5."""
    done = specli.generate("-md", specli.path("D"), n=1, environ={"LLAMA_ARG_SPEC_DRAFT_N_MAX": value})
    assert done.code == code
    assert text in done.err


def test_l7_the_flag_wins_with_a_warning(specli: Program) -> None:
    """L7."""
    done = specli.generate("-md", specli.path("D"), "--spec-draft-n-max", "2", n=1,
                           environ={"LLAMA_ARG_SPEC_DRAFT_N_MAX": "5"})  # fmt: skip
    assert done.line("warn: ") == (
        "warn: LLAMA_ARG_SPEC_DRAFT_N_MAX environment variable is set, but will be overwritten by command line "
        "argument --spec-draft-n-max"
    )
    assert "--spec-draft-n-max 2 (flag)" in done.err


def test_l11_an_option_without_effect_draws_a_warning(specli: Program) -> None:
    """L11."""
    done = specli.generate("--spec-ngram-mod-n-match", "12", "--spec-type", "ngram-simple", n=1)
    assert done.line("warn: ") == "warn: --spec-ngram-mod-n-match has no effect: it is read by ngram-mod"


@pytest.mark.parametrize("architecture", ["eagle3", "dflash"])
def test_l14_a_drafter_given_as_the_model(specli: Program, architecture: str) -> None:
    """L14."""
    specli.make("X", metadata={"general.architecture": ("str", architecture)})
    done = specli.generate(model="X")
    assert done.err.splitlines() == [
        f"error: {specli.path('X')}: architecture {architecture} is a drafter, not a target",
        "hint: this is a drafter; use -md",
    ]


# Templates


def test_t1_generate_says_that_no_template_is_applied(specli: Program) -> None:
    """T1."""
    note = "the prompt is used as it is; specli chat --single-turn applies the model's chat template"
    assert note in specli.generate(n=1).err.splitlines()


def test_t4_a_template_that_cannot_be_compiled_does_not_stop_generate(specli: Program) -> None:
    """T4, T7: nor does a copy inside the draft file matter to chat."""
    specli.make("broken", metadata={"tokenizer.chat_template": ("str", "{% for")})
    assert specli.generate(model="broken", n=1).code == 0
    chat = ("chat", "-m", specli.path("T"), "-p", "hi", "-st", "-n", "8", "-t", "1", *GREEDY)
    assert specli(*chat, "-md", specli.path("broken")).out == specli(*chat).out
    done = specli("chat", "-m", specli.path("broken"), "-p", "hi", "-st", "-n", "1")
    assert done.code == 1
    assert done.line("error: ").startswith(f"error: {specli.path('broken')}: chat template: line 1: ")


# Memory and context


@pytest.mark.parametrize("n_prompt", [250, 255, 256, 300])
def test_m4_a_draft_never_runs_past_the_context(specli: Program, n_prompt: int) -> None:
    """M4: prompts that leave 6, 1 and 0 cells, and one that does not fit."""
    common = ("generate", "-m", specli.path("T"), "-p", "a" * n_prompt, "-c", "256", "-n", "-1", "-t", "1", *GREEDY)
    plain = specli(*common, "--json")
    n_tokens = plain.record["prompt"]["n_tokens"] if plain.code == 0 else n_prompt
    for draft in drafts(specli)[:3]:
        drafted = specli(*common, "--json", *draft)
        assert drafted.code == plain.code == (0 if n_tokens < 256 else 1)
        if plain.code == 0:
            assert drafted.record["tokens"] == plain.record["tokens"]
            assert drafted.record["stop"] == plain.record["stop"] == "context"


def test_m8_memory_of_a_long_conversation_is_flat(specli: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """M8: 40 turns with a quantised cache and drafting; the second half takes no more than a megabyte."""
    specli.make("wide", head_size=32)
    sizes: list[int] = []

    class Turns(io.StringIO):
        def readline(self, size: int | None = -1) -> str:  # type: ignore[override]
            sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
            return super().readline()

    monkeypatch.setattr("sys.stdin", Turns("/clear\nhello\n" * 40))
    cache = ("-ctk", "q4_0", "-ctv", "q4_0", "-ctkd", "q4_0", "-ctvd", "q4_0")
    chat = ("chat", "-m", specli.path("wide"), "-md", specli.path("wide"), "-n", "4", "-t", "1", *GREEDY, *cache)
    assert specli(*chat).code == 0
    assert len(sizes) > 80
    assert sizes[-1] - sizes[40] < 1024


def test_m11_what_does_not_fit_is_named(specli: Program) -> None:
    """M11: two thousand million tokens of context do not fit."""
    specli.make("huge", metadata={"llama.context_length": ("u32", 2**31 - 1)})
    done = specli.generate("-c", "2000000000", model="huge")
    assert done.code == 1
    assert done.line("error: ").startswith(
        f"error: {specli.path('huge')}: not enough memory on cpu: a context of 2000000000 tokens needs "
    )


def test_cache_type_that_heads_do_not_allow(specli: Program) -> None:
    """Heads of 16 numbers are no whole block of 32; the estimate of the context once raised ValueError."""
    done = specli.generate("-ctk", "q4_0", "-ctv", "q4_0")
    assert done.line("error: ") == "error: cache type q4_0 needs head sizes in multiples of 32, found 16"


# Files


def header(n_tensors: int, n_pairs: int) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_pairs)


def key(kind: int, rest: bytes) -> bytes:
    return header(0, 1) + struct.pack("<Q", 1) + b"a" + struct.pack("<I", kind) + rest


HOSTILE = {
    "R1 pairs": header(0, 2**63),
    "R1 tensors": header(2**63, 0),
    "R1 array": key(9, struct.pack("<IQ", 0, 2**63)),
    "R1 string": key(8, struct.pack("<Q", 2**63)),
    "R5 string of 1 GiB": key(8, struct.pack("<Q", 2**30) + bytes(100)),
    "R2 depth 5000": key(9, struct.pack("<IQ", 9, 1) * 5000),
    "R2 depth 100000": key(9, struct.pack("<IQ", 9, 1) * 100_000),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("option", ["-m", "-md"])
def test_r1_to_r5_hostile_files_are_one_line(specli: Program, name: str, option: str) -> None:
    """R1, R2, R5 as target and as draft; a hint may follow."""
    Path("x.gguf").write_bytes(HOSTILE[name])
    files = {"-m": specli.path("T"), option: "x.gguf"}
    done = specli("generate", *(word for pair in files.items() for word in pair), "-p", "a")
    assert (done.code, done.out) == (1, "")
    first, *rest = done.err.splitlines()
    assert first.startswith("error: x.gguf: ")
    assert all(line.startswith("hint: ") for line in rest)
    assert len(rest) <= 1


def with_header_changed(path: str, after: bytes, at: int, data: bytes) -> bytes:
    raw = Path(path).read_bytes()
    start = raw.index(after) + len(after) + at
    return raw[:start] + data + raw[start + len(data) :]


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (4, struct.pack("<Q", 2**42 + 1)),  # R4
        (4, struct.pack("<QQ", 2**64 - 1, 2)),
        (20, struct.pack("<I", 999)),  # R8: type
        (24, struct.pack("<Q", 480_000)),  # offset
    ],
)
def test_r4_r8_sizes_types_and_offsets(specli: Program, at: int, data: bytes) -> None:
    """R4, R8."""
    Path("x.gguf").write_bytes(with_header_changed(specli.path("T"), b"token_embd.weight", at, data))
    done = specli("generate", "-m", "x.gguf", "-p", "a")
    assert done.code == 1
    assert done.err.startswith("error: x.gguf: tensor '")  # a size that is wrong shows at the next tensor's offset


@pytest.mark.parametrize(
    ("vocab", "metadata"),
    [
        ("bpe", {"token_type": ("[f32]", [1.0] * VOCABS["bpe"]().size)}),
        ("bpe", {"token_type": ("[i32]", [1, 1])}),
        ("bpe", {"token_type": ("[u32]", [1] * VOCABS["bpe"]().size)}),
        ("bpe", {"merges": ("[i32]", [1, 2])}),
        ("bpe", {"merges": None}),
        ("bpe", {"tokens": None}),
        ("spm", {"scores": ("[f32]", [0.0] * (VOCABS["spm"]().size // 2))}),
    ],
)
def test_r7_tokenizer_arrays_of_the_wrong_type_or_length(
    specli: Program, vocab: str, metadata: dict[str, tuple[str, object] | None]
) -> None:
    """R7."""
    [name] = metadata
    specli.make("X", vocab=vocab, metadata={f"tokenizer.ggml.{k}": v for k, v in metadata.items()})
    done = specli.generate(model="X")
    assert done.code == 1
    assert done.line("error: ").startswith(f"error: {specli.path('X')}: key 'tokenizer.ggml.{name}' ")


def test_r10_unsupported_is_not_corrupt(specli: Program) -> None:
    """R10."""
    specli.make("X", metadata={"general.architecture": ("str", "mamba")})
    assert ": unknown architecture 'mamba', expected one of " in specli.generate(model="X").line("error: ")
    specli.make("X", tensors={"blk.1.ffn_up.weight": None})
    assert specli.generate(model="X").line("error: ").endswith(": blk.1.ffn_up.weight is missing")


def test_r14_padding_after_the_last_tensor_may_be_missing(specli: Program) -> None:
    """R14: 256 bytes of a tensor, filled up to 1024."""
    norm = np.ones(64, np.float32)
    specli.make("odd", metadata={"general.alignment": ("u32", 1024)}, tensors={"output_norm.weight": norm})
    raw = Path(specli.path("odd")).read_bytes()
    assert raw[-768:] == bytes(768)
    Path("x.gguf").write_bytes(raw[:-768])
    assert specli("generate", "-m", "x.gguf", "-p", "a", "-n", "1", "-t", "1").code == 0


@pytest.mark.parametrize(
    "content",
    [
        b"\x01\x02\x03",
        bytes(range(100, 164)),
        struct.pack("<7i", 1, -1, -1, -1, 1, 10**6, 1),
        struct.pack("<5i", 1, -1, -1, -1, 2**31 - 1),
    ],
    ids=["truncated", "foreign", "token of another vocabulary", "count of 2^31"],
)
@pytest.mark.parametrize("option", ["-lcs", "-lcd"])
def test_r16_foreign_lookup_caches_are_refused_and_left_alone(specli: Program, option: str, content: bytes) -> None:
    """R16."""
    Path("cache").write_bytes(content)
    done = specli.generate("--spec-type", "ngram-cache", option, "cache", n=1)
    assert done.code == 1
    assert done.line("error: ").startswith("error: cache: ")
    assert Path("cache").read_bytes() == content


def test_r16_the_dynamic_cache_is_saved_and_helps_the_next_run(specli: Program) -> None:
    """R16: written at the end, whole, and nothing else beside it."""
    options = ("--spec-type", "ngram-cache", "-lcd", "cache", *GREEDY)
    before = set(Path().iterdir())
    first = specli.generate(*options)
    size = Path("cache").stat().st_size
    assert set(Path().iterdir()) - before == {Path("cache")}
    assert size % 4 == 0
    assert size > 0
    assert specli.generate(*options).out == first.out
    assert Path("cache").stat().st_size >= size
