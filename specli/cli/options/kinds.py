"""Kinds of option values: how the text of an option becomes a value, with llama.cpp's error texts (`common/arg.cpp`).

A `parse` function raises ValueError whose text is what the user reads after `error while handling argument "…": `.
Numbers are read strictly: `12abc` is an error here, while llama.cpp's `stoi` reads 12.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specli.drafters import DRAFTERS, networks_of, tables_of
from specli.errors import UsageError, did_you_mean
from specli.files import user_path
from specli.gguf.types import CACHE_TYPES
from specli.sampling.names import SAMPLER_LETTERS, canonical_sampler

TRUTHY = ("on", "enabled", "true", "1")
FALSEY = ("off", "disabled", "false", "0")
AUTO = ("auto", "-1")

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
FLOAT32_MAX = (2 - 2**-23) * 2.0**127
UNSIGNED_RANGE = 2**32

SPEC_TYPES = ("none", *networks_of(DRAFTERS), *tables_of(DRAFTERS))


@dataclass(frozen=True)
class Kind:
    """How one option reads its value.

    Attributes:
        metavar: Name of the value in help; empty for a flag, which takes none. Two words for an option of two values.
        parse: Text to value; None leaves the field as it is. Two values come with a blank between them.
        values: The words it accepts, when they are few; for help and completion.
        merge: Combines the value so far with a repeated one; None = the last one wins.
        files: Completion of file names: None = no file, "" = any file, ".gguf" = files ending so (and directories).
        remark: What to say about a text that is read but has no effect, or not all of it; None = nothing to say.
    """

    metavar: str
    parse: Callable[[str], Any]
    values: tuple[str, ...] = ()
    merge: Callable[[Any, Any], Any] | None = None
    files: str | None = None
    remark: Callable[[str], str | None] = lambda text: None

    @property
    def takes_value(self) -> bool:
        """Whether the next argument belongs to the option."""
        return bool(self.metavar)

    @property
    def n_values(self) -> int:
        """How many of the arguments that follow belong to the option."""
        return len(self.metavar.split())


def parse_boolean(text: str) -> bool:
    """Reads a boolean word (case sensitive).

    Raises:
        ValueError: `invalid boolean value`.
    """
    if text in TRUTHY:
        return True
    if text in FALSEY:
        return False
    raise ValueError("invalid boolean value")


FLAG = Kind("", parse_boolean)
"""No value on the command line; a boolean word in the environment."""


def read_int(text: str, function: str = "stoi") -> int:
    """Reads a decimal integer; the error text begins with the C++ function that llama.cpp names."""
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,40}", text):
        raise ValueError(f'{function}: "{text}" is not an integer')
    return int(text)


MAX_DEVICES = 16  # llama_max_devices


def read_float(text: str) -> float:
    """Reads a float, `inf` and `nan` included, as `stof`: a number beyond float32 is an error."""
    try:
        value = float(text.replace("_", "?"))  # Python would read 1_0 as 10
    except ValueError:
        raise ValueError(f'stof: "{text}" is not a number') from None
    if FLOAT32_MAX < abs(value) < math.inf:
        raise ValueError(f'stof: "{text}" is out of range')
    return value


def integer(
    low: int = INT_MIN, high: int = INT_MAX, error: str = "invalid value", *, metavar: str = "N", **words: int
) -> Kind:
    """An integer within `low` … `high`; `error` may hold `{}` for the value. `words` are names of special values."""

    def parse(text: str) -> int:
        if text in words:
            return words[text]
        value = read_int(text)
        if not INT_MIN <= value <= INT_MAX:
            raise ValueError(f'stoi: "{text}" is out of range')
        if not low <= value <= high:
            raise ValueError(error.format(value))
        return value

    return Kind("|".join((metavar, *words)), parse, values=tuple(words))


def number(
    low: float = -math.inf, high: float = math.inf, error: str = "invalid value", *,
    above: float = -math.inf, finite: bool = False, metavar: str = "N",
) -> Kind:  # fmt: skip
    """A float within `low` … `high` and greater than `above`; never NaN, which compares with nothing."""

    def parse(text: str) -> float:
        value = read_float(text)
        is_inside = low <= value <= high and (above == -math.inf or value > above)
        if not is_inside or (finite and math.isinf(value)):
            raise ValueError(error.format(text))
        return value

    return Kind(metavar, parse)


def choice(*names: str, error: str = "invalid value", metavar: str = "", **synonyms: str) -> Kind:
    """One of `names`; `error` may hold `{}` for the text. `synonyms` map further words to names."""

    def parse(text: str) -> str:
        value = synonyms.get(text, text)
        if value not in names:
            raise ValueError(error.format(text))
        return value

    return Kind(metavar or "|".join(names), parse, values=names)


def on_off(error: str = "invalid value", *, auto: bool = True) -> Kind:
    """`on`, `off` and, unless excluded, `auto`, with all boolean words; the value is `on`, `off` or `auto`."""

    def parse(text: str) -> str:
        for name, words in (("on", TRUTHY), ("off", FALSEY), ("auto", AUTO if auto else ())):
            if text in words:
                return name
        raise ValueError(error.format(text))

    names = ("on", "off", "auto") if auto else ("on", "off")
    return Kind("|".join(names), parse, values=names)


def text(metavar: str = "TEXT", *, append: bool = False) -> Kind:
    """Any text; with `append` a tuple of texts that grows with each use."""
    if append:
        return Kind(metavar, lambda value: (value,), merge=concatenate)
    return Kind(metavar, str)


def path(metavar: str = "FNAME", suffix: str = "") -> Kind:
    """A file name, not opened here."""

    def parse(text: str) -> Path:
        try:
            return user_path(text)
        except UsageError as error:
            raise ValueError(str(error)) from None

    return Kind(metavar, parse, files=suffix)


def file_text(*, strip_newline: bool = False, error: str = "error: failed to open file '{}'") -> Kind:
    """The text of a file (`-` = stdin), read at once (UTF-8); optionally without one trailing newline."""

    def parse(name: str) -> str:
        try:
            raw = sys.stdin.buffer.read() if name == "-" else user_path(name).read_bytes()
        except (OSError, UsageError):
            raise ValueError(error.format(name)) from None
        try:
            content = raw.decode()
        except UnicodeDecodeError as problem:
            raise ValueError(f"{name!r} is not UTF-8 text: {problem.reason} at byte {problem.start}") from None
        return content.removesuffix("\n") if strip_newline else content

    return Kind("FNAME", parse, files="")


def json_object(text: str) -> dict[str, Any]:
    """Reads a JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, found {type(value).__name__}")  # noqa: TRY004 - user input
    return value


def concatenate(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    """Appends; the merge rule of options that accumulate."""
    return (*old, *new)


def parse_seed(text: str) -> int:
    """Reads a seed modulo 2^32, so that -1 is the random seed."""
    value = read_int(text, "stoul")
    if not -(2**63) <= value < 2**64:
        raise ValueError(f'stoul: "{text}" is out of range')
    return value % UNSIGNED_RANGE


def parse_spec_types(text: str) -> tuple[str, ...]:
    """Reads a comma list of drafter types; none of them twice (llama.cpp lets that pass)."""
    names = tuple(text.split(","))
    for name in names:
        if name not in SPEC_TYPES:
            raise ValueError(f"unknown speculative type: {name}")
        if names.count(name) > 1 and name != "none":
            raise ValueError(f"speculative type given twice: {name}")
    return merge_spec_types((), names)


def merge_spec_types(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    """Appends the types not there yet; `none` stands alone.

    llama.cpp drops a whole comma list silently when `none` is in it; here that mistake is an error.
    """
    names = tuple(dict.fromkeys((*old, *new)))
    if "none" in names and len(names) > 1:
        raise ValueError("none cannot be combined with other speculative types")
    return names


def parse_rates(text: str) -> tuple[float, ...]:
    """Reads synthetic acceptance rates; their meaning is checked with the drafters (docs/speculation.md §7)."""
    try:
        return tuple(read_float(part) for part in text.split(","))
    except ValueError:
        raise ValueError("invalid value") from None


def parse_synth_length(text: str) -> float:
    """Reads a synthetic mean length."""
    try:
        value = read_float(text)
    except ValueError:
        raise ValueError("invalid value") from None
    if value == -1 or math.isnan(value):  # -1 is llama.cpp's "off"
        raise ValueError("invalid value")
    return value


def parse_samplers(text: str) -> tuple[str, ...]:
    """Reads `;`-separated sampler names, without those that nobody knows; `unknown_samplers` names them."""
    return tuple(filter(None, map(canonical_sampler, text.split(";"))))


def unknown_samplers(text: str) -> str | None:
    """llama.cpp's warning about sampler names that it leaves out, with the nearest one."""
    unknown = [name for name in text.split(";") if name and canonical_sampler(name) is None]
    hints = (did_you_mean(name, SAMPLER_LETTERS.values()) for name in unknown)
    names = ", ".join(f"'{name}'{f' ({hint})' if hint else ''}" for name, hint in zip(unknown, hints, strict=True))
    return f"unable to match sampler by name {names}" if unknown else None


def parse_sampler_letters(text: str) -> tuple[str, ...]:
    """Reads a sequence of sampler letters such as `edskypmxt`, without those that nobody knows."""
    return tuple(SAMPLER_LETTERS[letter] for letter in text if letter in SAMPLER_LETTERS)


def unknown_letters(text: str) -> str | None:
    """llama.cpp's warning about sampler letters that it leaves out."""
    unknown = ", ".join(f"'{letter}'" for letter in dict.fromkeys(text) if letter not in SAMPLER_LETTERS)
    return f"unable to match sampler by letter {unknown}" if unknown else None


def parse_dry_base(text: str) -> float | None:
    """Reads the base of DRY; None for one below 1, which llama.cpp leaves out, too."""
    base = number(finite=True).parse(text)
    return base if base >= 1 else None


def small_base(text: str) -> str | None:
    """A remark about a base of DRY that is left out."""
    return f"{text} is below 1 and has no effect" if parse_dry_base(text) is None else None


def parse_logit_bias(text: str) -> tuple[tuple[int, float], ...]:
    """Reads `ID+BIAS` or `ID-BIAS`; the bias may have a sign of its own, as in llama.cpp."""
    match = re.fullmatch(r"\s*([+-]?[0-9]{1,10})\s*([+-])(.+)", text)
    try:
        bias = number().parse(match[3]) if match else math.nan
    except ValueError:
        bias = math.nan
    if match is None or math.isnan(bias) or not INT_MIN <= int(match[1]) <= INT_MAX:
        raise ValueError("invalid input format")
    return ((int(match[1]), -bias if match[2] == "-" else bias),)


def parse_breaker(text: str) -> tuple[str, ...]:
    """One DRY sequence breaker, or `none` for none at all."""
    return () if text == "none" else (text,)


def merge_breakers(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    """Appends a breaker; `none` clears the list."""
    return (*old, *new) if new else ()


def parse_mask(text: str) -> frozenset[int]:
    """CPUs of a hexadecimal mask, bit 0 = CPU 0."""
    digits = text[2:] if text[:2] in ("0x", "0X") else text
    if not re.fullmatch(r"[0-9a-fA-F]{1,128}", digits):
        raise ValueError("invalid cpumask")
    bits = int(digits, 16)
    return frozenset(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


def parse_range(text: str) -> frozenset[int]:
    """CPUs of `lo-hi`; a missing end is the first or last CPU."""
    match = re.fullmatch(r"([0-9]{0,4})-([0-9]{0,4})", text)
    if not match:
        raise ValueError("invalid range")
    low = int(match[1] or 0)
    high = int(match[2] or (os.cpu_count() or 1) - 1)
    if low > high:
        raise ValueError("invalid range")
    return frozenset(range(low, high + 1))


def merge_cpus(old: frozenset[int], new: frozenset[int]) -> frozenset[int]:
    """A mask and a range add up."""
    return old | new


def parse_device(text: str) -> str:
    """Reads a device: `cpu`, `none` (= cpu), `auto`, `cuda`, `cuda:N`, or llama.cpp's `CUDAN`."""
    name = text.lower()
    if name in ("none", "cpu"):
        return "cpu"
    if name == "auto":
        return name
    match = re.fullmatch(r"cuda:?([0-9]{0,3})", name)
    if not match:
        raise ValueError(f"invalid device: {text}")
    return f"cuda:{int(match[1] or 0)}"


def parse_devices(text: str) -> str:
    """Reads a device, or several that are joined by commas (llama.cpp `parse_device_list`)."""
    parts = text.split(",")
    names = [parse_device(part) for part in parts]
    if len(names) > 1:
        for part, name in zip(parts, names, strict=True):
            if part.lower() in ("none", "auto"):
                raise ValueError(f"invalid device: {part}")
            if names.count(name) > 1:
                raise ValueError(f"invalid devices: {name} is named twice")
    return ",".join(names)


def parse_shares(text: str) -> tuple[float, ...]:
    """Reads the shares of devices, parted by commas or slashes (llama.cpp `common/arg.cpp`)."""
    parts = re.split("[,/]+", text)
    if len(parts) > 1 and not parts[-1]:
        parts.pop()
    if len(parts) >= MAX_DEVICES:
        raise ValueError(f"got {len(parts)} input configs, but system only has {MAX_DEVICES} devices")
    shares = tuple(read_float(part) for part in parts)
    for part, share in zip(parts, shares, strict=True):
        if not 0 <= share < math.inf:
            raise ValueError(f"invalid share: {part}")
    return shares


def parse_overrides(text: str) -> tuple[tuple[str, str], ...]:
    """Reads `PATTERN=DEVICE,…`: regular expressions on tensor names, and `cpu` or `cuda:N` in any spelling."""
    overrides = []
    for part in text.split(","):
        pattern, equals, device = part.partition("=")
        if not equals:
            raise ValueError("invalid value")
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"invalid pattern {pattern}: {error}") from None
        try:
            place = parse_device(device)
        except ValueError:
            place = "auto"
        if place == "auto":
            raise ValueError(f"unknown buffer type {device}, expected CPU or CUDA0, CUDA1, …")
        overrides.append((pattern, place))
    return tuple(overrides)


def parse_metadata(text: str) -> tuple[tuple[str, int | float | bool | str], ...]:
    """Reads `KEY=TYPE:VALUE,…`, a row of CSV; numbers strictly, and only keys that are read by anything."""
    from specli.gguf.keys import is_known

    overrides: list[tuple[str, int | float | bool | str]] = []
    for part in next(csv.reader([text]), []):
        key, equals, typed = part.partition("=")
        word, colon, value = typed.partition(":")
        if not key or not equals or not colon or word not in METADATA_TYPES:
            raise ValueError(f"error: Invalid type for KV override: {part}")
        if not is_known(key):
            raise ValueError(f"nothing reads the metadata key {key}")
        overrides.append((key, METADATA_TYPES[word](value)))
    return tuple(overrides)


def parse_true_or_false(text: str) -> bool:
    """Reads `true` or `false`, the only booleans of metadata."""
    if text not in ("true", "false"):
        raise ValueError(f"invalid boolean value for KV override: {text}")
    return text == "true"


METADATA_TYPES: dict[str, Callable[[str], int | float | bool | str]] = {
    "int": read_int, "float": read_float, "bool": parse_true_or_false, "str": str,
}  # fmt: skip


def parse_hf_repo(text: str) -> str:
    """Checks `user/model[:quant]`."""
    word = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?"
    if not re.fullmatch(rf"{word}/{word}(:{word})?", text):
        raise ValueError("error: invalid HF repo format, expected <user>/<model>[:quant]")
    return text


def parse_size(text: str) -> int:
    """Reads a byte count with an optional decimal suffix K, M or G."""
    match = re.fullmatch(r"([0-9]+)([KMG]?)", text)
    if not match:
        raise ValueError(f"Invalid split size: {text}, must be a number, optionally followed by K, M, or G")
    return int(match[1]) * {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}[match[2]]


def same_mtp_mode(old: str, new: str) -> str:
    """`--mtp` and `--no-mtp` exclude each other."""
    if old != new:
        raise ValueError("--mtp, --no-nextn, and --dspark are mutually exclusive")
    return new


def parse_layers(text: str) -> tuple[int, ...]:
    """Reads a comma list of layer numbers."""
    return tuple(read_int(part) for part in text.split(","))


SEED = Kind("SEED", parse_seed)
SPEC_TYPE_LIST = Kind("TYPE[,TYPE…]", parse_spec_types, values=SPEC_TYPES, merge=merge_spec_types)
CACHE_TYPE = choice(*(type.label for type in CACHE_TYPES), error="Unsupported cache type: {}", metavar="TYPE")
RATES = Kind("P0,P1,…", parse_rates)
SYNTH_LENGTH = Kind("L", parse_synth_length)
SAMPLERS = Kind("NAME;NAME…", parse_samplers, remark=unknown_samplers)
SAMPLER_SEQUENCE = Kind("LETTERS", parse_sampler_letters, remark=unknown_letters)
DRY_BASE = Kind("N", parse_dry_base, remark=small_base)
LOGIT_BIAS = Kind("ID(+/-)BIAS", parse_logit_bias, merge=concatenate)
BREAKER = Kind("STR", parse_breaker, merge=merge_breakers)
CPU_MASK = Kind("HEX", parse_mask, merge=merge_cpus)
CPU_RANGE = Kind("LO-HI", parse_range, merge=merge_cpus)
DEVICE = Kind("DEV", parse_device, values=("auto", "cpu", "cuda:0"))
DEVICES = Kind("DEV,…", parse_devices, values=("auto", "cpu", "cuda:0"))
SHARES = Kind("N0,N1,…", parse_shares)
OVERRIDES = Kind("PATTERN=DEVICE,…", parse_overrides, merge=concatenate)
METADATA = Kind("KEY=TYPE:VALUE,…", parse_metadata, merge=concatenate)
HF_REPO = Kind("USER/MODEL[:QUANT]", parse_hf_repo)
JSON_OBJECT = Kind("JSON", json_object)
SIZE = Kind("N[K|M|G]", parse_size)
MTP_MODE = replace(FLAG, merge=same_mtp_mode)
LAYERS = Kind("N,N,…", parse_layers)
MODEL_FILE = Kind("FNAME", str, values=("demo",), files=".gguf")
GPU_LAYERS = integer(-2, auto=-1, all=-2)
