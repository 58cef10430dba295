"""Where the weights of a model file lie: what was asked for, as rules, and what comes of it, in lines for the user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from specli.engine.config import ModelLoadConfig
from specli.engine.plan import available_bytes
from specli.errors import UsageError
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantTensor
from specli.kernels import open_executor
from specli.kernels.ops import Executor
from specli.kernels.placement import DENSE, EXPERTS, Placement, PlacementRule, in_layers


def executor_of(load: ModelLoadConfig, file: GGUFFile) -> Executor:
    """What runs a model that is loaded so."""
    placement = _placement(load, file)
    device = layer_devices(load, n_blocks(file))[-1]
    return open_executor(device, kernels=load.kernels, threads=load.threads, exact=load.exact, placement=placement)


def with_shares(load: ModelLoadConfig) -> ModelLoadConfig:
    """With a share for each of several devices: as memory is free now, unless shares were given."""
    devices = load.device.split(",")
    if len(devices) == 1 or any(load.tensor_split):
        return load
    free = [available_bytes(device) for device in devices]
    return replace(load, tensor_split=tuple(1.0 if None in free else float(n_bytes or 0) for n_bytes in free))


def layer_devices(load: ModelLoadConfig, n_blocks: int) -> list[str]:
    """The device of each layer, and of the head behind them (llama.cpp `src/llama-model.cpp`, b11434).

    Shares are cumulated in float32, and part the layers on the GPU, of which the head is one. Layers that `-ngl` leaves
    out have their caches where the first one on the GPU has.

    Raises:
        UsageError: There is no such device as `-mg` asks for.
    """
    devices, n = load.device.split(","), n_blocks + 1
    if load.split_mode == "none" and devices not in (["cpu"], ["auto"]):
        if load.main_gpu >= len(devices):
            raise UsageError(
                f"--main-gpu {load.main_gpu}: invalid value for main_gpu: {load.main_gpu} "
                f"(available devices: {len(devices)})",
                hint=f"--device names {', '.join(devices)}, counted from 0",
            )
        devices = [devices[load.main_gpu] if load.main_gpu >= 0 else "cpu"]
    if len(devices) == 1:
        return devices * n
    shares = [*load.tensor_split, *[0.0] * len(devices)][: len(devices)]
    ends = np.cumsum(np.array(shares if any(shares) else [1.0] * len(devices), np.float32), dtype=np.float32)
    n_split = n if load.n_gpu_layers < 0 else min(load.n_gpu_layers, n)
    places = np.arange(n_split, dtype=np.float32) / np.float32(max(n_split, 1))
    split = [devices[index] for index in np.searchsorted(ends / ends[-1], places, side="right")] or devices[:1]
    return [split[0]] * (n - len(split)) + split


def _placement(load: ModelLoadConfig, file: GGUFFile) -> Placement:
    return placement_of(load, n_blocks(file), is_tied="output.weight" not in file.tensors)


def placement_of(load: ModelLoadConfig, n_blocks: int, *, is_tied: bool = False) -> Placement:
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
    layers = layer_devices(load, n_blocks)
    return Placement(rules, layers[:-1] if len(set(layers)) > 1 else (), is_tied=is_tied)


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
    yield from _split_lines(load, name, layer_devices(load, n_blocks(file)))
    if device == "cpu":
        if load.n_gpu_layers not in (-1, 0):
            yield f"placement: {name} runs on the cpu as a whole, layers on the GPU (-ngl) need a GPU"
        load = replace(load, n_gpu_layers=-1)
    placement = _placement(load, file)
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
    rest: dict[str, list[QuantTensor]] = {}
    for tensor in matrices:
        if placement.rule_for(tensor.name) is None:
            rest.setdefault(placement.home_of(tensor.name, device), []).append(tensor)
    for home, tensors in rest.items():
        yield f"placement: {_amount(tensors)} of {name} on {home}"


def _split_lines(load: ModelLoadConfig, name: str, layers: Sequence[str]) -> Iterator[str]:
    """Which layers are on which of several devices, and what was asked for in vain."""
    devices = load.device.split(",")
    if load.split_mode in ("row", "tensor"):
        yield f"placement: --split-mode {load.split_mode} splits {name} by whole layers, as layer does"
    if load.split_mode != "none" and load.main_gpu != 0:
        yield "placement: --main-gpu has no effect without --split-mode none"
    if len(devices) == 1 or load.split_mode == "none":
        if load.tensor_split:
            yield "placement: --tensor-split has no effect on one device; --device names several, as cuda:0,cuda:1"
        return
    if len(load.tensor_split) > len(devices):
        yield f"placement: --tensor-split has {len(load.tensor_split)} shares for {len(devices)} devices"
    last, parts, start = len(layers) - 1, [], 0
    for device, group in groupby(layers):
        end = start + len(list(group))
        numbers = f"layers {start} to {min(end, last) - 1}" if min(end, last) - start > 1 else f"layer {start}"
        parts.append(f"{numbers} on {device}" if start < last else f"nothing but the head on {device}")
        start = end
    yield f"placement: {name} is split: {', '.join(parts)}"
    for device in devices:
        if device not in layers:
            yield f"placement: no layer of {name} on {device}"


def n_blocks(file: GGUFFile) -> int:
    """Layers of a file, MTP layers included."""
    return file.metadata.get(f"{file.architecture}.block_count", "u32", 0)


def _amount(tensors: list[QuantTensor]) -> str:
    n_bytes = sum(tensor.nbytes for tensor in tensors)
    return f"{len(tensors)} matri{'ces' if len(tensors) > 1 else 'x'} ({n_bytes / 2**20:.1f} MiB)"
