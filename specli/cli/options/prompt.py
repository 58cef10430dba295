"""Options of prompt, conversation and chat template."""

from functools import partial

from specli.cli.options.kinds import JSON_OBJECT, choice, file_text, integer, on_off, path, text
from specli.cli.options.option import TEXT, Option

prompt = partial(Option, panel="Prompt")
chat = partial(Option, panel="Conversation", commands=("chat",))
template = partial(Option, panel="Chat template", commands=("chat", "stats", "synth"))
answer = partial(Option, panel="Chat template", commands=("chat",))
COMPLETION_ONLY = "it belongs to the interactive mode of llama-completion; use specli chat"


OPTIONS = (
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
    prompt(
        ("-e", "--escape"), "process escapes (\\n \\t \\xHH …) in prompt, stop strings and DRY breakers",
        negative=("--no-escape",), field="prompt.escape",
    ),
    prompt(
        ("-r", "--reverse-prompt"), "stop string; may be repeated",
        field="request.stop", kind=text("TEXT", append=True),
    ),
    prompt(
        ("-sp", "--special"), "print control tokens",
        field="request.special",
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
        negative=("-no-cnv", "--no-conversation"), commands=("generate",), satisfied=("off",),
        refused="generate takes the prompt as it is; specli chat applies the chat template",
    ),
    prompt(("-i", "--interactive"), "interactive mode", refused=COMPLETION_ONLY),
    prompt(("-if", "--interactive-first"), "interactive mode", refused=COMPLETION_ONLY),
    prompt(("--in-prefix",), "text before each input", kind=text(), refused=COMPLETION_ONLY),
    prompt(("--in-suffix",), "text after each input", kind=text(), refused=COMPLETION_ONLY),
    prompt(("--in-prefix-bos",), "BOS before each input", refused=COMPLETION_ONLY),
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
        refused="templates are always rendered with Jinja",
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
    answer(
        ("--reasoning-preserve",), "give earlier thoughts back to the template",
        negative=("--no-reasoning-preserve",), field="chat.reasoning_preserve", env="LLAMA_ARG_REASONING_PRESERVE",
    ),
    answer(
        ("--reasoning-budget",), "most tokens of a thought",
        kind=integer(-1), env="LLAMA_ARG_THINK_BUDGET", satisfied=("-1",),
        refused="thoughts cannot be cut short; --reasoning off asks the model not to think",
    ),
    answer(
        ("--reasoning-budget-message",), "text before a thought is cut",
        kind=text("MESSAGE"), env="LLAMA_ARG_THINK_BUDGET_MESSAGE", refused="thoughts cannot be cut short",
    ),
    answer(
        ("--skip-chat-parsing",), "show the model's text as it is, thoughts included",
        negative=("--no-skip-chat-parsing",), field="chat.skip_parsing", env="LLAMA_ARG_SKIP_CHAT_PARSING",
    ),
)  # fmt: skip
