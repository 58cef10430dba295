"""Which GGUF file of a Hugging Face repository is meant (llama.cpp `common/download.cpp`, b11434)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from specli.cli.options.request import SourceConfig
from specli.errors import FormatError, UsageError, listed
from specli.hub import Hub, Repository

DEFAULT_TAGS = ("Q4_K_M", "Q8_0")
SIDE_FILES = {
    "draft-mtp": re.compile(r"mtp-|(?:^|/)(?i:mtp)[-_.][^/]*$"),
    "draft-dspark": re.compile(r"(?i)dspark[-_./]"),
    "draft-dflash": re.compile(r"(?i)dflash2?[-_./]"),
    "draft-eagle3": re.compile(r"(?i)eagle-?3[-_./]"),
}
"""Spec type → what paths of its side files contain, in the order in which types are inferred.

llama.cpp looks for `mtp-`, `dspark-`, `dflash-`, `eagle3-` in lower case. `T-MTP-Q8_0.gguf` is often a whole model.
"""
NO_MODEL = re.compile(r"(?i)mmproj|imatrix")
PERHAPS_DRAFTER = re.compile(r"(?i)(?:^|[-_.])(?:mtp|nextn|draft|drafter|assistant|speculators?)[-_.]")
"""File names that stand back where others are whole models for sure."""
SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def split_repo(text: str) -> tuple[str, str | None]:
    """`user/model` and the quant tag of `user/model:tag`."""
    repo, _, tag = text.partition(":")
    return repo, tag or None


def is_model(name: str) -> bool:
    """Whether a file can be a whole model: no side file, and of a split one the first part."""
    shard = SHARD.search(name)
    is_first = not shard or int(shard[1]) == 1
    return name.endswith(".gguf") and is_first and not any(p.search(name) for p in (NO_MODEL, *SIDE_FILES.values()))


def has_tag(name: str, tag: str) -> bool:
    """Whether a path has the tag as a word of its own: `Q6_K` is not in `Q6_K_L`, `COMPACT` not in `I-COMPACT`.

    llama.cpp takes the first path that contains the tag anywhere.
    """
    return re.search(rf"(?:^|[/._]|(?<![A-Za-z])-){re.escape(tag)}(?=[.-]|/|$)", name, re.IGNORECASE) is not None or (
        re.search(rf"-{re.escape(tag)}[.-]", name, re.IGNORECASE) is not None
        and re.search(rf"(?:^|-)I-{re.escape(tag)}[.-]", name, re.IGNORECASE) is None
    )


def tag_of(name: str) -> str:
    """The quant tag at the end of a model's name: `Q4_K_M` for `T-q4_k_m.gguf`, nothing for `T.gguf`."""
    found = re.search(r"[-.]([A-Za-z0-9_]+)$", SHARD.sub("", name).removesuffix(".gguf"))
    return found[1].upper() if found else ""


def choose_model(files: Sequence[str], repo: str, tag: str | None) -> str:
    """The file that stands for a repository and tag.

    Raises:
        UsageError: None has the tag, or several differ in more than it.
    """
    models = [name for name in files if is_model(name)]
    if not models:
        others = [name for name in files if name.endswith(".gguf")]
        hint = f"these are drafters or projectors, which go with a model: {listed(others)}" if others else None
        raise UsageError(f"no GGUF files found in repository {repo}", hint=hint)
    for group in ([name for name in models if not PERHAPS_DRAFTER.search(PurePosixPath(name).name)], models):
        for wanted in (tag,) if tag else DEFAULT_TAGS:
            found = [name for name in group if has_tag(name, wanted)]
            if tag and len(found) > 1:
                raise UsageError(
                    f"{repo}: several files have the tag {tag}: {listed(found)}", hint="name one with -hff"
                )
            if found:
                return found[0]
        if group and not tag:
            return group[0]
    raise UsageError(f"no GGUF files found in repository {repo}:{tag}", hint=f"available: {listed(models)}")


def choose_side_file(files: Sequence[str], spec_type: str, model: str | None, tag: str | None) -> str | None:
    """The side file of a type that fits best: deepest directory, then the tag, then the nearest bit width."""
    above = {str(parent) for parent in PurePosixPath(model).parents} if model else {"."}
    found = [
        name
        for name in files
        if name.endswith(".gguf")
        and name != model
        and SIDE_FILES[spec_type].search(name)
        and str(PurePosixPath(name).parent) in above
    ]
    wanted = bit_width(tag or model or DEFAULT_TAGS[0])

    def distance(name: str) -> tuple[int, bool, int]:
        depth = len(PurePosixPath(name).parts)
        width = bit_width(name)
        off = abs(width - wanted) if width is not None and wanted is not None else 99
        return -depth, not (tag and re.search(rf"-{re.escape(tag)}\.", name, re.IGNORECASE)), off

    return min(found, key=distance, default=None)  # the first of equals


def bit_width(text: str) -> int | None:
    """The number in a quant name: 4 for `Q4_K_M`, 16 for `BF16`."""
    found = re.findall(r"(?:^|[-._/])(?:IQ|Q|BF|F|MXFP)(\d+)", text, re.IGNORECASE)
    return int(found[-1]) if found else None


def parts_of(name: str, files: Iterable[str], repo: str) -> list[str]:
    """All parts of a split model, the first one first; just the name for a whole file.

    Raises:
        FormatError: The repository lacks a part.
    """
    shard = SHARD.search(name)
    if not shard:
        return [name]
    stem, known = name[: shard.start()], set(files)
    parts = [f"{stem}-{number:05d}-of-{shard[2]}.gguf" for number in range(1, int(shard[2]) + 1)]
    missing = next((part for part in parts if part not in known), None)
    if missing:
        raise FormatError(f"{repo}: {missing} is missing")
    return parts


def open_hub(source: SourceConfig) -> Hub:
    """The hub as the options and the environment say."""
    return Hub.of(source.hf_token, source.offline)


def cached_models(hub: Hub) -> list[str]:
    """`user/model:TAG` of every whole model in the cache whose name has a tag, sorted."""
    found = {
        f"{repository.name}:{tag}"
        for repository in hub.cached()
        for file in filter(is_model, repository.files)
        if (tag := tag_of(file))
    }
    return sorted(found)


def fetch_model(repository: Repository, name: str) -> Path:
    """The local path of a file, after fetching it and, of a split model, its other parts."""
    paths = [repository.fetch(part) for part in parts_of(name, repository.files, repository.name)]
    return paths[0]


def fetch_target(source: SourceConfig) -> Path:
    """The target's file of `-hf`, `-hff`.

    Raises:
        SpecliError: There is no such file, or it cannot be had.
    """
    assert source.hf_repo
    name, tag = split_repo(source.hf_repo)
    repository = open_hub(source).open(name)
    if source.hf_file:
        return _exact(repository, source.hf_file)
    return fetch_model(repository, choose_model(repository.files, name, tag))


def fetch_draft(source: SourceConfig, types: tuple[str, ...]) -> Path:
    """The draft file of `-hfd`: exactly `-md`, or a side file of the chosen type, or the repository's model.

    Raises:
        SpecliError: There is no such file, or it cannot be had.
    """
    assert source.draft_hf_repo
    name, tag = split_repo(source.draft_hf_repo)
    repository = open_hub(source).open(name)
    if source.draft_model:
        return _exact(repository, source.draft_model)
    model = _model_or_none(repository, tag)
    for spec_type in SIDE_FILES:
        if not types or spec_type in types:
            side = choose_side_file(repository.files, spec_type, model, tag)
            if side:
                return fetch_model(repository, side)
    return fetch_model(repository, choose_model(repository.files, name, tag))


def fetch_side_file(source: SourceConfig, types: tuple[str, ...]) -> Path | None:
    """The drafter that lies beside the target in the `-hf` repository, for a chosen type; None if there is none."""
    assert source.hf_repo
    if not SIDE_FILES.keys() & types:
        return None
    name, tag = split_repo(source.hf_repo)
    repository = open_hub(source).open(name)
    model = source.hf_file or _model_or_none(repository, tag)
    for spec_type in SIDE_FILES:
        if spec_type in types and (side := choose_side_file(repository.files, spec_type, model, tag)):
            return fetch_model(repository, side)
    return None


def _exact(repository: Repository, file: str) -> Path:
    if file not in repository.files:
        raise UsageError(f"file '{file}' not found in repository", hint=f"repository {repository.name}")
    return fetch_model(repository, file)


def _model_or_none(repository: Repository, tag: str | None) -> str | None:
    try:
        return choose_model(repository.files, repository.name, tag)
    except UsageError:
        return None
