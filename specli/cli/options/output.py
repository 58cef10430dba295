"""Options of output, statistics and messages."""

from functools import partial

from specli.cli.options.kinds import Kind, file_text, integer, number, on_off, path, read_int, text
from specli.cli.options.option import RUN, Option

output = partial(Option, panel="Output")
study = partial(Option, panel="Study", commands=("stats", "synth"))
stats = partial(Option, panel="Study", commands=("stats",))
log = partial(Option, panel="Messages", commands=(*RUN, "check", "convert"))

RECORDS = ("output.json", "output.stats_json")
"""Where the JSON object of a run goes."""

OPTIONS = (
    output(
        ("--json",), "one JSON object per prompt on stdout (schema specli.run/1)",
        field="output.json", commands=("generate", "stats", "synth", "check"),
    ),
    output(
        ("--stats-json",), "write the JSON object of the run to a file; with --prompts one line per prompt",
        field="output.stats_json", kind=path("FILE.json"), commands=("generate",),
    ),
    output(
        ("--stats-json",), "write the JSON object of the run to a file",
        field="output.stats_json", kind=path("FILE.json"), commands=("chat",),
    ),
    output(
        ("--trace",), "record every round in the JSON object",
        field="request.trace", commands=("generate", "chat"), needs=RECORDS,
    ),
    output(
        ("--logprobs",), "report log-probabilities of the N best tokens per generated token",
        field="request.logprobs", kind=integer(0), commands=("generate",), needs=RECORDS,
    ),
    output(
        ("--prompt-logprobs",), "report log-probabilities of the prompt's tokens",
        field="request.prompt_logprobs", commands=("generate",), needs=RECORDS,
    ),
    output(
        ("--verify-lossless",), "generate again without drafters and compare; exit status 1 if any token differs",
        field="verify_lossless", commands=("generate",),
    ),
    output(
        ("--text",), "text to be covered by the vocabulary of the drafter",
        field="check_text", kind=file_text(), commands=("check",),
    ),
    output(
        ("--csv",), "write the table to a file",
        field="output.csv", kind=path("FILE.csv"), commands=("stats", "synth"),
    ),
    output(
        ("--plot",), "write a picture, .png or .svg (needs matplotlib)",
        field="output.plot", kind=path("FILE"), commands=("stats", "synth"),
    ),
    output(
        ("--save",), "write the comparison to a file for specli stats show",
        field="output.save", kind=path("RUN.json"), commands=("stats",),
    ),
    output(
        ("--perf",), "statistics lines at the end",
        negative=("--no-perf",), field="output.perf", env="LLAMA_ARG_PERF", commands=("generate",),
    ),
    output(
        ("--perf",), "no effect here; generate has statistics lines at the end",
        negative=("--no-perf",), env="LLAMA_ARG_PERF", commands=("chat", "stats", "synth", "serve"), is_elsewhere=True,
        idle="only generate has statistics lines at the end; in a chat /stats shows them",
    ),
    output(
        ("--version",), "print the version",
        field="output.show", const="version", commands=(*RUN, "check", "convert"),
    ),
    output(
        ("--list-devices",), "print the devices; with -v also the kernels and why they were chosen",
        field="output.show", const="devices",
    ),
    output(
        ("-cl", "--cache-list"), "print the models in the download cache",
        field="output.show", const="cache",
    ),
    output(
        ("--completion-bash",), "print the completion script for bash",
        field="output.show", const="completion",
    ),
    study(
        ("--repeat",), "measured runs per prompt and drafter",
        field="study.repeat", kind=integer(1),
    ),
    study(
        ("--warmup-runs",), "runs before the measured ones",
        field="study.warmup", kind=integer(0),
    ),
    study(
        ("--n-prompts",), "prompts taken from the set, each category in turn; 0 = all",
        field="study.n_prompts", kind=integer(0),
    ),
    study(
        ("-cnv", "--conversation"), "give prompts to the model's chat template, as in chat",
        negative=("-no-cnv", "--no-conversation"), field="study.template", default_text="if the model has one",
    ),
    stats(
        ("--replay",), "what the drafters would have got on a text, or on records of generate --json (.jsonl)",
        field="study.replay", kind=path("FILE"),
    ),
    stats(
        ("--tune",), "search for the best draft settings and print them",
        field="study.tune",
    ),
    stats(
        ("--tune-seconds",), "time the search may take",
        field="study.tune_seconds", kind=number(above=0, finite=True, metavar="S"), needs=("study.tune",),
    ),
    study(
        ("--sweep",), "measure a range of draft lengths and of mean accepted lengths",
        field="study.sweep", commands=("synth",),
    ),
    log(
        ("-v", "--verbose", "--log-verbose"), "show all messages",
        field="log.verbosity", const=5,
    ),
    log(
        ("-lv", "--verbosity", "--log-verbosity"),
        "show messages up to this level: 1 error, 2 warning, 3 info, 4 trace, 5 debug",
        field="log.verbosity", kind=Kind("N", read_int), env="LLAMA_ARG_LOG_VERBOSITY",
    ),
    log(
        ("--log-disable",), "show no messages",
        field="log.verbosity", const=0,
    ),
    log(
        ("--log-file",), "copy messages to a file",
        field="log.file", kind=path(), env="LLAMA_ARG_LOG_FILE",
    ),
    log(
        ("--log-prefix",), "put time and level before messages",
        negative=("--no-log-prefix",), field="log.prefix", env="LLAMA_ARG_LOG_PREFIX",
    ),
    log(
        ("--log-timestamps",), "put the time into the prefix",
        negative=("--no-log-timestamps",), field="log.timestamps", env="LLAMA_ARG_LOG_TIMESTAMPS",
    ),
    log(
        ("--log-colors",), "colour messages",
        field="log.colors", kind=on_off(), env="LLAMA_ARG_LOG_COLORS",
    ),
    log(
        ("--log-jsonl",), "messages as JSON Lines on stdout", negative=("--no-log-jsonl",),
        env="LLAMA_ARG_LOG_JSONL", satisfied=("off",), refused="stdout carries data only; use --json or --stats-json",
    ),
    log(
        ("--log-prompts-dir",), "log prompts to a directory", kind=text("PATH"),
        refused="use --stats-json, which holds the prompt",
    ),
)  # fmt: skip
