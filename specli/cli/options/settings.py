"""Settings of one command: default < config file < environment < command line, each with its origin."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specli.cli.options import options_of, spellings_of
from specli.cli.options.arguments import (
    Assignment,
    CommandLine,
    Origin,
    config_paths,
    read_config_file,
    read_environment,
    unknown_variables,
)
from specli.cli.options.option import Option
from specli.cli.options.request import DEFAULTS, CommandConfig, read_field, with_fields
from specli.sampling.settings import MODEL_CHOICES, SamplingSettings

SAMPLING = "request.sampling."


@dataclass(frozen=True)
class Setting:
    """A value and where it came from."""

    value: Any
    origin: Origin


@dataclass
class Settings:
    """The settings of one command.

    Attributes:
        command: Its name.
        operands: Its arguments that are not options.
        values: Field path → setting, for fields that were set.
        warnings: What the user should know before the run, one line each.
        remarks: The same about single options, by their names: those without effect, and values not taken as given.
    """

    command: str
    operands: tuple[str, ...] = ()
    values: dict[str, Setting] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    remarks: dict[str, str] = field(default_factory=dict)

    def apply(self, assignment: Assignment) -> None:
        """Takes over one option.

        Raises:
            UsageError: The value is wrong, or the option is refused or removed.
        """
        option, origin = assignment.option, assignment.origin
        if option.is_elsewhere and origin.source != "flag":
            return
        try:
            value = self._read(option, assignment)
        except ValueError as error:
            raise origin.error(str(error), option, assignment.text) from None
        for spelling, text in option.implies:
            self.apply(Assignment(spellings_of(self.command)[spelling], text, True, origin))
        if option.excludes:
            self.values.pop(option.excludes, None)
        if option.field and value is not None:
            self.values[option.field] = Setting(value, origin)

    def _read(self, option: Option, assignment: Assignment) -> Any:
        """The value of an option, after a remark about it is kept; ValueError says what is wrong with it."""
        text = assignment.text
        value = option.kind.parse(text) if text is not None else option.const if assignment.is_positive else False
        if option.removed:
            raise ValueError(f"the argument has been removed. {option.removed}")
        asked = str(value) if text is not None else "on" if assignment.is_positive else "off"
        is_satisfied = asked in option.satisfied
        if option.refused and not is_satisfied:
            raise ValueError(f"not available in specli: {option.refused}")
        self.remarks.pop(option.name, None)
        if option.idle and not is_satisfied:
            self.remarks[option.name] = f"{assignment.origin.name} has no effect: {option.idle}"
        elif text is not None and (remark := option.kind.remark(text)):
            self.remarks[option.name] = f"{assignment.origin.name}: {remark}"
        previous = self.values.get(option.field or "")
        if option.kind.merge and previous and previous.origin.source == assignment.origin.source:
            value = option.kind.merge(previous.value, value)
        return value

    def origin(self, path: str) -> Origin:
        """Where the value of a field came from."""
        setting = self.values.get(path)
        return setting.origin if setting else Origin("default", "default")

    def config(self) -> CommandConfig:
        """All settings as one record tree, defaults filled in."""
        values = {path: setting.value for path, setting in self.values.items()}
        chosen = frozenset(path.removeprefix(SAMPLING) for path in values if path.startswith(SAMPLING))
        return with_fields(DEFAULTS, values | {"chosen": chosen})

    def effective(self, sampling: SamplingSettings | None = None) -> dict[str, Any]:
        """Every setting with the value in force, by the long spelling of its first option; for JSON output.

        The access token is left out, and so is how a run through many prompts is carried out.

        Args:
            sampling: What was in force, if the model had its own defaults.
        """
        config = self.config()
        if sampling is not None:
            choices = {SAMPLING + name: getattr(sampling, name) for name in MODEL_CHOICES}
            config = with_fields(config, choices)
        options = {option.field: option.name for option in reversed(options_of(self.command)) if option.is_listed}
        return {
            name: plain(read_field(config, field))
            for field, name in reversed(options.items())
            if field and field != "source.hf_token" and not field.startswith("batch.")
        }

    def drafting(self, types: Collection[str]) -> list[dict[str, Any]]:
        """The options with a value that the given drafters read, as `{"option", "value", "origin"}`."""
        config = self.config()
        shown: dict[str, dict[str, Any]] = {}
        for option in options_of(self.command):
            if option.field and option.is_listed and not option.idle and set(option.types) & set(types):
                value = plain(read_field(config, option.field))
                if isinstance(value, bool) and option.kind.values:
                    value = option.kind.values[value]
                elif isinstance(value, int):
                    value = next((word for word in option.kind.values if option.kind.parse(word) == value), value)
                if value is not None:
                    origin = self.origin(option.field).source
                    shown[option.name] = {"option": option.name, "value": value, "origin": origin}
        return list(shown.values())

    def describe(self, types: Collection[str]) -> str | None:
        """The same in one line, `--spec-draft-n-max 8 (flag)`; None if there is none."""
        shown = [f"{item['option']} {item['value']} ({item['origin']})" for item in self.drafting(types)]
        return f"draft settings: {', '.join(shown)}" if shown else None

    def default(self, spelling: str, text: str) -> None:
        """Sets an option that nobody set."""
        option = spellings_of(self.command)[spelling]
        if option.field not in self.values:
            self.apply(Assignment(option, text, True, Origin("default", "default")))


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, (tuple, list, frozenset)):
        return [plain(item) for item in (sorted(value) if isinstance(value, frozenset) else value)]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def resolve(command: str, line: CommandLine, environ: Mapping[str, str], *, read_files: bool = True) -> Settings:
    """Settings of a command from all layers.

    Raises:
        UsageError: Any value in any layer is wrong, also one that a stronger layer replaces.
    """
    settings = Settings(command, line.operands)
    for path in config_paths(environ) if read_files else ():
        assignments, warnings = read_config_file(command, path)
        settings.warnings += warnings
        _apply_all(settings, assignments)
    from_environment = tuple(read_environment(command, environ))
    _apply_all(settings, from_environment)
    settings.warnings += unknown_variables(environ)
    settings.warnings += overridden(from_environment, line.assignments)
    settings.warnings += repeated(line.assignments)
    settings.warnings += replaced(line.assignments)
    _apply_all(settings, line.assignments)
    settings.warnings += idle_options(settings)
    return settings


def _apply_all(settings: Settings, assignments: Iterable[Assignment]) -> None:
    for assignment in assignments:
        settings.apply(assignment)


def overridden(environment: Iterable[Assignment], arguments: Sequence[Assignment]) -> list[str]:
    """llama.cpp's warning about variables that an argument replaces."""
    given = {assignment.option.names: assignment.origin.name for assignment in reversed(arguments)}
    return [
        f"{item.origin.name} environment variable is set, but will be overwritten by command line argument {name}"
        for item in environment
        if (name := given.get(item.option.names))
    ]


def repeated(arguments: Sequence[Assignment]) -> list[str]:
    """llama.cpp's warning about a spelling given twice, for options that do not add up."""
    names = [item.origin.name for item in arguments if item.option.kind.takes_value and not item.option.kind.merge]
    return [
        f"DEPRECATED: argument '{name}' specified multiple times, use comma-separated values instead "
        "(only last value will be used)"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]


def replaced(arguments: Iterable[Assignment]) -> list[str]:
    """Warnings about a value that a later argument of another spelling replaces, as `-p TEXT -f FILE`."""
    spellings: dict[str, str] = {}
    warnings = []
    for item in arguments:
        option, name = item.option, item.origin.name
        if not option.kind.takes_value or option.kind.merge or not option.field:
            continue
        for path in filter(None, (option.field, option.excludes)):
            if path in spellings and spellings[path] != name:
                warnings.append(f"{spellings[path]} has no effect: {name} replaces it")
        spellings[option.field] = name
    return warnings


def idle_options(settings: Settings, spellings: Collection[str] | None = None) -> list[str]:
    """Warnings about options that were given and have no effect.

    Args:
        settings: All that was set.
        spellings: Only options given so; None = all.
    """
    options = options_of(settings.command)
    given = [
        option
        for option in options
        if (setting := settings.values.get(option.field or "")) is not None
        and setting.origin.name in option.spellings
        and (spellings is None or setting.origin.name in spellings)
    ]
    return [*settings.remarks.values(), *lonely(settings, given, options), *ineffective(settings, given)]


def lonely(settings: Settings, given: Iterable[Option], options: Sequence[Option]) -> list[str]:
    """Warnings about options that nothing reads unless another one of `options` is given, too."""
    warnings = []
    for option in given:
        setting = settings.values[option.field or ""]
        if option.needs and setting.value and not settings.values.keys() & set(option.needs):
            others = dict.fromkeys(other.name for other in options if other.field in option.needs and other.is_listed)
            warnings.append(f"{setting.origin.name} has no effect without {' or '.join(others)}")
    return warnings


def ineffective(settings: Settings, given: Iterable[Option]) -> list[str]:
    """Warnings about drafter options that none of the chosen types reads, and about loading a draft model without one.

    Nothing when the type is inferred. A repository may have a draft file beside the target.
    """
    chosen = settings.values.get("speculation.types")
    types: tuple[str, ...] = chosen.value if chosen else ()
    has_draft_file = bool({"source.draft_model", "source.draft_hf_repo"} & settings.values.keys())
    if not types and has_draft_file:
        return []
    may_load = has_draft_file or ("source.hf_repo" in settings.values and bool(types))
    warnings = []
    for option in given:
        setting = settings.values[option.field or ""]
        if option.types and not option.idle and not set(option.types) & set(types):
            warnings.append(f"{setting.origin.name} has no effect: it is read by {' '.join(option.types)}")
        elif not may_load and (option.field or "").startswith("draft."):
            warnings.append(f"{setting.origin.name} has no effect: there is no draft model of its own (-md)")
    return warnings
