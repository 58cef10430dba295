"""The commands and what each does in one sentence; help, man pages and completion read it."""

COMMANDS = {
    "generate": "Continue a prompt: text to stdout, statistics to stderr",
    "chat": "Talk to a model with its chat template",
    "serve": "Serve many clients over HTTP, with llama.cpp's and OpenAI's routes",
    "stats": "Compare drafters on a set of prompts",
    "synth": "Measure with synthetic acceptance (no valid model output)",
    "check": "Tell whether a drafter fits a model, before weights are read",
    "convert": "Convert a Hugging Face checkpoint to GGUF",
}

SUMMARY = "Speculative decoding of GGUF models, with llama.cpp's options, statistics and files"

OPERANDS = {"convert": ("SRC", 1), "stats": ("[show RUN.json…]", 64)}
"""Commands with arguments that are not options: how they are written, and how many at most."""

FIRST_OPERANDS = {"stats": {"show": "show saved comparisons"}}
"""Words that may be the first operand of a command, and what they do; files follow them."""

ROOT_OPTIONS = (
    (("--version",), "print the version"),
    (("--list-devices",), "print the devices"),
    (("--list-models",), "print the models that ship with specli"),
    (("-v", "--verbose"), "with --list-devices: also the kernels and why they were chosen"),
    (("-h", "--usage", "--help"), "show help"),
)
