"""Special token ids, add-bos flags and chat templates of a tokenizer directory.

Source of the rules: llama.cpp gguf-py/gguf/vocab.py, `SpecialVocab`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specli.convert.keys import KeyValues
from specli.convert.values import Values, load_object
from specli.errors import FormatError
from specli.files import is_there, read_text

KINDS = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")

_ID_KEYS = {
    "bos": "bos_token_id", "eos": "eos_token_id", "unk": "unknown_token_id", "sep": "seperator_token_id",
    "pad": "padding_token_id", "cls": "cls_token_id", "mask": "mask_token_id", "eot": "eot_token_id",
    "eom": "eom_token_id", "prefix": "prefix_token_id", "suffix": "suffix_token_id", "middle": "middle_token_id",
}  # fmt: skip
"""Kind to the key under `tokenizer.ggml.`; "seperator" is llama.cpp's spelling."""

_FLAGS = ("bos", "eos", "sep")

JsonObject = Mapping[str, Any]
Template = str | list[JsonObject] | None


def optional_object(path: Path) -> dict[str, Any] | None:
    """The JSON object of a file, or None when the file is absent."""
    return load_object(path) if is_there(path) else None


class SpecialTokens:
    """Which ids have a role, and what is added around a prompt.

    Args:
        directory: Holds tokenizer.json, tokenizer_config.json, config.json and templates, as far as they exist.
        n_tokens: Ids at or above this are ignored; None = no limit.

    Attributes:
        ids: Kind to id, in the order the keys are written.
        flags: Kind to whether it is added around a prompt.
        template: Chat template, several named ones, or None.
    """

    def __init__(self, directory: Path, *, n_tokens: int | None = None) -> None:
        self.ids: dict[str, int] = {}
        self.flags: dict[str, bool] = {}
        self.template: Template = None
        self._n_tokens = n_tokens
        self._kinds = list(KINDS)
        tokenizer = optional_object(directory / "tokenizer.json")
        config = optional_object(directory / "tokenizer_config.json")
        texts = {kind: _content((config or {}).get(f"{kind}_token")) for kind in KINDS}
        if tokenizer is not None:
            path = directory / "tokenizer.json"
            self._read_post_processor(path, tokenizer, texts, has_config=config is not None)
        if config is not None:
            self.template = read_template(directory, config)
            path = directory / "tokenizer.json"
            self._read_texts(config, texts, objects(path, "added_tokens", (tokenizer or {}).get("added_tokens")))
        self._read_ids(directory)

    def add_to(self, keys: KeyValues) -> None:
        """Writes ids, flags and template."""
        for kind, token in self.ids.items():
            keys.add(f"tokenizer.ggml.{_ID_KEYS[kind]}", "u32", token)
        for kind, value in self.flags.items():
            if kind in _FLAGS:
                keys.add(f"tokenizer.ggml.add_{kind}_token", "bool", value)
        add_template(keys, self.template)

    def set(self, kind: str, token: Any) -> None:
        """Gives a role to an id unless the role is taken; lists and ids beyond the vocabulary are ignored."""
        if not isinstance(token, int) or isinstance(token, bool):
            return
        if token < 0:
            raise FormatError(f"special token {kind} has id {token}, expected 0 or more")
        if self._n_tokens is None or token < self._n_tokens:
            self.ids.setdefault(kind, token)

    def _read_post_processor(
        self, path: Path, tokenizer: Mapping[str, Any], texts: dict[str, str | None], *, has_config: bool
    ) -> None:
        if has_config:
            texts["bos"] = texts["bos"] or texts["cls"]
            texts["eos"] = texts["eos"] or texts["sep"]
        processor = tokenizer.get("post_processor")
        if not isinstance(processor, dict):
            return
        for part in objects(path, "processors", processor.get("processors", [processor])):
            kind = part.get("type")
            if kind == "ByteLevel":
                self.flags.setdefault("bos", False)
                self.flags.setdefault("eos", False)
            elif kind == "RobertaProcessing":
                self.flags |= {"bos": True, "eos": True, "sep": True}
                texts["cls"] = texts["cls"] or _first_text(part.get("cls")) or texts["bos"]
                texts["sep"] = texts["sep"] or _first_text(part.get("sep")) or texts["eos"]
            elif kind == "TemplateProcessing":
                single, pair = (objects(path, name, part.get(name)) for name in ("single", "pair"))
                self._read_processing_template(single, pair, texts, has_config=has_config)

    def _read_processing_template(
        self, single: list[JsonObject], pair: list[JsonObject], texts: dict[str, str | None], *, has_config: bool
    ) -> None:
        """`single` such as [bos, A, eos] decides the bos and eos flags; `pair` decides whether sep stands between."""
        first = last = None
        if len(single) > 1:
            first, last = _inner_id(single[0], "SpecialToken"), _inner_id(single[-1], "SpecialToken")
            if first:
                self._leading_token(first, texts, has_config=has_config)
            if last:
                self._trailing_token(last, texts, has_config=has_config)
        if not pair:
            return
        starts = bool(first) and _inner_id(pair[0], "SpecialToken") == first
        ends = bool(last) and _inner_id(pair[-1], "SpecialToken") == last
        inner = pair[int(starts) : len(pair) - int(ends)]
        sides = [_inner_id(item, "Sequence") for item in (inner[0], inner[-1])] if inner else []
        between = [_inner_id(item, "SpecialToken") for item in inner[1:-1]]
        if sides != ["A", "B"] or not between:
            return
        separators = (texts["sep"], texts["eos"])
        add = between[0] in separators and between[0] is not None and not last
        if len(between) == 2 and between[1] is not None:
            add = add or between[1] in separators
        self.flags["sep"] = add
        if add and not texts["sep"] and has_config:
            texts["sep"] = texts["eos"]

    def _leading_token(self, first: str, texts: dict[str, str | None], *, has_config: bool) -> None:
        if not has_config:
            texts["bos"] = first
        elif first not in (texts["bos"], texts["cls"]):
            texts["bos"] = texts["bos"] or first
            texts["cls"] = texts["cls"] or first
        self.flags["bos"] = first in (texts["bos"], texts["cls"])

    def _trailing_token(self, last: str, texts: dict[str, str | None], *, has_config: bool) -> None:
        if not has_config:
            texts["eos"] = last
        elif last != texts["eos"]:  # the configured eos becomes end-of-turn, or end-of-message when that is taken
            spare = next((kind for kind in ("eot", "eom") if kind not in self._kinds), None)
            if spare is not None:
                self._kinds.append(spare)
                texts[spare] = texts["eos"]
            texts["eos"] = last
        self.flags["eos"] = True

    def _read_texts(self, config: Mapping[str, Any], texts: Mapping[str, str | None], added: list[JsonObject]) -> None:
        by_text: dict[str | None, Any] = {}
        for token in added:
            by_text.setdefault(_content(token), token.get("id"))
        for kind in self._kinds:
            flag = config.get(f"add_{kind}_token")
            if isinstance(flag, bool):
                self.flags.setdefault(kind, flag)
            text = texts.get(kind)
            if text is not None:
                self.set(kind, by_text.get(text))

    def _read_ids(self, directory: Path) -> None:
        path = directory / "config.json"
        config = optional_object(path)
        if config is None:
            return
        nested = Values(path, config).section("text_config").items
        for kind in self._kinds:
            token = config.get(f"{kind}_token_id")
            self.set(kind, nested.get(f"{kind}_token_id") if token is None else token)


def _content(entry: Any) -> str | None:
    """Text of a special token given as text or as an object."""
    text = entry.get("content") if isinstance(entry, dict) else entry
    return text if isinstance(text, str) else None


def objects(path: Path, name: str, value: Any) -> list[JsonObject]:
    """A list of objects; an absent one is empty.

    Raises:
        FormatError: `value` is not a list, or an entry is not an object.
    """
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise FormatError(f"{path}: {name} is not a list of objects")
    return value


def _inner_id(item: JsonObject, kind: str) -> str | None:
    """`id` of a template entry such as `{"SpecialToken": {"id": "</s>", "type_id": 0}}`, if it is of that kind."""
    entry = item.get(kind)
    value = entry.get("id") if isinstance(entry, dict) else None
    return value if isinstance(value, str) else None


def _first_text(pair: Any) -> str | None:
    """The text of a `[text, id]` pair."""
    return pair[0] if isinstance(pair, list) and pair and isinstance(pair[0], str) else None


def read_template(directory: Path, config: Mapping[str, Any]) -> Template:
    """The chat template: in tokenizer_config.json, else chat_template.jinja with its named companions, else .json."""
    template = config.get("chat_template")
    jinja, other = directory / "chat_template.jinja", directory / "chat_template.json"
    if template is None and is_there(jinja):
        template = read_text(jinja)
        named = sorted((directory / "additional_chat_templates").glob("*.jinja"))
        named = [path for path in named if is_there(path)]
        if named:
            template = [{"name": "default", "template": template}]
            template += [{"name": path.stem, "template": read_text(path)} for path in named]
    elif template is None and is_there(other):
        template = load_object(other).get("chat_template")
    if template is None or isinstance(template, str):
        return template
    return objects(directory, "chat_template", template)


def add_template(keys: KeyValues, template: Template) -> None:
    """Writes one template, or a default one and named ones with the list of their names."""
    if isinstance(template, str):
        keys.add("tokenizer.chat_template", "str", template)
    if not isinstance(template, list):
        return
    default, names = None, []
    for choice in template:
        name = re.sub(r"[^A-Za-z0-9]", "_", str(choice.get("name", "")))
        text = choice.get("template")
        if not name or not isinstance(text, str):
            continue
        if name == "default":
            default = text
        else:
            keys.add(f"tokenizer.chat_template.{name}", "str", text)
            names.append(name)
    keys.add("tokenizer.chat_templates", "[str]", sorted(set(names)))
    keys.add("tokenizer.chat_template", "str", default)
