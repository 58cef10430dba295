"""Completion scripts of bash, zsh and fish. They are static: no Python starts when TAB is pressed.

All three complete commands, the options of the command on the line, the words an option or an operand accepts, and file
names, those ending in `.gguf` for models.
"""

from __future__ import annotations

from specli.cli.options import options_of
from specli.cli.options.kinds import SPEC_TYPE_LIST
from specli.cli.options.option import Option
from specli.cli.tree import COMMANDS, FIRST_OPERANDS, OPERANDS, ROOT_OPTIONS

HEADER = "# Made by python -m specli.cli.options.reference; do not edit."


def listed(command: str) -> list[Option]:
    """Options of a command that can be used."""
    return [option for option in options_of(command) if option.is_listed]


def value_options() -> list[Option]:
    """Options with a value, of all commands, each once."""
    return list(dict.fromkeys(option for name in COMMANDS for option in listed(name) if option.kind.takes_value))


def root_words() -> str:
    """Commands and root options."""
    return " ".join((*COMMANDS, *(name for names, _ in ROOT_OPTIONS for name in names)))


def bash_script() -> str:
    """Completion of bash, 3.2 or newer."""
    commands = "\n".join(
        f"        {name}) words='{' '.join(s for o in listed(name) for s in o.spellings)} -h --help' ;;"
        for name in COMMANDS
    )
    return f"""{HEADER}
_specli_reply() {{
    local IFS=$'\\n'
    COMPREPLY=($1)
}}

_specli_files() {{
    compopt -o filenames 2>/dev/null
    if [ -n "$1" ]; then
        _specli_reply "$(compgen -f -X "!*$1" -- "$2"; compgen -d -- "$2")"
    else
        _specli_reply "$(compgen -f -- "$2")"
    fi
}}

_specli_list() {{
    local head=
    case $2 in *,*) head="${{2%,*}}," ;; esac
    compopt -o nospace 2>/dev/null
    _specli_reply "$(compgen -P "$head" -W "$1" -- "${{2##*,}}")"
}}

_specli() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}} words
    COMPREPLY=()
    if [ "$cur" = "=" ]; then
        cur=
    elif [ "$prev" = "=" ]; then
        prev=${{COMP_WORDS[COMP_CWORD-2]}}
    fi
    if [ "$COMP_CWORD" -eq 1 ]; then
        _specli_reply "$(compgen -W '{root_words()}' -- "$cur")"
        return
    fi
    case $prev in
{_bash_values()}
    esac
    case $command in
{commands}
        *) return ;;
    esac
    if [ "$COMP_CWORD" -eq 2 ]; then
        case $command/$cur in
            */-*) ;;
{_bash_operands()}
        esac
    fi
    case $cur in
        -*) _specli_reply "$(compgen -W "$words" -- "$cur")" ;;
        *) _specli_files '' "$cur" ;;
    esac
}}
complete -F _specli specli
"""


def _bash_operands() -> str:
    return "\n".join(
        f'            {name}/*) _specli_reply "$(compgen -W \'{" ".join(words)}\' -- "$cur")"; return ;;'
        for name, words in FIRST_OPERANDS.items()
    )


def _bash_values() -> str:
    lines = []
    for option in value_options():
        lines.append(f"        {'|'.join(option.spellings)})")
        words = " ".join(option.kind.values)
        if option.kind == SPEC_TYPE_LIST:
            lines.append(f"            _specli_list '{words}' \"$cur\"")
        elif option.kind.files is not None:
            lines.append(f"            _specli_files '{option.kind.files}' \"$cur\"")
        elif words:
            lines.append(f'            _specli_reply "$(compgen -W \'{words}\' -- "$cur")"')
        lines.append("            return ;;")
    return "\n".join(lines)


def zsh_script() -> str:
    """Completion of zsh; the file belongs in a directory of `fpath`."""
    commands = "\n".join(f"    {name})\n        options=(\n{_zsh_options(name)}\n        ) ;;" for name in COMMANDS)
    summaries = "\n".join(f"        {_zsh_quote(name, summary)}" for name, summary in COMMANDS.items())
    return f"""#compdef specli
{HEADER}
_specli() {{
    local -a options commands
    local previous=$words[CURRENT-1]
    commands=(
{summaries}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    if [[ $PREFIX == --*=* ]]; then
        previous=${{PREFIX%%=*}}
        compset -P '*='
    fi
    case $previous in
{_zsh_values()}
    esac
    case $words[2] in
{commands}
    esac
    if [[ $PREFIX == -* ]]; then
        _describe -o option options
{_zsh_operands()}
    else
        _files
    fi
}}

_specli "$@"
"""


def _zsh_operands() -> str:
    return "\n".join(
        f"    elif (( CURRENT == 3 )) && [[ $words[2] == {name} ]]; then\n        compadd -- {' '.join(words)}"
        for name, words in FIRST_OPERANDS.items()
    )


def _zsh_quote(name: str, text: str) -> str:
    body = f"{name}:{text}".replace("'", "'\\''")
    return f"'{body}'"


def _zsh_options(command: str) -> str:
    return "\n".join(
        f"            {_zsh_quote(spelling, option.help)}"
        for option in listed(command)
        for spelling in option.spellings
    )


def _zsh_values() -> str:
    lines = []
    for option in value_options():
        words = " ".join(option.kind.values)
        if option.kind == SPEC_TYPE_LIST:
            action = f"compset -P '*,'; compadd -q -S '' -- {words}"
        elif option.kind.files is not None:
            action = f"_files -g '*{option.kind.files}(-.)'" if option.kind.files else "_files"
        else:
            action = f"compadd -- {words}" if words else "_message value"
        lines.append(f"    {'|'.join(option.spellings)}) {action}; return ;;")
    return "\n".join(lines)


def fish_script() -> str:
    """Completion of fish."""
    lines = [HEADER, "complete -c specli -f"]
    types = "\\n".join(SPEC_TYPE_LIST.values)
    lines += ["function __specli_types", f"    printf '{types}\\n'", "end"]
    lines += ["function __specli_gguf", "    __fish_complete_suffix .gguf", "end"]
    for name, summary in COMMANDS.items():
        lines.append(f"complete -c specli -n __fish_use_subcommand -a {name} -d '{_fish_text(summary)}'")
    for names, text in ROOT_OPTIONS:
        lines.append(f"complete -c specli -n __fish_use_subcommand {_fish_names(names)} -d '{_fish_text(text)}'")
    for name in COMMANDS:
        condition = f"-n '__fish_seen_subcommand_from {name}'"
        words = FIRST_OPERANDS.get(name, {})
        for word, text in words.items():
            alone = f"-n '__fish_seen_subcommand_from {name}; and not __fish_seen_subcommand_from {word}'"
            lines.append(f"complete -c specli {alone} -a {word} -d '{_fish_text(text)}'")
        if name in OPERANDS:
            lines.append(f"complete -c specli -n '__fish_seen_subcommand_from {' '.join(words) or name}' -F")
        for option in listed(name):
            lines.append(
                f"complete -c specli {condition} {_fish_names(option.spellings)}{_fish_value(option)}"
                f" -d '{_fish_text(option.help)}'"
            )
    return "\n".join(lines) + "\n"


def _fish_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _fish_names(names: tuple[str, ...]) -> str:
    """`-s m` for one letter, `-o md` for several, `-l model` after two dashes."""
    flags = []
    for name in names:
        bare = name.lstrip("-")
        flags.append(f"-{'l' if name.startswith('--') else 's' if len(bare) == 1 else 'o'} {bare}")
    return " ".join(flags)


def _fish_value(option: Option) -> str:
    if not option.kind.takes_value:
        return ""
    if option.kind == SPEC_TYPE_LIST:
        return " -x -a '(__fish_complete_list , __specli_types)'"
    if option.kind.files is not None:
        return " -x -k -a '(__specli_gguf)'" if option.kind.files == ".gguf" else " -r -F"
    return f" -x -a '{' '.join(option.kind.values)}'" if option.kind.values else " -x"
