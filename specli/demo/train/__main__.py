"""Runs stages of the training: `python -m specli.demo.train STAGE… --work FOLDER`, in the order of STAGES.

Every stage leaves its files in the work folder and goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from specli.demo.train import answers, block, eagle3, evaluate, export, mtp, simple, target, vocabulary
from specli.demo.train.answers import Answer, Batch
from specli.demo.train.corpus import END, END_OF_TURN, MASK, documents
from specli.demo.train.fitting import Recipe, fit
from specli.demo.train.mtp import Mtp
from specli.demo.train.network import Qwen3
from specli.demo.train.texts import FIRST_KINDS

Network = TypeVar("Network", bound=nn.Module)

N_KEPT = 2048
"""Draft vocabulary of EAGLE-3."""
SPARED = 10
"""One in so many training answers is for DSpark's confidence head alone."""
GROUP_TOKENS, N_GROUPS = 512, 2
"""Tokens of a group of answers of about one length, mostly of one kind, and groups that one step takes the mean of."""
RECIPES = {
    "simple": Recipe(n_steps=400, warm_up=20),
    "eagle3": Recipe(n_steps=300, warm_up=20),
    "mtp": Recipe(n_steps=250, warm_up=20),
    "dflash": Recipe(n_steps=900, warm_up=20),
    "dspark": Recipe(n_steps=900, warm_up=20),
}
N_PRETRAINING = 250
"""Steps of draft-simple on the corpus before it sees the answers."""
FIRST = "_first"
"""A drafter begins with the weights in the folder of its name and this, if there is one.

The shipped ones were trained in rounds, each from the result before and the last one by the recipe above: EAGLE-3 (550
steps first), MTP (200), DFlash (600, 500, 250) and DSpark (250, begun with DFlash's second). The very first DFlash was
that of the demo's first target (eight layers, commit 15e1970): masks take long to find out where they are. Earlier
rounds drew batches with other seeds, and DSpark's first had half the rate for matrices; so these stages give networks
like the shipped ones, not the same bits.
"""
BLOCKS = {"dflash": 8, "dspark": 7}
"""Positions of a block; z-lab's first one does not predict, so both draft seven tokens."""


class Work:
    """The work folder and what earlier stages left in it."""

    def __init__(self, folder: Path, *, compiled: bool = False) -> None:
        self.folder = folder
        self.compiled = compiled

    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        return Tokenizer.from_file(str(self.folder / "tokenizer" / "tokenizer.json"))

    def load(self, network: Network, name: str) -> Network:
        """Gives `network` the weights of a stage."""
        state = torch.load(self.folder / name / "state.pt", weights_only=True)
        network.load_state_dict(state["network"])
        return network.eval()

    def target(self) -> Qwen3:
        """The trained target, frozen."""
        return self.load(Qwen3(target.SHAPE), "target").requires_grad_(requires_grad=False)

    def answers(self, name: str) -> list[Answer]:
        """Training or held-out answers."""
        return answers.load(self.folder / f"{name}.pt")

    def training_answers(self) -> list[Answer]:
        """The answers that drafters learn from."""
        return [answer for index, answer in enumerate(self.answers("answers")) if (index + 1) % SPARED]

    def spared_answers(self) -> list[Answer]:
        """The others, and those to further prompts."""
        return self.answers("answers")[SPARED - 1 :: SPARED] + self.answers("spared")

    def ends(self) -> tuple[int, int]:
        """Ids of end-of-turn and end-of-text."""
        tokenizer = self.tokenizer()
        return vocabulary.special_id(tokenizer, END_OF_TURN), vocabulary.special_id(tokenizer, END)

    def eagle3(self, base: Qwen3) -> eagle3.Eagle3:
        """An EAGLE-3 network with its draft vocabulary, untrained."""
        written = [answer.tokens[answer.n_prompt :] for answer in self.answers("answers")]
        return eagle3.Eagle3(base, eagle3.draft_vocabulary(written, N_KEPT, base.shape.n_tokens))

    def block(self, base: Qwen3, name: str) -> block.BlockDrafter:
        """A DFlash or DSpark network, untrained."""
        mask = vocabulary.special_id(self.tokenizer(), MASK)
        return block.BlockDrafter(base, mask, block=BLOCKS[name], is_dspark=name == "dspark")


def make_tokenizer(work: Work) -> None:
    """Learns the tokenizer from a part of the corpus."""
    vocabulary.save(vocabulary.train(documents(1, 6_000, 0.5, FIRST_KINDS)), work.folder / "tokenizer")


def make_target(work: Work) -> None:
    """Trains the target."""
    target.train(work.tokenizer(), work.folder, compiled=work.compiled)


def make_answers(work: Work) -> None:
    """Lets the target, as it ships, answer the training prompts and the held-out ones."""
    base, tokenizer = work.target(), work.tokenizer()
    model = work.folder / "gguf" / "target-q8_0.gguf"
    export.language_model(base, work.folder / "tokenizer", work.folder / "hf" / "target", work.ends())
    export.to_gguf(work.folder / "hf" / "target", model, target=None, outtype="q8_0")
    sets = {"held_out": answers.held_out_prompts, "answers": answers.training_prompts, "spared": answers.spared_prompts}
    for name, prompts in sets.items():
        if (work.folder / f"{name}.pt").exists():
            continue
        found = answers.answer_all(model, tokenizer, prompts(), torch.get_num_threads())
        answers.save(work.folder / f"{name}.pt", found)
        print(name, len(found), "answers,", sum(len(a.tokens) - a.n_prompt for a in found), "tokens")
        if name == "held_out":
            print("chosen again:", evaluate.held_out_right(base, found))


def train_drafter(
    work: Work, name: str, network: nn.Module, base: Qwen3, loss: Callable[[Batch], tuple[Tensor, dict[str, float]]]
) -> None:
    """Trains a drafter on the answers."""
    is_again = (work.folder / (name + FIRST)).exists()
    if is_again:
        work.load(network, name + FIRST)
    stream = answers.batches(base, work.training_answers(), GROUP_TOKENS, seed=8 if is_again else 7)

    def mean(_: int) -> tuple[Tensor, dict[str, float]]:
        values, figures = zip(*(loss(next(stream)) for _ in range(N_GROUPS)), strict=True)
        names = figures[0]
        return torch.stack(values).mean(), {name: sum(f[name] for f in figures) / N_GROUPS for name in names}

    fit(network, mean, RECIPES[name], work.folder / name)


def make_simple(work: Work) -> None:
    """Trains draft-simple, first on the corpus, then on the answers."""
    torch.manual_seed(11)
    base, network = work.target(), Qwen3(simple.SHAPE)
    phase = target.PHASES[-1]
    rows = target.corpus_rows(work.tokenizer(), work.folder / phase.name, phase)

    def corpus_loss(step: int) -> tuple[Tensor, dict[str, float]]:
        return target.language_loss(network, rows[step * 4 : step * 4 + 4].long().view(-1, target.SHORT)), {}

    pretraining = Recipe(n_steps=N_PRETRAINING)
    fit(network, corpus_loss, pretraining, work.folder / "simple_corpus")
    train_drafter(work, "simple", network, base, lambda batch: simple.loss(network, base, batch))


def make_eagle3(work: Work) -> None:
    """Trains EAGLE-3."""
    torch.manual_seed(12)
    base = work.target()
    network = work.eagle3(base)
    train_drafter(work, "eagle3", network, base, lambda batch: eagle3.loss(network, base, batch))


def make_block(work: Work, name: str) -> None:
    """Trains DFlash, or DSpark from DFlash."""
    torch.manual_seed(13)
    base, draw = work.target(), torch.Generator().manual_seed(14)
    network = work.block(base, name)
    if name == "dspark" and not (work.folder / (name + FIRST)).exists():
        body = work.load(work.block(base, "dflash"), "dflash")
        network.load_state_dict(body.state_dict(), strict=False)
    train_drafter(work, name, network, base, lambda batch: block.loss(network, base, batch, draw))
    if name == "dspark":
        print("confidence:", round(block.fit_confidence(network, base, work.spared_answers()), 4), "nats")
        path = work.folder / name / "state.pt"
        torch.save(torch.load(path, weights_only=True) | {"network": network.state_dict()}, path)


def make_mtp(work: Work) -> None:
    """Trains the MTP block of the second target."""
    torch.manual_seed(15)
    base = work.target()
    network = Mtp(base)
    train_drafter(work, "mtp", network, base, lambda batch: mtp.loss(network, base, batch))


def make_report(work: Work) -> None:
    """Prints the acceptance of every trained drafter on the held-out prompts."""
    base, found = work.target(), work.answers("held_out")

    def say(name: str, draft: evaluate.Draft) -> None:
        print(f"{name}: {evaluate.report(evaluate.measure(base, found, draft))}", flush=True)

    if (work.folder / "simple").exists():
        small = work.load(Qwen3(simple.SHAPE), "simple")
        say("draft-simple", lambda batch: (simple.drafts(small, batch.tokens[0], 4), None))
    if (work.folder / "eagle3").exists():
        head = work.load(work.eagle3(base), "eagle3")
        say("draft-eagle3", lambda batch: (eagle3.drafts(head, batch.tokens[0], batch.features[0], 4), None))
    if (work.folder / "mtp").exists():
        chain = work.load(Mtp(base), "mtp")
        say("draft-mtp", lambda batch: (mtp.drafts(chain, batch.tokens[0], batch.hidden[0], 3), None))
    for name in BLOCKS:
        if (work.folder / name).exists():
            body = work.load(work.block(base, name), name)
            say(f"draft-{name}", partial(block.draft_batch, body))


def make_prompts(work: Work) -> None:
    """Writes the held-out prompts as `prompts.jsonl`, for `specli generate --prompts`."""
    tokenizer, lines = work.tokenizer(), []
    for answer in work.answers("held_out"):
        text = tokenizer.decode(answer.tokens[: answer.n_prompt], skip_special_tokens=False)
        lines.append(json.dumps({"id": answer.kind, "prompt": text}))
    (work.folder / "prompts.jsonl").write_text("\n".join(lines) + "\n")


def make_files(work: Work) -> None:
    """Writes Hugging Face directories under `hf` and GGUF files under `gguf`."""
    base, ends = work.target(), work.ends()
    hf, gguf = work.folder / "hf", work.folder / "gguf"
    gguf.mkdir(exist_ok=True)
    export.language_model(base, work.folder / "tokenizer", hf / "target", ends)
    made = ["target"]
    if (work.folder / "simple").exists():
        small = work.load(Qwen3(simple.SHAPE), "simple")
        export.language_model(small, work.folder / "tokenizer", hf / "simple", ends)
        made.append("simple")
    if (work.folder / "eagle3").exists():
        export.eagle3(work.load(work.eagle3(base), "eagle3"), base.shape, hf / "eagle3")
        made.append("eagle3")
    if (work.folder / "mtp").exists():
        export.with_mtp(base, work.load(Mtp(base), "mtp"), work.folder / "tokenizer", hf / "mtp", ends)
        made.append("mtp")
    for name in BLOCKS:
        if (work.folder / name).exists():
            export.block(work.load(work.block(base, name), name), base.shape, hf / name)
            made.append(name)
    for name in made:
        for outtype in ("bf16", "q8_0", "q5_0"):
            is_drafter = name not in ("target", "simple", "mtp")
            path = gguf / f"{name}-{outtype}.gguf"
            size = export.to_gguf(hf / name, path, target=hf / "target" if is_drafter else None, outtype=outtype)
            print(path.name, size)


STAGES: dict[str, Callable[[Work], None]] = {
    "tokenizer": make_tokenizer,
    "target": make_target,
    "answers": make_answers,
    "simple": make_simple,
    "eagle3": make_eagle3,
    "dflash": lambda work: make_block(work, "dflash"),
    "dspark": lambda work: make_block(work, "dspark"),
    "mtp": make_mtp,
    "report": make_report,
    "prompts": make_prompts,
    "files": make_files,
}


def main() -> None:
    """Parses the command line and runs the stages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="+", choices=STAGES)
    parser.add_argument("--work", type=Path, required=True, help="folder for everything the stages make")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--compile", action="store_true", help="train the target compiled: half as long, but wants a C++ compiler"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.work.mkdir(parents=True, exist_ok=True)
    for stage in arguments.stages:
        STAGES[stage](Work(arguments.work, compiled=arguments.compile))


if __name__ == "__main__":
    main()
