"""Every option of llama-cli (C), llama-completion (G) and llama-speculative-simple (P), build b11434.

A row: programs, environment variable, spellings, after `/` the negative ones, after `=` values it takes (`@` stands for
a file). Read from `common/arg.cpp`; `test_upstream_options.py` holds it against the programs' own help.
"""

from dataclasses import dataclass

TABLE = r"""
CGP - --version
CGP - -cl --cache-list
CGP - --completion-bash
C   - --server-base = http://localhost:8080
CG  - --verbose-prompt
CG  - --display-prompt / --no-display-prompt
CGP - -co --color = on off auto 1 0 true false enabled disabled -1
CGP LLAMA_ARG_THREADS -t --threads = -1 0 2
CGP - -tb --threads-batch = -1 2
CGP - -C --cpu-mask = 3 0x1 ff
CGP - -Cr --cpu-range = 0-1 0- -1
CGP - --cpu-strict = 0 1
CGP - --prio = -1 0 1 2 3
CGP - --poll = 0 50 100
CGP - -Cb --cpu-mask-batch = 3
CGP - -Crb --cpu-range-batch = 0-1
CGP - --cpu-strict-batch = 0 1
CGP - --prio-batch = 0 1 2 3
CGP - --poll-batch = 0 1
CGP LLAMA_ARG_CTX_SIZE -c --ctx-size = 0 4096
CGP LLAMA_ARG_N_PREDICT -n --predict --n-predict = -1 -2 0 5
CGP LLAMA_ARG_BATCH -b --batch-size = 2048 64
CGP LLAMA_ARG_UBATCH -ub --ubatch-size = 512 64
CGP - --keep = 0 -1 5
CGP LLAMA_ARG_SWA_FULL --swa-full
C   LLAMA_ARG_CTX_CHECKPOINTS -ctxcp --ctx-checkpoints --swa-checkpoints = 0 32
C   LLAMA_ARG_CACHE_RAM -cram --cache-ram = 0 -1 2048
CG  LLAMA_ARG_CONTEXT_SHIFT --context-shift / --no-context-shift
CGP LLAMA_ARG_FLASH_ATTN -fa --flash-attn = on off auto 1 0 -1
CGP - -p --prompt = text
CG  - -sys --system-prompt = text
CGP LLAMA_ARG_PERF --perf / --no-perf
C   LLAMA_ARG_SHOW_TIMINGS --show-timings / --no-show-timings
CGP - -f --file = @
CG  - -sysf --system-prompt-file = @
CGP - -bf --binary-file = @
CGP - -e --escape / --no-escape
G   - -ptc --print-token-count = -1 10
G   - --prompt-cache = file
G   - --prompt-cache-all
G   - --prompt-cache-ro
CG  - -r --reverse-prompt = text
CG  - -sp --special
G   - -cnv --conversation / -no-cnv --no-conversation
CG  - -st --single-turn
G   - -i --interactive
G   - -if --interactive-first
CG  - -mli --multiline-input
G   - --in-prefix-bos
G   - --in-prefix = text
G   - --in-suffix = text
CG  - --warmup / --no-warmup
CGP - --samplers = top_k;temp penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature nucleus;Top-K \
    top_k;infill foo foo;top_p
CGP - -s --seed = -1 7 4294967295
CGP - --sampler-seq --sampling-seq = edskypmxt kt kz i a
CGP - --ignore-eos
CGP LLAMA_ARG_TEMPERATURE --temp --temperature = 0 0.8 -1 2
CGP LLAMA_ARG_TOP_K --top-k = 40 0 -1
CGP LLAMA_ARG_TOP_P --top-p = 0 0.5 1 2.5 -1 1e-3
CGP LLAMA_ARG_MIN_P --min-p = 0 0.5 1 2.5 -1 1e-3
CGP - --top-nsigma --top-n-sigma = 0 0.5 1 2.5 -1 1e-3
CGP - --xtc-probability = 0 0.5 1 2.5 -1 1e-3
CGP - --xtc-threshold = 0 0.5 1 2.5 -1 1e-3
CGP - --typical --typical-p = 0 0.5 1 2.5 -1 1e-3
CGP - --repeat-last-n = 0 64
CGP LLAMA_ARG_REPEAT_PENALTY --repeat-penalty = 1 1.1
CGP LLAMA_ARG_PRESENCE_PENALTY --presence-penalty = 0 0.5 -1
CGP LLAMA_ARG_FREQUENCY_PENALTY --frequency-penalty = 0 0.5 -1
CGP - --dry-multiplier = 0 0.5 1 2.5 -1 1e-3
CGP - --dry-base = 0.5 1.75 0 -1 2
CGP - --dry-allowed-length = 0 8
CGP - --dry-penalty-last-n = 0 64
CGP - --dry-sequence-breaker = none : text
CGP - --adaptive-target = 0 0.5 1 2.5 -1 1e-3
CGP - --adaptive-decay = 0 0.5 1 2.5 -1 1e-3
CGP - --dynatemp-range = 0 0.5 1 2.5 -1 1e-3
CGP - --dynatemp-exp = 0 0.5 1 2.5 -1 1e-3
CGP - --mirostat = 0 1 2
CGP - --mirostat-lr = 0 0.5 1 2.5 -1 1e-3
CGP - --mirostat-ent = 0 0.5 1 2.5 -1 1e-3
CGP - -l --logit-bias = 15+1 15-1.5 15+inf 15-inf 999999999+1 15+-2 15--2 -1+1 15+1e3
CGP - --grammar = root::="a"
CGP - --grammar-file = @
CGP - -j --json-schema = {}
CGP - -jf --json-schema-file = @
CGP LLAMA_ARG_BACKEND_SAMPLING -bs --backend-sampling
CGP LLAMA_ARG_ROPE_SCALING_TYPE --rope-scaling = none linear yarn
CGP LLAMA_ARG_ROPE_SCALE --rope-scale = 1 4
CGP LLAMA_ARG_ROPE_FREQ_BASE --rope-freq-base = 0 10000
CGP LLAMA_ARG_ROPE_FREQ_SCALE --rope-freq-scale = 0 0.5
CGP LLAMA_ARG_YARN_ORIG_CTX --yarn-orig-ctx = 0 4096
CGP LLAMA_ARG_YARN_EXT_FACTOR --yarn-ext-factor = 0 0.5 1 2.5 -1 1e-3
CGP LLAMA_ARG_YARN_ATTN_FACTOR --yarn-attn-factor = 0 0.5 1 2.5 -1 1e-3
CGP LLAMA_ARG_YARN_BETA_SLOW --yarn-beta-slow = 0 0.5 1 2.5 -1 1e-3
CGP LLAMA_ARG_YARN_BETA_FAST --yarn-beta-fast = 0 0.5 1 2.5 -1 1e-3
G   LLAMA_ARG_GRP_ATTN_N -gan --grp-attn-n = 1 4
G   LLAMA_ARG_GRP_ATTN_W -gaw --grp-attn-w = 0 8
CGP LLAMA_ARG_KV_OFFLOAD -kvo --kv-offload / -nkvo --no-kv-offload
CGP LLAMA_ARG_REPACK --repack / -nr --no-repack
CGP LLAMA_ARG_NO_HOST --no-host
CGP LLAMA_ARG_CACHE_TYPE_K -ctk --cache-type-k = f32 f16 bf16 q8_0 q4_0 q4_1 iq4_nl q5_0 q5_1
CGP LLAMA_ARG_CACHE_TYPE_V -ctv --cache-type-v = f32 f16 bf16 q8_0 q4_0 q4_1 iq4_nl q5_0 q5_1
CGP LLAMA_ARG_DEFRAG_THOLD -dt --defrag-thold = 0.1
CGP LLAMA_ARG_N_PARALLEL -np --parallel = 1 4
C   LLAMA_ARG_MMPROJ -mm --mmproj = m.gguf
C   LLAMA_ARG_MMPROJ_URL -mmu --mmproj-url = http://localhost/m
C   LLAMA_ARG_MMPROJ_AUTO --mmproj-auto / --no-mmproj --no-mmproj-auto
C   LLAMA_ARG_MMPROJ_OFFLOAD --mmproj-offload / --no-mmproj-offload
C   - --image --audio --video = a.png
C   LLAMA_ARG_IMAGE_MIN_TOKENS --image-min-tokens = 0 8
C   LLAMA_ARG_IMAGE_MAX_TOKENS --image-max-tokens = 0 8
C   LLAMA_ARG_VIDEO_FPS --video-fps = 2
C   LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL --video-timestamp-interval = 0 8
C   LLAMA_ARG_VIDEO_FFMPEG_DIR --video-ffmpeg-dir = bin
CGP LLAMA_ARG_RPC --rpc = localhost:1
CGP LLAMA_ARG_LOAD_MODE -lm --load-mode = auto none mmap mlock mmap+mlock dio
CGP LLAMA_ARG_LAZY_MODE -lzm --lazy-mode = on auto off
CGP LLAMA_ARG_NUMA --numa = distribute isolate numactl
CGP LLAMA_ARG_DEVICE -dev --device = none
CGP - --list-devices
CGP LLAMA_ARG_OVERRIDE_TENSOR -ot --override-tensor = exps=CPU a=CPU,b=CPU
CGP LLAMA_ARG_CPU_MOE -cmoe --cpu-moe
CGP LLAMA_ARG_N_CPU_MOE -ncmoe --n-cpu-moe = 0 8
CGP LLAMA_ARG_N_CPU_FFN -ncffn --n-cpu-ffn = 0 8
CGP LLAMA_ARG_N_GPU_LAYERS -ngl --gpu-layers --n-gpu-layers = auto all 0 99 -1 -2
CGP LLAMA_ARG_SPLIT_MODE -sm --split-mode = none layer row tensor
CGP LLAMA_ARG_TENSOR_SPLIT -ts --tensor-split = 1 3,1 3/1
CGP LLAMA_ARG_MAIN_GPU -mg --main-gpu = 0 1
CGP LLAMA_ARG_FIT -fit --fit = on off 1 0 true
CGP LLAMA_ARG_FIT_TARGET -fitt --fit-target = 1024 512,512
CGP LLAMA_ARG_FIT_CTX -fitc --fit-ctx = 0 8
CGP - --check-tensors
CGP - --override-kv = general.name=str:a tokenizer.ggml.add_bos_token=bool:false
CGP - --op-offload / --no-op-offload
CGP - --lora = a.gguf
CGP - --lora-scaled = a.gguf:0.5
CGP - --control-vector = a.gguf
CGP - --control-vector-scaled = a.gguf:0.5
CGP - --control-vector-layer-range = 1,2
CGP LLAMA_ARG_MODEL -m --model = m.gguf
CGP LLAMA_ARG_MODEL_URL -mu --model-url = http://localhost/m
CGP LLAMA_ARG_DOCKER_REPO -dr --docker-repo = gemma3
CGP LLAMA_ARG_HF_REPO -hf -hfr --hf-repo = user/model user/model:Q8_0
CGP LLAMA_ARG_HF_FILE -hff --hf-file = m.gguf
CGP HF_TOKEN -hft --hf-token = hf_x
C   - -o --output --output-file = out.txt
C   LLAMA_ARG_CHAT_TEMPLATE_KWARGS --chat-template-kwargs = {} {"a":1}
CG  LLAMA_ARG_JINJA --jinja / --no-jinja
CG  LLAMA_ARG_THINK --reasoning-format = none auto deepseek deepseek-legacy
CG  LLAMA_ARG_REASONING -rea --reasoning = on off auto
CG  LLAMA_ARG_REASONING_EFFORT --reasoning-effort = default low high
CG  LLAMA_ARG_THINK_BUDGET --reasoning-budget = -1 0
CG  LLAMA_ARG_THINK_BUDGET_MESSAGE --reasoning-budget-message = stop
CG  LLAMA_ARG_REASONING_PRESERVE --reasoning-preserve / --no-reasoning-preserve
CG  LLAMA_ARG_CHAT_TEMPLATE --chat-template = chatml llama3
CG  LLAMA_ARG_CHAT_TEMPLATE_FILE --chat-template-file = @
CG  LLAMA_ARG_SKIP_CHAT_PARSING --skip-chat-parsing / --no-skip-chat-parsing
CG  - --simple-io
CGP - --log-disable
CGP LLAMA_ARG_LOG_FILE --log-file = log.txt
CGP LLAMA_ARG_LOG_JSONL --log-jsonl / --no-log-jsonl
C   - --log-prompts-dir = dir
CGP LLAMA_ARG_LOG_COLORS --log-colors = on off auto
CGP - -v --verbose --log-verbose
CGP LLAMA_ARG_OFFLINE --offline
CGP LLAMA_ARG_LOG_VERBOSITY -lv --verbosity --log-verbosity = 0 3 5
CGP LLAMA_ARG_LOG_PREFIX --log-prefix / --no-log-prefix
CGP LLAMA_ARG_LOG_TIMESTAMPS --log-timestamps / --no-log-timestamps
CP  LLAMA_ARG_SPEC_DRAFT_HF_REPO --spec-draft-hf -hfd -hfrd --hf-repo-draft = user/model
CP  - --spec-draft-threads -td --threads-draft = -1 2
CP  - --spec-draft-threads-batch -tbd --threads-batch-draft = -1 2
CP  - --spec-draft-cpu-mask -Cd --cpu-mask-draft = 3
CP  - --spec-draft-cpu-range -Crd --cpu-range-draft = 0-1
CP  - --spec-draft-cpu-strict --cpu-strict-draft = 0 1
CP  - --spec-draft-prio --prio-draft = 0 1 2 3
CP  - --spec-draft-poll --poll-draft = 0 1
CP  - --spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft = 3
P   - --spec-draft-cpu-range-batch -Crbd --cpu-range-batch-draft = 0-1
CP  - --spec-draft-cpu-strict-batch --cpu-strict-batch-draft = 0 1
CP  - --spec-draft-prio-batch --prio-batch-draft = 0 1 2 3
CP  - --spec-draft-poll-batch --poll-batch-draft = 0 1
CGP LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K --spec-draft-type-k -ctkd --cache-type-k-draft = f32 f16 bf16 q8_0 \
    q4_0 q4_1 iq4_nl q5_0 q5_1
CGP LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V --spec-draft-type-v -ctvd --cache-type-v-draft = f32 f16 bf16 q8_0 \
    q4_0 q4_1 iq4_nl q5_0 q5_1
CP  - --spec-draft-override-tensor -otd --override-tensor-draft = exps=CPU
CP  LLAMA_ARG_SPEC_DRAFT_CPU_MOE --spec-draft-cpu-moe -cmoed --cpu-moe-draft
CP  LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE --spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft = 0 8
CP  LLAMA_ARG_SPEC_DRAFT_N_MAX --spec-draft-n-max = 3 0
CP  LLAMA_ARG_SPEC_DRAFT_N_MIN --spec-draft-n-min = 0 8
C   LLAMA_ARG_SPEC_SYNTH_LEN --spec-synth-len = 2.5
C   LLAMA_ARG_SPEC_SYNTH_RATES --spec-synth-rates = 0.9,0.5
CP  LLAMA_ARG_SPEC_DRAFT_P_SPLIT --spec-draft-p-split --draft-p-split = 0.1 0.5
CP  LLAMA_ARG_SPEC_DRAFT_P_MIN --spec-draft-p-min --draft-p-min = 0 0.5
CP  LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING --spec-draft-backend-sampling / --no-spec-draft-backend-sampling
CP  LLAMA_ARG_SPEC_DRAFT_SAMPLING --spec-draft-sampling = greedy probabilistic
CP  - --spec-draft-device -devd --device-draft = none
CP  LLAMA_ARG_N_GPU_LAYERS_DRAFT --spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft = auto all 0 99 -1 -2
CP  LLAMA_ARG_SPEC_DRAFT_MODEL --spec-draft-model -md --model-draft = d.gguf
CP  LLAMA_ARG_SPEC_TYPE --spec-type = none draft-simple draft-eagle3 draft-mtp draft-dflash draft-dspark \
    ngram-simple ngram-map-k ngram-map-k4v ngram-mod ngram-cache ngram-mod,draft-mtp
CP  - --spec-ngram-mod-n-min = 8
CP  - --spec-ngram-mod-n-max = 8
CP  - --spec-ngram-mod-n-match = 8
CP  - --spec-ngram-simple-size-n = 8
CP  - --spec-ngram-simple-size-m = 8
CP  - --spec-ngram-simple-min-hits = 8
CP  - --spec-ngram-map-k-size-n = 8
CP  - --spec-ngram-map-k-size-m = 8
CP  - --spec-ngram-map-k-min-hits = 8
CP  - --spec-ngram-map-k4v-size-n = 8
CP  - --spec-ngram-map-k4v-size-m = 8
CP  - --spec-ngram-map-k4v-min-hits = 8
CP  LLAMA_ARG_DRAFT_MAX --draft --draft-n --draft-max = 0 8
CP  LLAMA_ARG_DRAFT_MIN --draft-min --draft-n-min = 0 8
C   - --gpt-oss-20b-default
C   - --gpt-oss-120b-default
C   - --vision-gemma-4b-default
C   - --vision-gemma-12b-default
C   - --spec-default
C   MTMD_BACKEND_DEVICE -mmdev --mmproj-device = none
"""


@dataclass(frozen=True)
class UpstreamOption:
    """One row of the table."""

    programs: str
    env: str | None
    names: tuple[str, ...]
    negative: tuple[str, ...]
    values: tuple[str, ...]


def parse_row(line: str) -> UpstreamOption:
    head, _, values = line.partition(" = ")
    programs, env, *spellings = head.split()
    split = spellings.index("/") if "/" in spellings else len(spellings)
    names, negative = tuple(spellings[:split]), tuple(spellings[split + 1 :])
    return UpstreamOption(programs, None if env == "-" else env, names, negative, tuple(values.split()))


OPTIONS = [parse_row(line) for line in TABLE.replace("\\\n", "").splitlines() if line]

_OTHER = """
LLAMA_API_KEY LLAMA_ARG_AGENT LLAMA_ARG_ALIAS LLAMA_ARG_API_KEY_FILE LLAMA_ARG_API_PREFIX
LLAMA_ARG_CACHE_IDLE_SLOTS LLAMA_ARG_CACHE_PROMPT LLAMA_ARG_CACHE_REUSE LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT
LLAMA_ARG_CONT_BATCHING LLAMA_ARG_CORS_CREDENTIALS LLAMA_ARG_CORS_HEADERS LLAMA_ARG_CORS_METHODS
LLAMA_ARG_CORS_ORIGINS LLAMA_ARG_EMBEDDINGS LLAMA_ARG_ENDPOINT_METRICS LLAMA_ARG_ENDPOINT_PROPS
LLAMA_ARG_ENDPOINT_SLOTS LLAMA_ARG_FIT_ESTIMATE LLAMA_ARG_HOST LLAMA_ARG_KV_UNIFIED
LLAMA_ARG_KV_UNIFIED_PER_SLOT LLAMA_ARG_MCP_SERVERS_CONFIG LLAMA_ARG_MCP_SERVERS_JSON LLAMA_ARG_MODELS_AUTOLOAD
LLAMA_ARG_MODELS_DIR LLAMA_ARG_MODELS_MAX LLAMA_ARG_MODELS_PRESET LLAMA_ARG_MTMD_BATCH_MAX_TOKENS
LLAMA_ARG_POOLING LLAMA_ARG_PORT LLAMA_ARG_PREFILL_ASSISTANT LLAMA_ARG_RERANKING LLAMA_ARG_REUSE_PORT
LLAMA_ARG_SSE_PING_INTERVAL LLAMA_ARG_SSL_CERT_FILE LLAMA_ARG_SSL_KEY_FILE LLAMA_ARG_STATIC_PATH LLAMA_ARG_TAGS
LLAMA_ARG_THREADS_HTTP LLAMA_ARG_TIMEOUT LLAMA_ARG_TOOLS LLAMA_ARG_TOOLS_RUNTIME LLAMA_ARG_UI
LLAMA_ARG_UI_CONFIG LLAMA_ARG_UI_CONFIG_FILE LLAMA_ARG_UI_MCP_PROXY
"""
OTHER_VARIABLES = _OTHER.split()
"""Variables of llama.cpp's other programs, the server above all."""
