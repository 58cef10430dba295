"""One conversion from start to end: cheap checks first, then the plan, then the file."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specli.convert.checkpoint import Checkpoint
from specli.convert.dequant import dequantised
from specli.convert.download import fetch
from specli.convert.general import General
from specli.convert.job import Job, merged_config
from specli.convert.keys import KeyValues, full_rope, rope_block, rope_type
from specli.convert.known import warn_of_unknown_keys
from specli.convert.layouts import OVERRIDES, Layout, find_layout
from specli.convert.origin import borrow_embeddings, remember_target
from specli.convert.outtype import Outtype, resolve_outtype
from specli.convert.pairing import check_pair
from specli.convert.plan import Blueprint, PlannedTensor, TensorPlan, plain, plan_tensors
from specli.convert.records import ConvertConfig, ConvertReport, OnProgress, Progress, TensorRow
from specli.convert.target import Target, target_from_directory, target_from_gguf
from specli.convert.values import Values
from specli.errors import FormatError, ResourceError, UnsupportedError, UsageError
from specli.files import check_writable, is_special, stale_parts, user_path
from specli.gguf.file import GGUFFile
from specli.gguf.quant import quantise
from specli.gguf.write import GGUFWriter
from specli.hub import Hub, is_repository

NOTHING = TensorPlan([], [], {}, [])
ROPE_TYPES = frozenset({"default", "mrope", "linear", "yarn", "llama3", "dynamic", "proportional", "su", "longrope"})
"""Kinds of rope scaling that are written, or that change nothing within the trained context."""
READS_YARN = frozenset({"mistral3"})
"""Architectures whose readers look at every setting of YaRN."""
HEADROOM_BYTES = 16 << 20  # key-value pairs and alignment on top of tensor data


def convert(request: ConvertConfig, progress: OnProgress | None = None) -> ConvertReport:
    """Converts a checkpoint, or only plans it (`dry_run`).

    Args:
        request: What to do.
        progress: Called while tensors are written.

    Returns:
        What was planned and written.

    Raises:
        SpecliError: With everything that is wrong; nothing has been left on disk then.
    """
    started = time.monotonic()
    source = user_path(request.source)
    if request.check is not None and source.is_file():
        return check_only(source, request.check, started)
    directory = find_directory(str(request.source), request, weights=True)
    if request.check is not None:
        GGUFFile.open(request.check).close()
    with Checkpoint.open(directory, weights_needed=not request.vocab_only) as checkpoint:
        layout = find_layout(checkpoint)
        outtype = resolve_outtype(request.outtype, checkpoint.tensors.values())
        if checkpoint.config.section("quantization_config").text("quant_method") == "mxfp4":
            outtype = outtype.with_mxfp4()
        checkpoint.tensors = dequantised(checkpoint)
        check_overrides(layout, request)
        job = Job(request, checkpoint, merged_config(checkpoint.config), outtype, open_target(request, directory))
        blueprint = layout.planner()(job)
        check_config(layout, job, blueprint)
        if request.borrow_embeddings:
            borrow_embeddings(blueprint)
        warn_of_unknown_keys(job, layout.label, is_drafter=layout.role == "drafter" and layout.gguf is None)
        plan = NOTHING if request.vocab_only else plan_tensors(checkpoint, blueprint, outtype)
        general = General(request, directory, plan.tensors)
        keys = collect_keys(blueprint, general)
        if job.target is not None:
            keys.update(remember_target(job, job.target, blueprint))
        path = output_path(request, directory, general, outtype)
        n_bytes = sum(tensor.n_bytes for tensor in plan.tensors)
        paths: list[Path] = [path]
        if not request.dry_run:
            check_output(path, request, directory)
            check_space(path, n_bytes)
            job.warnings += [
                f"{part}: left by a program that was killed; remove it" for part in stale_parts(path.parent)
            ]
            paths = write(request, path, blueprint.architecture, keys, plan, job, progress)
            n_bytes = sum(p.stat().st_size for p in paths)
            if request.check is not None:
                job.fit = check_pair(paths[0], request.check)
        return report(job, layout, blueprint, keys, plan, paths, n_bytes, time.monotonic() - started)


def find_directory(source: str, request: ConvertConfig, *, weights: bool) -> Path:
    """A local directory, or the cached copy of a hub id.

    Raises:
        UsageError: `source` is neither a directory nor of the form `user/model`.
    """
    path = user_path(source)
    if path.is_dir() and not request.remote:
        return path
    if path.is_file() and not request.remote:
        raise UsageError(f"{path}: is a file, expected a checkpoint directory or hub id")
    if request.remote or is_repository(source):
        return fetch(Hub.of(request.hf_token, request.offline), source, weights=weights)
    raise UsageError(f"{path}: no such directory")


def check_only(draft: Path, target: Path, started: float) -> ConvertReport:
    """Pairs a GGUF file that is already there."""
    fit = check_pair(draft, target)
    architecture = GGUFFile.open(draft).architecture
    seconds = time.monotonic() - started
    return ConvertReport(layout="GGUF", architecture=architecture, paths=(draft,), tensors=(), fit=fit, seconds=seconds)


def check_overrides(layout: Layout, request: ConvertConfig) -> None:
    """Refuses options that the layout does not read.

    Raises:
        UsageError: An option was given that the layout does not read.
    """
    given = [option for name, option in OVERRIDES.items() if name not in layout.overrides and _is_set(request, name)]
    if request.mtp != "with" and not layout.mtp:
        given.append("--mtp" if request.mtp == "only" else "--no-mtp")
    if given:
        raise UsageError(f"{given[0]} does not apply to {layout.label} checkpoints")


def _is_set(request: ConvertConfig, name: str) -> bool:
    return getattr(request, name) is not None


def open_target(request: ConvertConfig, directory: Path) -> Target | None:
    """The target given for a drafter.

    Raises:
        UsageError: The target does not exist, or is the checkpoint itself.
        UnsupportedError: The checkpoint or file given as the target is a drafter or of an unknown architecture.
    """
    if request.target is None:
        return None
    path = user_path(request.target)
    if path.is_file():
        return target_from_gguf(path)
    path = find_directory(str(request.target), replace(request, remote=False), weights=False)
    if path.resolve() == directory.resolve():
        raise UsageError(f"{path}: is the checkpoint itself, expected the target it drafts for")
    checkpoint = Checkpoint.open(path, weights=False)
    layout = find_layout(checkpoint)
    if layout.role != "target":
        raise UnsupportedError(f"{path}: is a drafter ({layout.label}), expected a target")
    config = merged_config(checkpoint.config)
    name = path.resolve().name if user_path(request.target).is_dir() else str(request.target)
    has_mrope = "mrope_section" in rope_block(config)
    return target_from_directory(
        path, config, layout.gguf, layout.vocabulary_procedure(), has_mrope=has_mrope, name=name
    )


def check_config(layout: Layout, job: Job, blueprint: Blueprint) -> None:
    """Refuses settings that the architecture cannot express and would compute otherwise, and says what is left out.

    Raises:
        FormatError: The norms' epsilon or the scaling's factor is missing.
        UnsupportedError: The activation is another one.
    """
    config = job.config
    activation = config.text("hidden_activation") or config.text("hidden_act")
    if activation is not None and activation not in layout.activations:
        expected = " or ".join(layout.activations)
        raise UnsupportedError(f"{config.path}: activation {activation!r} is not handled, expected {expected}")
    has_norms = any(row.name.endswith("norm.weight") for row in blueprint.rows)
    epsilons = ("layer_norm_rms_epsilon", "layer_norm_epsilon")
    if has_norms and not any(f"{blueprint.architecture}.attention.{name}" in blueprint.keys for name in epsilons):
        raise FormatError(f"{config.path}: rms_norm_eps is missing, expected a number")
    rope = rope_block(config)
    kind = rope_type(rope)
    factor = full_rope(rope).number("factor")
    if kind in ("linear", "yarn") and factor is None:
        raise FormatError(f"{config.path}: {kind} rope scaling without factor")
    if kind in ("linear", "yarn") and factor is not None and not factor > 0:
        raise FormatError(f"{config.path}: factor of {kind} rope scaling is {factor:g}, expected more than 0")
    if kind == "yarn" and blueprint.architecture not in READS_YARN:
        warn_of_yarn(job, full_rope(rope))
    if kind not in ROPE_TYPES:
        job.warnings.append(f"rope type {kind!r} is unknown and left out, as llama.cpp does")


def warn_of_yarn(job: Job, rope: Values) -> None:
    """Says which settings of YaRN are lost: no reader of the architectures here looks at them, llama.cpp included."""
    fixed = (("beta_fast", 32.0), ("beta_slow", 1.0), ("extrapolation_factor", 1.0))
    lost = [
        f"{name} {given:g} (taken as {value:g})"
        for name, value in fixed
        if (given := rope.number(name) or value) != value
    ]
    if lost:
        job.warnings.append(f"yarn rope scaling with {', '.join(lost)}: no program reads this from the file")
    if rope.flag("truncate") is False:
        job.notes.append("yarn's correction range is rounded to whole pairs, as llama.cpp does (truncate is false)")


def collect_keys(blueprint: Blueprint, general: General) -> KeyValues:
    """All metadata in writing order, the architecture excepted."""
    keys = KeyValues()
    keys.update(blueprint.first_keys)
    keys.update(general.keys())
    keys.update(blueprint.keys)
    keys.add("general.quantization_version", "u32", 2)
    keys.update(blueprint.vocabulary())
    return keys


def output_path(request: ConvertConfig, directory: Path, general: General, outtype: Outtype) -> Path:
    """Where the file goes: the given name with its template filled in, or the default name."""
    given = None if request.outfile is None else user_path(request.outfile)
    from_hub = request.remote or not user_path(request.source).is_dir()
    if given is None and from_hub:  # the cache is no place for new files
        given = Path(str(request.source).replace("/", "-") + "-{ftype}.gguf")
    if given is None or given.is_dir():
        folder = directory if given is None else given
        name = general.file_name(outtype, vocab_only=request.vocab_only, mtp_only=request.mtp == "only")
        return folder / name
    label = outtype.label
    try:
        name = given.name.format(label.lower(), outtype=label.lower(), ftype=label.lower(), OUTTYPE=label, FTYPE=label)
    except (KeyError, IndexError, ValueError):
        raise UsageError(
            f"{given}: bad template, expected {{ftype}}, {{outtype}}, {{}}, {{FTYPE}} or {{OUTTYPE}}"
        ) from None
    if not given.parent.is_dir():
        raise UsageError(f"{given.parent}: no such directory")
    return given.with_name(name)


def check_output(path: Path, request: ConvertConfig, directory: Path) -> None:
    """Refuses to begin what could not be written, or would take the place of what is read.

    Raises:
        ResourceError: The file cannot be written.
        UsageError: `path` is a pipe, a device, or a file of the checkpoint or the target.
    """
    check_writable(path)
    if is_special(path):
        raise UsageError(f"{path}: is a pipe or a device, expected a file")
    if not path.exists():
        return
    read = [item for item in directory.iterdir() if item.suffix != ".gguf"]
    target = None if request.target is None else user_path(request.target)
    read += [target] if target is not None and target.is_file() else []
    if any(item.exists() and path.samefile(item) for item in read):
        raise UsageError(f"{path}: is read by the conversion, expected another file")


def check_space(path: Path, n_bytes: int) -> None:
    """Refuses to begin what the disk cannot hold; an existing file is replaced only at the end, so it counts.

    Raises:
        ResourceError: There is too little space.
    """
    free = shutil.disk_usage(Path(os.path.realpath(path)).parent).free
    needed = n_bytes + HEADROOM_BYTES
    if free < needed:
        raise ResourceError(f"{path}: needs {needed / 1e6:.0f} MB, {free / 1e6:.0f} MB are free")


def write(
    request: ConvertConfig,
    path: Path,
    architecture: str,
    keys: KeyValues,
    plan: TensorPlan,
    job: Job,
    progress: OnProgress | None,
) -> list[Path]:
    """Writes the file or its shards; the names appear only when everything is complete."""
    writer = GGUFWriter(
        path,
        architecture,
        split_max_bytes=request.split_max_bytes or None,
        split_max_tensors=request.split_max_tensors or None,
        first_without_tensors=request.no_tensor_first_split,
    )
    for key, kind, value in keys:
        writer.add(key, kind, value)
    meter = _Meter(plan, progress)
    for tensor in plan.tensors:
        writer.add_tensor(tensor.name, tensor.type, tensor.shape, meter.encoder(tensor, job.warnings))
    return writer.close()


class _Meter:
    """Encodes tensors slice by slice and reports how far the file is."""

    def __init__(self, plan: TensorPlan, progress: OnProgress | None) -> None:
        self._progress = progress
        self._n_tensors = len(plan.tensors)
        self._n_bytes = sum(tensor.n_bytes for tensor in plan.tensors)
        self._n_done = 0
        self._bytes_done = 0

    def encoder(self, tensor: PlannedTensor, warnings: list[str]) -> Callable[[], npt.NDArray[np.uint8]]:
        """A function that makes the tensor's bytes when its turn comes."""

        def encode() -> npt.NDArray[np.uint8]:
            data = np.empty(tensor.n_bytes, np.uint8)
            done = 0
            is_finite = True
            for start, stop in tensor.values.slices():
                values = tensor.values.read(start, stop)
                if tensor.values.type is None:
                    is_finite = is_finite and bool(np.isfinite(values).all())
                    rows = values.reshape(-1, tensor.shape[-1]) if len(tensor.shape) > 1 else values.reshape(1, -1)
                    values = quantise(tensor.type, rows.astype(np.float32, copy=False))
                part = values.reshape(-1)
                data[done : done + len(part)] = part
                done += len(part)
                self._say(tensor.name, len(part))
            if not is_finite:
                warnings.append(f"{tensor.name}: holds NaN or infinite values")
            self._n_done += 1
            self._say(tensor.name, 0)
            return data

        return encode

    def _say(self, name: str, n_bytes: int) -> None:
        self._bytes_done += n_bytes
        if self._progress is not None:
            self._progress(Progress(self._n_done, self._n_tensors, self._bytes_done, self._n_bytes, name))


def report(
    job: Job,
    layout: Layout,
    blueprint: Blueprint,
    keys: KeyValues,
    plan: TensorPlan,
    paths: list[Path],
    n_bytes: int,
    seconds: float,
) -> ConvertReport:
    """The result as the caller sees it."""
    rows = tuple(TensorRow(t.sources, t.name, t.shape, t.type.label, t.n_bytes) for t in plan.tensors)
    return ConvertReport(
        layout=blueprint.layout or layout.label,
        architecture=blueprint.architecture,
        paths=tuple(paths),
        tensors=rows,
        borrowed=tuple(plan.borrowed),
        unused=plan.unused,
        metadata={key: plain(value) for key, _, value in keys},
        notes=tuple(job.notes),
        warnings=(*job.warnings, *plan.warnings),
        fit=job.fit,
        n_bytes=n_bytes,
        seconds=seconds,
    )
