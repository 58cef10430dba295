"""Options that choose model files."""

from functools import partial

from specli.cli.options.kinds import HF_REPO, METADATA, MODEL_FILE, text
from specli.cli.options.option import RUN, Option

COMMANDS = (*RUN, "check")
target = partial(Option, panel="Target model", commands=COMMANDS)
drafter = partial(Option, panel="Draft model", commands=COMMANDS)

OPTIONS = (
    target(
        ("-m", "--model"), "GGUF file of the target; demo is the model that ships with specli",
        field="source.model", kind=MODEL_FILE, env="LLAMA_ARG_MODEL",
    ),
    target(
        ("-hf", "-hfr", "--hf-repo"), "Hugging Face repository of the target; without quant Q4_K_M, then Q8_0",
        field="source.hf_repo", kind=HF_REPO, env="LLAMA_ARG_HF_REPO",
    ),
    target(
        ("-hff", "--hf-file"), "file in the --hf-repo repository, instead of the quant",
        field="source.hf_file", kind=text("FILE"), env="LLAMA_ARG_HF_FILE",
    ),
    target(
        ("-hft", "--hf-token"), "Hugging Face access token",
        field="source.hf_token", kind=text("TOKEN"), env="HF_TOKEN",
    ),
    target(
        ("--offline",), "use cached downloads only",
        field="source.offline", env="LLAMA_ARG_OFFLINE",
    ),
    target(
        ("--override-kv",), "metadata in place of what the files have; types int, float, bool, str",
        field="target.metadata", kind=METADATA,
    ),
    target(
        ("-mu", "--model-url"), "download URL of the target",
        kind=text("URL"), env="LLAMA_ARG_MODEL_URL", refused="download the file and give it with -m",
    ),
    target(
        ("-dr", "--docker-repo"), "Docker repository of the target",
        kind=text("REPO"), env="LLAMA_ARG_DOCKER_REPO", refused="Docker registries are not read; use -hf or -m",
    ),
    target(
        ("--list-models",), "print the models that ship with specli",
        field="output.show", const="models",
    ),
    drafter(
        ("-md", "--spec-draft-model", "--model-draft"), "GGUF file of the drafter; with -hfd a file in that repository",
        field="source.draft_model", kind=MODEL_FILE, env="LLAMA_ARG_SPEC_DRAFT_MODEL",
    ),
    drafter(
        ("-hfd", "-hfrd", "--spec-draft-hf", "--hf-repo-draft"), "Hugging Face repository of the drafter",
        field="source.draft_hf_repo", kind=HF_REPO, env="LLAMA_ARG_SPEC_DRAFT_HF_REPO",
    ),
)  # fmt: skip
