"""Options that print something instead of running, such as `--version` and `--list-devices`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specli._version import __version__
from specli.cli.console import TRACE, Console
from specli.cli.invocation import Invocation
from specli.cli.options.completions import bash_script
from specli.cli.options.request import SourceConfig
from specli.cli.options.settings import Settings

if TYPE_CHECKING:
    from specli.engine.load import Run
    from specli.tokenizer import Tokenizer

NO_TEMPLATE = "the prompt is used as it is; specli chat --single-turn applies the model's chat template"


def show_instead(invocation: Invocation) -> bool:
    """Prints what was asked for; False if nothing was."""
    what = invocation.config.output.show
    if what is None:
        return False
    with invocation.console() as console:
        if what == "version":
            console.write(f"specli {__version__}\n")
        elif what == "devices":
            console.write(device_list(is_verbose=invocation.config.log.verbosity >= TRACE))
        elif what == "models":
            console.write(model_list())
        elif what == "cache":
            console.write(cache_list(invocation.config.source))
        else:
            console.write(bash_script())
    return True


def show_start(run: Run, settings: Settings, console: Console) -> None:
    """What runs where and why, and the draft settings with their origins."""
    for line in run.start_lines():
        console.info(line)
    drafting = settings.describe(run.drafter_names)
    if drafting:
        console.info(drafting)


def show_tokens(tokenizer: Tokenizer, ids: Sequence[int], console: Console) -> None:
    """The tokens of a prompt, one a line (`--verbose-prompt`)."""
    for token in ids:
        console.info(f"{token:6d} -> {tokenizer.decode([token], special=True)!r}")


def device_list(*, is_verbose: bool) -> str:
    """Accelerators as llama.cpp lists them; verbose: also the kernels of each device and why they were chosen."""
    import torch

    lines = ["Available devices:"]
    count = torch.cuda.device_count()
    for index in range(count):
        free, total = torch.cuda.mem_get_info(index)
        name = torch.cuda.get_device_name(index)
        lines.append(f"  cuda:{index}: {name} ({total >> 20} MiB, {free >> 20} MiB free)")
    if not count:
        lines.append("  (none)")
    if is_verbose:
        from specli.kernels import open_executor

        for device in ("cpu", *(f"cuda:{index}" for index in range(count))):
            executor = open_executor(device)
            lines.append(f"  {device}: {executor.describe()}")
    return "\n".join(lines) + "\n"


def model_list() -> str:
    """The models that ship with specli: how they are given, size, measured acceptance, what they are, licence."""
    from specli.cli.render import size_text
    from specli.demo import MODELS

    lines = []
    for model in MODELS:
        use = f"{'-m' if model.is_target else '-md'} {model.name}"
        use += f" --spec-type {model.spec_type}" if model.spec_type else ""
        line = f"{use:<36} {size_text(model.n_bytes) if model.path.is_file() else 'missing':>10}"
        if model.spec_type:
            line += f"  mean accepted length {model.acceptance:.2f} (--spec-draft-n-max {model.n_max})"
        lines += [line, f"    {model.summary}; {model.licence}"]
    return "".join(f"{line}\n" for line in lines)


def cache_list(source: SourceConfig) -> str:
    """Models in the download cache, numbered, as llama.cpp lists them and as `-hf` names them."""
    from specli.cli.hub import cached_models, open_hub

    names = cached_models(open_hub(source))
    lines = [f"number of models in cache: {len(names)}"]
    lines += [f"{number:4d}. {name}" for number, name in enumerate(names, 1)]
    return "\n".join(lines) + "\n"
