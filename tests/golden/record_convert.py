"""Records tests/golden/convert_layouts.json: SHA-256 of the files llama.cpp's converter makes of the fixtures.

    python -m tests.golden.record_convert LLAMA_CPP_DIRECTORY   # needs transformers; build b11434 was used

The fixtures' byte-level tokenizer is not one that upstream recognises; here and in the tests it counts as "gpt-2".
"""

import contextlib
import hashlib
import json
import logging
import os
import sys
import tempfile
from pathlib import Path

from tests.support.checkpoints import CASES  # before llama.cpp's packages, which have a `tests` too

ROOT = Path(__file__).parent.parent.parent
OUTTYPES = ("f32", "auto", "q8_0")
MTP_FLAGS = {"with": [], "only": ["--mtp"], "without": ["--no-mtp"]}


def run(arguments: list[str]) -> None:
    import convert_hf_to_gguf as upstream
    from conversion.base import TextModel

    original = TextModel.get_vocab_base_pre

    def recognised(self: TextModel, tokenizer: object) -> str:
        with contextlib.suppress(NotImplementedError):
            return original(self, tokenizer)
        return "gpt-2"

    TextModel.get_vocab_base_pre = recognised
    sys.argv = ["convert_hf_to_gguf.py", *arguments]
    upstream.main()


def main() -> None:
    llama_cpp = Path(sys.argv[1]).resolve()
    only = sys.argv[2:]
    sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    import convert_hf_to_gguf  # noqa: F401  # loaded once, before forking

    logging.disable(logging.CRITICAL)
    keep = Path(tempfile.gettempdir()) / "specli-layouts"
    keep.mkdir(exist_ok=True)
    found = {}
    for name, case in CASES.items():
        if only and name not in only:
            continue
        source = keep / "hf" / name
        case.write(source)
        arguments = [str(source), *MTP_FLAGS[case.mtp]]
        if case.target is not None:
            CASES[case.target].write(keep / "hf" / case.target)
            arguments += ["--target-model-dir", str(keep / "hf" / case.target)]
        for outtype in OUTTYPES:
            out = keep / f"{name}.{outtype}.gguf"
            out.unlink(missing_ok=True)
            child = os.fork()  # the converter keeps state in its classes
            if child == 0:
                try:
                    run([*arguments, "--outtype", outtype, "--outfile", str(out)])
                except (Exception, SystemExit) as error:
                    print(name, outtype, repr(error)[:200], file=sys.stderr)
                    os._exit(1)
                os._exit(0)
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
                continue
            found[f"{name}.{outtype}"] = hashlib.sha256(out.read_bytes()).hexdigest()
    place = ROOT / "tests" / "golden" / "convert_layouts.json"
    if only:
        found = {**json.loads(place.read_text())["sha256"], **found}
    text = {"made_by": "convert_hf_to_gguf.py of llama.cpp b11434, by tests/golden/record_convert.py", "sha256": found}
    place.write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
