"""Options of `specli convert`."""

from functools import partial

from specli.cli.options.kinds import LAYERS, MTP_MODE, SIZE, choice, integer, number, path, text
from specli.cli.options.option import Option
from specli.convert.records import OUTTYPES

convert = partial(Option, panel="Conversion", commands=("convert",))
override = partial(Option, panel="Overrides", commands=("convert",))

OPTIONS = (
    convert(
        ("--outfile",), "file, directory or template with {ftype}; by default a name made from the metadata",
        field="convert.outfile", kind=path("PATH"),
    ),
    convert(
        ("--outtype",), "type of the weight matrices; auto = as in the checkpoint",
        field="convert.outtype", kind=choice(*OUTTYPES, metavar="TYPE"),
    ),
    convert(
        ("--target-model-dir",), "target of a drafter: directory, GGUF file or hub id",
        field="convert.target", kind=text("DIR"),
    ),
    convert(
        ("--mtp",), "write the MTP blocks only",
        field="convert.mtp", kind=MTP_MODE, const="only",
    ),
    convert(
        ("--no-mtp", "--no-nextn"), "leave the MTP blocks out",
        field="convert.mtp", kind=MTP_MODE, const="without",
    ),
    convert(
        ("--vocab-only",), "write metadata and tokenizer only",
        field="convert.vocab_only",
    ),
    convert(
        ("--model-name",), "name in the metadata",
        field="convert.model_name", kind=text("NAME"),
    ),
    convert(
        ("--metadata",), "JSON file of metadata keys",
        field="convert.metadata", kind=path("FILE"),
    ),
    convert(
        ("--remote",), "SRC is a hub id even if such a directory exists",
        field="convert.remote",
    ),
    convert(
        ("--offline",), "use cached downloads only",
        field="convert.offline", env="LLAMA_ARG_OFFLINE",
    ),
    convert(
        ("-hft", "--hf-token"), "Hugging Face access token",
        field="convert.hf_token", kind=text("TOKEN"), env="HF_TOKEN",
    ),
    convert(
        ("--split-max-tensors",), "most tensors per shard; 0 = one file",
        field="convert.split_max_tensors", kind=integer(0),
    ),
    convert(
        ("--split-max-size",), "most tensor data per shard; 0 = one file",
        field="convert.split_max_bytes", kind=SIZE,
    ),
    convert(
        ("--no-tensor-first-split",), "first shard without tensors",
        field="convert.no_tensor_first_split",
    ),
    convert(
        ("--dry-run",), "list every tensor and write nothing",
        field="convert.dry_run",
    ),
    convert(
        ("--json",), "report as a JSON object on stdout",
        field="output.json",
    ),
    convert(
        ("--check",), "target GGUF to pair with the drafter, after conversion or of a GGUF given as SRC",
        field="convert.check", kind=path("FILE.gguf", ".gguf"),
    ),
    override(
        ("--target-layers",), "layer boundaries a drafter reads: 0 = embeddings, i = input of layer i",
        field="convert.target_layers", kind=LAYERS,
    ),
    override(
        ("--rope-theta",), "rope base of a drafter",
        field="convert.rope_theta", kind=number(above=0, finite=True),
    ),
    override(
        ("--borrow-embeddings",), "leave a drafter's own embeddings out; the target's are read",
        field="convert.borrow_embeddings",
    ),
    override(
        ("--norm-before-residual",), "EAGLE-3 switch, where the checkpoint lacks it",
        negative=("--no-norm-before-residual",), field="convert.norm_before_residual",
        default_text="from the checkpoint",
    ),
    override(
        ("--sample-from-anchor",), "whether the first position of a draft block predicts, if the checkpoint lacks it",
        negative=("--no-sample-from-anchor",), field="convert.sample_from_anchor",
        default_text="from the checkpoint",
    ),
    convert(("--use-temp-file",), "temporary file", refused="tensors are streamed; no temporary file is needed"),
    convert(("--no-lazy",), "read all at once", refused="tensors are always streamed"),
    convert(("--bigendian",), "big-endian file", refused="files are little-endian"),
    convert(("--dspark",), "DSpark part of DeepSeek-V4", refused="DeepSeek-V4 is not a known architecture"),
    convert(("--mmproj",), "multimodal projector", refused="specli runs text models"),
    convert(("--mistral-format",), "Mistral's own layout", refused="convert the Hugging Face layout"),
    convert(
        ("--disable-mistral-community-chat-template",), "no community template",
        refused="convert the Hugging Face layout",
    ),
    convert(("--sentence-transformers-dense-modules",), "dense modules", refused="specli runs text models"),
    convert(("--fuse-gate-up-exps",), "fuse tensors", refused="tensors are written as the checkpoint has them"),
    convert(("--fuse-qkv",), "fuse tensors", refused="tensors are written as the checkpoint has them"),
    convert(("--fp8-as-q8",), "FP8 as Q8_0", refused="use --outtype q8_0"),
    convert(("--print-supported-models",), "list of models", refused="see the README"),
)  # fmt: skip
