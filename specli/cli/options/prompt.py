"""Options of prompt, conversation and chat template."""

from dataclasses import replace
from functools import partial

from specli.cli.options.kinds import JSON_OBJECT, Kind, choice, file_text, integer, on_off, path, text
from specli.cli.options.option import LOCAL, RUN, TEXT, Option
from specli.workers.config import read_workers

batch = partial(Option, panel="Many prompts", commands=("generate",))
prompt = partial(Option, panel="Prompt", commands=LOCAL)
chat = partial(Option, panel="Conversation", commands=("chat",))
template = partial(Option, panel="Chat template", commands=("chat", "stats", "synth", "serve"))
answer = partial(Option, panel="Chat template", commands=("chat", "serve"))
COMPLETION_ONLY = "it belongs to the interactive mode of llama-completion; use specli chat"
FRAMED = "the chat template frames the inputs of specli chat"
NO_TEMPLATE = "generate takes the prompt as it is; specli chat applies the chat template"
NOT_CHAT = tuple(command for command in LOCAL if command != "chat")


def read_budget(value: str) -> int:
    """Reads a reasoning budget; -1 and 0 are those there are."""
    budget: int = integer(-1).parse(value)
    if budget > 0:
        raise ValueError("not available in specli: thoughts cannot be cut short; 0 asks the model not to think")
    return budget


BUDGET = Kind("-1|0", read_budget)
WORKERS = Kind("N|ray[://HOST:PORT][,N]", read_workers)

OWN = (
    prompt(
        ("-p", "--prompt"), "the prompt; in chat the first message",
        field="prompt.text", kind=text("PROMPT"),
    ),
    prompt(
        ("-f", "--file"), "file with the prompt; one newline at its end is dropped",
        field="prompt.text", kind=file_text(strip_newline=True),
    ),
    prompt(
        ("-bf", "--binary-file"), "file with the prompt, taken as it is",
        field="prompt.text", kind=file_text(),
    ),
    prompt(
        ("--prompts",), "JSON Lines file of prompts: strings, or objects with prompt and optionally id",
        field="prompt.file", kind=path("FILE.jsonl", ".jsonl"), commands=("generate", "stats", "synth"),
    ),
    batch(
        ("--resume",), "go on with the results that a run left in the file of --stats-json",
        field="batch.resume",
    ),
    batch(
        ("--unordered",), "results stay in the order in which they came",
        field="batch.unordered", needs=("output.stats_json", "batch.workers", "batch.n_parallel"),
    ),
    batch(
        ("-np", "--parallel"), "prompts that are answered at once in one engine; they share --ctx-size",
        field="batch.n_parallel", kind=integer(1, 256), env="LLAMA_ARG_N_PARALLEL", needs=("prompt.file",),
    ),
    batch(
        ("-kvu", "--kv-unified"), "each of the prompts of --parallel may use all of --ctx-size",
        negative=("-no-kvu", "--no-kv-unified"), field="batch.is_unified", env="LLAMA_ARG_KV_UNIFIED",
        needs=("batch.n_parallel",),
    ),
    batch(
        ("--workers",), "processes that answer prompts side by side, each with models of its own and a share of "
        "--threads; ray or ray://HOST:PORT: actors of a Ray cluster, as many as have room, or N behind a comma",
        field="batch.workers", kind=WORKERS, default_text="1", commands=("generate", "stats"),
    ),
    batch(
        ("--retries",), "how often a prompt is tried again after its worker died",
        field="batch.retries", kind=integer(0, 100), needs=("batch.workers",), commands=("generate", "stats"),
    ),
    batch(
        ("--seed-per-prompt",), "each prompt has a seed of its own, made of --seed and its place in the file",
        field="prompt.seed_per_prompt", needs=("prompt.file",),
    ),
    prompt(
        ("-e", "--escape"), "process escapes (\\n \\t \\xHH …) in prompt, stop strings and DRY breakers",
        negative=("--no-escape",), field="prompt.escape", commands=RUN,
    ),
    prompt(
        ("-r", "--reverse-prompt"), "stop string; may be repeated",
        field="request.stop", kind=text("TEXT", append=True), commands=RUN,
    ),
    prompt(
        ("-sp", "--special"), "print control tokens",
        field="request.special", commands=RUN,
    ),
    prompt(
        ("--verbose-prompt",), "list the prompt's tokens on stderr",
        field="prompt.verbose", commands=TEXT,
    ),
    prompt(
        ("--display-prompt",), "print the prompt before the generated text",
        negative=("--no-display-prompt",), field="prompt.display", commands=("generate",),
    ),
    prompt(
        ("-cnv", "--conversation"), "conversation mode",
        negative=("-no-cnv", "--no-conversation"), commands=("generate",), satisfied=("off",), is_elsewhere=True,
        refused=NO_TEMPLATE,
    ),
    prompt(("-i", "--interactive"), "interactive mode", commands=NOT_CHAT, refused=COMPLETION_ONLY),
    prompt(("-if", "--interactive-first"), "interactive mode", commands=NOT_CHAT, refused=COMPLETION_ONLY),
    prompt(("--in-prefix",), "text before each input", kind=text(), refused=FRAMED),
    prompt(("--in-suffix",), "text after each input", kind=text(), refused=FRAMED),
    prompt(("--in-prefix-bos",), "BOS before each input", refused=FRAMED),
    prompt(
        ("-ptc", "--print-token-count"), "count tokens now and then", kind=integer(), satisfied=("-1",),
        idle="the statistics count the tokens at the end",
    ),
    prompt(
        ("--prompt-cache",), "file of the prompt's state", kind=path(), refused="states are kept within a chat only",
    ),
    prompt(("--prompt-cache-all",), "save the generation too", refused="states are kept within a chat only"),
    prompt(("--prompt-cache-ro",), "do not update the file", refused="states are kept within a chat only"),
    chat(
        ("-sys", "--system-prompt"), "system prompt",
        field="chat.system", kind=text("PROMPT"),
    ),
    chat(
        ("-sysf", "--system-prompt-file"), "file with the system prompt",
        field="chat.system", kind=file_text(strip_newline=True),
    ),
    chat(
        ("-st", "--single-turn"), "leave after one answer",
        field="chat.single_turn",
    ),
    chat(
        ("-mli", "--multiline-input"), "messages of several lines; `\\` or `/` at the end of a line sends",
        field="chat.multiline",
    ),
    chat(
        ("--simple-io",), "no line editing, no colour",
        field="chat.simple_io",
    ),
    chat(
        ("-co", "--color"), "mark accepted draft tokens, input and thoughts by colour",
        field="chat.color", kind=on_off("error: unknown value for --color: '{}'"),
    ),
    chat(
        ("-o", "--output", "--output-file"), "transcript of the conversation",
        field="chat.transcript", kind=path(),
    ),
    chat(
        ("--show-timings",), "a timing line after each answer",
        negative=("--no-show-timings",), field="output.timings", env="LLAMA_ARG_SHOW_TIMINGS",
    ),
    chat(
        ("--server-base",), "URL of a running server", kind=text("URL"), refused="chat runs the model itself",
    ),
    template(
        ("--chat-template",), "Jinja template or the name of a built-in one",
        field="chat.template", kind=text("TEMPLATE"), env="LLAMA_ARG_CHAT_TEMPLATE",
        default_text="from the model",
    ),
    template(
        ("--chat-template-file",), "file with the template",
        field="chat.template", kind=file_text(), env="LLAMA_ARG_CHAT_TEMPLATE_FILE",
    ),
    template(
        ("--chat-template-kwargs",), "template variables, a JSON object",
        field="chat.variables", kind=JSON_OBJECT, env="LLAMA_ARG_CHAT_TEMPLATE_KWARGS",
    ),
    template(
        ("--jinja",), "render templates with Jinja",
        negative=("--no-jinja",), env="LLAMA_ARG_JINJA", satisfied=("on",),
        idle="templates are always rendered with Jinja",
    ),
    template(
        ("-rea", "--reasoning"),
        "whether the template asks the model to think; a drafter serves best the mode it was trained in",
        field="chat.reasoning", kind=on_off(), env="LLAMA_ARG_REASONING",
    ),
    template(
        ("--reasoning-effort",), "reasoning effort given to the template",
        field="chat.reasoning_effort", kind=text("LEVEL"), env="LLAMA_ARG_REASONING_EFFORT",
    ),
    answer(
        ("--reasoning-format",), "none leaves thoughts in the answer, the others show them apart",
        field="chat.reasoning_format", env="LLAMA_ARG_THINK",
        kind=choice("none", "auto", "deepseek", "deepseek-legacy", error="Unknown reasoning format: {}"),
    ),
    Option(
        ("--reasoning-preserve",), "give earlier thoughts back to the template",
        panel="Chat template", commands=("chat",), negative=("--no-reasoning-preserve",),
        field="chat.reasoning_preserve", env="LLAMA_ARG_REASONING_PRESERVE",
    ),
    answer(
        ("--reasoning-budget",), "0 asks the model not to think, as --reasoning off; -1 lets it think as it likes",
        field="chat.reasoning_budget", kind=BUDGET, env="LLAMA_ARG_THINK_BUDGET",
    ),
    answer(
        ("--reasoning-budget-message",), "text before a thought is cut",
        kind=text("MESSAGE"), env="LLAMA_ARG_THINK_BUDGET_MESSAGE", idle="thoughts are not cut short",
    ),
    answer(
        ("--skip-chat-parsing",), "leave the model's text as it is, thoughts and tool calls included",
        negative=("--no-skip-chat-parsing",), field="chat.skip_parsing", env="LLAMA_ARG_SKIP_CHAT_PARSING",
    ),
)  # fmt: skip


def own_row(name: str) -> Option:
    """The row of an option as the commands have it in which it has an effect."""
    return next(row for row in OWN if name in row.names)


def left_alone(name: str, command: str, why: str, *satisfied: str) -> Option:
    """The row of an option of other commands for one that takes it, too, and has no use for it."""
    return replace(
        own_row(name), commands=(command,), field=None, refused=None, idle=why, satisfied=satisfied, is_elsewhere=True
    )


def turned_away(name: str, command: str, why: str, *satisfied: str) -> Option:
    """The row of an option of other commands for one that refuses it."""
    return replace(
        own_row(name), commands=(command,), field=None, refused=why, idle=None, satisfied=satisfied, is_elsewhere=True
    )


OPTIONS = (
    *OWN,
    *(
        left_alone(name, "generate", NO_TEMPLATE)
        for name in (
            "--system-prompt", "--system-prompt-file", "--chat-template", "--chat-template-file",
            "--chat-template-kwargs", "--jinja", "--reasoning", "--reasoning-effort", "--reasoning-format",
            "--reasoning-preserve", "--reasoning-budget", "--reasoning-budget-message", "--skip-chat-parsing",
        )
    ),
    left_alone("--single-turn", "generate", "generate ends with its text", "on"),
    left_alone("--simple-io", "generate", "generate reads no input", "on"),
    left_alone("--multiline-input", "generate", "generate reads no input"),
    left_alone("--color", "generate", "generate writes plain text", "off", "auto"),
    left_alone("--show-timings", "generate", "--no-perf leaves out the statistics lines", "on"),
    turned_away("--output", "generate", "a transcript is what specli chat writes; redirect stdout"),
    turned_away("--server-base", "generate", "generate runs the model itself"),
    left_alone("--display-prompt", "chat", "a chat shows the first message on a terminal, and only there"),
    left_alone("--reasoning-preserve", "serve", "the template gets the thoughts that clients send", "on"),
    left_alone("--interactive", "chat", "a chat is interactive", "on"),
    left_alone("--interactive-first", "chat", "a chat is interactive", "on"),
    turned_away("--conversation", "chat", "a chat is a conversation; specli generate takes the prompt as it is", "on"),
)  # fmt: skip
