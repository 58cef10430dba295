"""Where the weights of a model file lie: what was asked for, as rules, and what comes of it, in lines for the user."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from specli.engine.config import ModelLoadConfig
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantTensor
from specli.kernels import open_executor
from specli.kernels.ops import Executor
from specli.kernels.placement import DENSE, EXPERTS, Placement, PlacementRule, in_layers


def executor_of(load: ModelLoadConfig, file: GGUFFile) -> Executor:
    """What runs a model that is loaded so."""
    placement = placement_of(load, n_blocks(file))
    return open_executor(load.device, kernels=load.kernels, threads=load.threads, exact=load.exact, placement=placement)


def placement_of(load: ModelLoadConfig, n_blocks: int) -> Placement:
    """The rules of a model: patterns first, then experts and feed-forwards, then the layers that `-ngl` leaves out.

    As upstream counts, the last layers are those on the GPU, and the head is one of them.
    """
    rules = [PlacementRule(pattern, device, f"names with {pattern}") for pattern, device in load.overrides]
    if load.cpu_moe:
        rules.append(PlacementRule(EXPERTS, "cpu", "experts"))
    for n, names, what in ((load.n_cpu_moe, EXPERTS, "experts"), (load.n_cpu_ffn, DENSE, "feed-forwards")):
        if n:
            rules.append(PlacementRule(in_layers(range(min(n, n_blocks)), names), "cpu", f"{what} of {n} layers"))
    if load.n_gpu_layers == 0:
        rules.append(PlacementRule("", "cpu", "no layer on the GPU"))
    elif 0 < load.n_gpu_layers <= n_blocks:
        left_out = range(n_blocks + 1 - load.n_gpu_layers)
        rules.append(PlacementRule(in_layers(left_out), "cpu", f"layers before the last {load.n_gpu_layers}"))
    return Placement(rules)


def weight_lines(load: ModelLoadConfig, file: GGUFFile, executor: Executor) -> Iterator[str]:
    """Where a model's weights lie, if anything was asked for, and what its kernels had to do with them."""
    yield from placement_lines(load, file, str(executor.device))
    yield from (f"weights: {file.path.name}: {note}" for note in executor.notes)


def placement_lines(load: ModelLoadConfig, file: GGUFFile, device: str) -> Iterator[str]:
    """What every rule places, and what is left; nothing when nothing was asked for.

    Args:
        load: What was asked for.
        file: The model.
        device: Where the executor runs it.
    """
    name = file.path.name
    if device == "cpu":
        if load.n_gpu_layers not in (-1, 0):
            yield f"placement: {name} runs on the cpu as a whole, layers on the GPU (-ngl) need a GPU"
        load = replace(load, n_gpu_layers=-1)
    placement = placement_of(load, n_blocks(file))
    if not placement.rules:
        return
    matrices = [tensor for tensor in file.tensors.values() if len(tensor.shape) > 1]
    for rule in placement.rules:
        placed = [tensor for tensor in matrices if placement.rule_for(tensor.name) is rule]
        if placed:
            anyway = ", where the model runs" if rule.device == device else ""
            yield f"placement: {_amount(placed)} of {name} on {rule.device} ({rule.what}){anyway}"
        else:
            yield f"placement: no matrix of {name} on {rule.device} ({rule.what})"
    rest = [tensor for tensor in matrices if placement.rule_for(tensor.name) is None]
    if rest:
        yield f"placement: {_amount(rest)} of {name} on {device}"


def n_blocks(file: GGUFFile) -> int:
    """Layers of a file, MTP layers included."""
    return file.metadata.get(f"{file.architecture}.block_count", "u32", 0)


def _amount(tensors: list[QuantTensor]) -> str:
    n_bytes = sum(tensor.nbytes for tensor in tensors)
    return f"{len(tensors)} matri{'ces' if len(tensors) > 1 else 'x'} ({n_bytes / 2**20:.1f} MiB)"
