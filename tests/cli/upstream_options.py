"""Every option of llama-cli (C), llama-completion (G), llama-speculative-simple (P) and llama-server (S), b11434.

A row: programs, environment variable, spellings, after `/` the negative ones, after `=` values it takes (`@` stands for
a file). Read from `common/arg.cpp`; `test_upstream_options.py` holds it against the programs' own help.
"""

from dataclasses import dataclass

TABLE = r"""
CGPS - --version
CGPS - -cl --cache-list
CGPS - --completion-bash
C    - --server-base = http://localhost:8080
CG   - --verbose-prompt
CG   - --display-prompt / --no-display-prompt
CGP  - -co --color = on off auto 1 0 true false enabled disabled -1
CGPS LLAMA_ARG_THREADS -t --threads = -1 0 2
CGPS - -tb --threads-batch = -1 2
CGPS - -C --cpu-mask = 3 0x1 ff
CGPS - -Cr --cpu-range = 0-1 0- -1
CGPS - --cpu-strict = 0 1
CGPS - --prio = -1 0 1 2 3
CGPS - --poll = 0 50 100
CGPS - -Cb --cpu-mask-batch = 3
CGPS - -Crb --cpu-range-batch = 0-1
CGPS - --cpu-strict-batch = 0 1
CGPS - --prio-batch = 0 1 2 3
CGPS - --poll-batch = 0 1
CGPS LLAMA_ARG_CTX_SIZE -c --ctx-size = 0 4096
CGPS LLAMA_ARG_N_PREDICT -n --predict --n-predict = -1 -2 0 5
CGPS LLAMA_ARG_BATCH -b --batch-size = 2048 64
CGPS LLAMA_ARG_UBATCH -ub --ubatch-size = 512 64
CGPS - --keep = 0 -1 5
CGPS LLAMA_ARG_SWA_FULL --swa-full
CS   LLAMA_ARG_CTX_CHECKPOINTS -ctxcp --ctx-checkpoints --swa-checkpoints = 0 32
CS   LLAMA_ARG_CACHE_RAM -cram --cache-ram = 0 -1 2048
CGS  LLAMA_ARG_CONTEXT_SHIFT --context-shift / --no-context-shift
CGPS LLAMA_ARG_FLASH_ATTN -fa --flash-attn = on off auto 1 0 -1
CGP  - -p --prompt = text
CG   - -sys --system-prompt = text
CGPS LLAMA_ARG_PERF --perf / --no-perf
C    LLAMA_ARG_SHOW_TIMINGS --show-timings / --no-show-timings
CGP  - -f --file = @
CG   - -sysf --system-prompt-file = @
CGP  - -bf --binary-file = @
CGPS - -e --escape / --no-escape
G    - -ptc --print-token-count = -1 10
G    - --prompt-cache = file
G    - --prompt-cache-all
G    - --prompt-cache-ro
CGS  - -r --reverse-prompt = text
CGS  - -sp --special
G    - -cnv --conversation / -no-cnv --no-conversation
CG   - -st --single-turn
G    - -i --interactive
G    - -if --interactive-first
CG   - -mli --multiline-input
G    - --in-prefix-bos
G    - --in-prefix = text
G    - --in-suffix = text
CGS  - --warmup / --no-warmup
CGPS - --samplers = top_k;temp penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature nucleus;Top-K \
    top_k;infill foo foo;top_p
CGPS - -s --seed = -1 7 4294967295
CGPS - --sampler-seq --sampling-seq = edskypmxt kt kz i a
CGPS - --ignore-eos
CGPS LLAMA_ARG_TEMPERATURE --temp --temperature = 0 0.8 -1 2
CGPS LLAMA_ARG_TOP_K --top-k = 40 0 -1
CGPS LLAMA_ARG_TOP_P --top-p = 0 0.5 1 2.5 -1 1e-3
CGPS LLAMA_ARG_MIN_P --min-p = 0 0.5 1 2.5 -1 1e-3
CGPS - --top-nsigma --top-n-sigma = 0 0.5 1 2.5 -1 1e-3
CGPS - --xtc-probability = 0 0.5 1 2.5 -1 1e-3
CGPS - --xtc-threshold = 0 0.5 1 2.5 -1 1e-3
CGPS - --typical --typical-p = 0 0.5 1 2.5 -1 1e-3
CGPS - --repeat-last-n = 0 64
CGPS LLAMA_ARG_REPEAT_PENALTY --repeat-penalty = 1 1.1
CGPS LLAMA_ARG_PRESENCE_PENALTY --presence-penalty = 0 0.5 -1
CGPS LLAMA_ARG_FREQUENCY_PENALTY --frequency-penalty = 0 0.5 -1
CGPS - --dry-multiplier = 0 0.5 1 2.5 -1 1e-3
CGPS - --dry-base = 0.5 1.75 0 -1 2
CGPS - --dry-allowed-length = 0 8
CGPS - --dry-penalty-last-n = 0 64
CGPS - --dry-sequence-breaker = none : text
CGPS - --adaptive-target = 0 0.5 1 2.5 -1 1e-3
CGPS - --adaptive-decay = 0 0.5 1 2.5 -1 1e-3
CGPS - --dynatemp-range = 0 0.5 1 2.5 -1 1e-3
CGPS - --dynatemp-exp = 0 0.5 1 2.5 -1 1e-3
CGPS - --mirostat = 0 1 2
CGPS - --mirostat-lr = 0 0.5 1 2.5 -1 1e-3
CGPS - --mirostat-ent = 0 0.5 1 2.5 -1 1e-3
CGPS - -l --logit-bias = 15+1 15-1.5 15+inf 15-inf 999999999+1 15+-2 15--2 -1+1 15+1e3
CGPS - --grammar = root::="a"
CGPS - --grammar-file = @
CGPS - -j --json-schema = {}
CGPS - -jf --json-schema-file = @
CGPS LLAMA_ARG_BACKEND_SAMPLING -bs --backend-sampling
CGPS LLAMA_ARG_ROPE_SCALING_TYPE --rope-scaling = none linear yarn
CGPS LLAMA_ARG_ROPE_SCALE --rope-scale = 1 4
CGPS LLAMA_ARG_ROPE_FREQ_BASE --rope-freq-base = 0 10000
CGPS LLAMA_ARG_ROPE_FREQ_SCALE --rope-freq-scale = 0 0.5
CGPS LLAMA_ARG_YARN_ORIG_CTX --yarn-orig-ctx = 0 4096
CGPS LLAMA_ARG_YARN_EXT_FACTOR --yarn-ext-factor = 0 0.5 1 2.5 -1 1e-3
CGPS LLAMA_ARG_YARN_ATTN_FACTOR --yarn-attn-factor = 0 0.5 1 2.5 -1 1e-3
CGPS LLAMA_ARG_YARN_BETA_SLOW --yarn-beta-slow = 0 0.5 1 2.5 -1 1e-3
CGPS LLAMA_ARG_YARN_BETA_FAST --yarn-beta-fast = 0 0.5 1 2.5 -1 1e-3
G    LLAMA_ARG_GRP_ATTN_N -gan --grp-attn-n = 1 4
G    LLAMA_ARG_GRP_ATTN_W -gaw --grp-attn-w = 0 8
CGPS LLAMA_ARG_KV_OFFLOAD -kvo --kv-offload / -nkvo --no-kv-offload
CGPS LLAMA_ARG_REPACK --repack / -nr --no-repack
CGPS LLAMA_ARG_NO_HOST --no-host
CGPS LLAMA_ARG_CACHE_TYPE_K -ctk --cache-type-k = f32 f16 bf16 q8_0 q4_0 q4_1 iq4_nl q5_0 q5_1
CGPS LLAMA_ARG_CACHE_TYPE_V -ctv --cache-type-v = f32 f16 bf16 q8_0 q4_0 q4_1 iq4_nl q5_0 q5_1
CGPS LLAMA_ARG_DEFRAG_THOLD -dt --defrag-thold = 0.1
CGPS LLAMA_ARG_N_PARALLEL -np --parallel = 1 4
CS   LLAMA_ARG_MMPROJ -mm --mmproj = m.gguf
CS   LLAMA_ARG_MMPROJ_URL -mmu --mmproj-url = http://localhost/m
CS   LLAMA_ARG_MMPROJ_AUTO --mmproj-auto / --no-mmproj --no-mmproj-auto
CS   LLAMA_ARG_MMPROJ_OFFLOAD --mmproj-offload / --no-mmproj-offload
C    - --image --audio --video = a.png
CS   LLAMA_ARG_IMAGE_MIN_TOKENS --image-min-tokens = 0 8
CS   LLAMA_ARG_IMAGE_MAX_TOKENS --image-max-tokens = 0 8
CS   LLAMA_ARG_VIDEO_FPS --video-fps = 2
CS   LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL --video-timestamp-interval = 0 8
CS   LLAMA_ARG_VIDEO_FFMPEG_DIR --video-ffmpeg-dir = bin
CGPS LLAMA_ARG_RPC --rpc = localhost:1
CGPS LLAMA_ARG_LOAD_MODE -lm --load-mode = auto none mmap mlock mmap+mlock dio
CGPS LLAMA_ARG_LAZY_MODE -lzm --lazy-mode = on auto off
CGPS LLAMA_ARG_NUMA --numa = distribute isolate numactl
CGPS LLAMA_ARG_DEVICE -dev --device = none
CGPS - --list-devices
CGPS LLAMA_ARG_OVERRIDE_TENSOR -ot --override-tensor = exps=CPU a=CPU,b=CPU
CGPS LLAMA_ARG_CPU_MOE -cmoe --cpu-moe
CGPS LLAMA_ARG_N_CPU_MOE -ncmoe --n-cpu-moe = 0 8
CGPS LLAMA_ARG_N_CPU_FFN -ncffn --n-cpu-ffn = 0 8
CGPS LLAMA_ARG_N_GPU_LAYERS -ngl --gpu-layers --n-gpu-layers = auto all 0 99 -1 -2
CGPS LLAMA_ARG_SPLIT_MODE -sm --split-mode = none layer row tensor
CGPS LLAMA_ARG_TENSOR_SPLIT -ts --tensor-split = 1 3,1 3/1
CGPS LLAMA_ARG_MAIN_GPU -mg --main-gpu = 0 1
CGPS LLAMA_ARG_FIT -fit --fit = on off 1 0 true
CGPS LLAMA_ARG_FIT_TARGET -fitt --fit-target = 1024 512,512
CGPS LLAMA_ARG_FIT_CTX -fitc --fit-ctx = 0 8
CGPS - --check-tensors
CGPS - --override-kv = general.name=str:a tokenizer.ggml.add_bos_token=bool:false
CGPS - --op-offload / --no-op-offload
CGPS - --lora = a.gguf
CGPS - --lora-scaled = a.gguf:0.5
CGPS - --control-vector = a.gguf
CGPS - --control-vector-scaled = a.gguf:0.5
CGPS - --control-vector-layer-range = 1,2
CGPS LLAMA_ARG_MODEL -m --model = m.gguf
CGPS LLAMA_ARG_MODEL_URL -mu --model-url = http://localhost/m
CGPS LLAMA_ARG_DOCKER_REPO -dr --docker-repo = gemma3
CGPS LLAMA_ARG_HF_REPO -hf -hfr --hf-repo = user/model user/model:Q8_0
CGPS LLAMA_ARG_HF_FILE -hff --hf-file = m.gguf
CGPS HF_TOKEN -hft --hf-token = hf_x
C    - -o --output --output-file = out.txt
CS   LLAMA_ARG_CHAT_TEMPLATE_KWARGS --chat-template-kwargs = {} {"a":1}
CGS  LLAMA_ARG_JINJA --jinja / --no-jinja
CGS  LLAMA_ARG_THINK --reasoning-format = none auto deepseek deepseek-legacy
CGS  LLAMA_ARG_REASONING -rea --reasoning = on off auto
CGS  LLAMA_ARG_REASONING_EFFORT --reasoning-effort = default low high
CGS  LLAMA_ARG_THINK_BUDGET --reasoning-budget = -1 0
CGS  LLAMA_ARG_THINK_BUDGET_MESSAGE --reasoning-budget-message = stop
CGS  LLAMA_ARG_REASONING_PRESERVE --reasoning-preserve / --no-reasoning-preserve
CGS  LLAMA_ARG_CHAT_TEMPLATE --chat-template = chatml llama3
CGS  LLAMA_ARG_CHAT_TEMPLATE_FILE --chat-template-file = @
CGS  LLAMA_ARG_SKIP_CHAT_PARSING --skip-chat-parsing / --no-skip-chat-parsing
CG   - --simple-io
CGPS - --log-disable
CGPS LLAMA_ARG_LOG_FILE --log-file = log.txt
CGPS LLAMA_ARG_LOG_JSONL --log-jsonl / --no-log-jsonl
CS   - --log-prompts-dir = dir
CGPS LLAMA_ARG_LOG_COLORS --log-colors = on off auto
CGPS - -v --verbose --log-verbose
CGPS LLAMA_ARG_OFFLINE --offline
CGPS LLAMA_ARG_LOG_VERBOSITY -lv --verbosity --log-verbosity = 0 3 5
CGPS LLAMA_ARG_LOG_PREFIX --log-prefix / --no-log-prefix
CGPS LLAMA_ARG_LOG_TIMESTAMPS --log-timestamps / --no-log-timestamps
CPS  LLAMA_ARG_SPEC_DRAFT_HF_REPO --spec-draft-hf -hfd -hfrd --hf-repo-draft = user/model
CPS  - --spec-draft-threads -td --threads-draft = -1 2
CPS  - --spec-draft-threads-batch -tbd --threads-batch-draft = -1 2
CPS  - --spec-draft-cpu-mask -Cd --cpu-mask-draft = 3
CPS  - --spec-draft-cpu-range -Crd --cpu-range-draft = 0-1
CPS  - --spec-draft-cpu-strict --cpu-strict-draft = 0 1
CPS  - --spec-draft-prio --prio-draft = 0 1 2 3
CPS  - --spec-draft-poll --poll-draft = 0 1
CPS  - --spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft = 3
P    - --spec-draft-cpu-range-batch -Crbd --cpu-range-batch-draft = 0-1
CPS  - --spec-draft-cpu-strict-batch --cpu-strict-batch-draft = 0 1
CPS  - --spec-draft-prio-batch --prio-batch-draft = 0 1 2 3
CPS  - --spec-draft-poll-batch --poll-batch-draft = 0 1
CGPS LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K --spec-draft-type-k -ctkd --cache-type-k-draft = f32 f16 bf16 q8_0 \
    q4_0 q4_1 iq4_nl q5_0 q5_1
CGPS LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V --spec-draft-type-v -ctvd --cache-type-v-draft = f32 f16 bf16 q8_0 \
    q4_0 q4_1 iq4_nl q5_0 q5_1
CPS  - --spec-draft-override-tensor -otd --override-tensor-draft = exps=CPU
CPS  LLAMA_ARG_SPEC_DRAFT_CPU_MOE --spec-draft-cpu-moe -cmoed --cpu-moe-draft
CPS  LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE --spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft = 0 8
CPS  LLAMA_ARG_SPEC_DRAFT_N_MAX --spec-draft-n-max = 3 0
CPS  LLAMA_ARG_SPEC_DRAFT_N_MIN --spec-draft-n-min = 0 8
CS   LLAMA_ARG_SPEC_SYNTH_LEN --spec-synth-len = 2.5
CS   LLAMA_ARG_SPEC_SYNTH_RATES --spec-synth-rates = 0.9,0.5
CPS  LLAMA_ARG_SPEC_DRAFT_P_SPLIT --spec-draft-p-split --draft-p-split = 0.1 0.5
CPS  LLAMA_ARG_SPEC_DRAFT_P_MIN --spec-draft-p-min --draft-p-min = 0 0.5
CPS  LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING --spec-draft-backend-sampling / --no-spec-draft-backend-sampling
CPS  LLAMA_ARG_SPEC_DRAFT_SAMPLING --spec-draft-sampling = greedy probabilistic
CPS  - --spec-draft-device -devd --device-draft = none
CPS  LLAMA_ARG_N_GPU_LAYERS_DRAFT --spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft = auto all 0 99 -1 -2
CPS  LLAMA_ARG_SPEC_DRAFT_MODEL --spec-draft-model -md --model-draft = d.gguf
CPS  LLAMA_ARG_SPEC_TYPE --spec-type = none draft-simple draft-eagle3 draft-mtp draft-dflash draft-dspark \
    ngram-simple ngram-map-k ngram-map-k4v ngram-mod ngram-cache ngram-mod,draft-mtp
CPS  - --spec-ngram-mod-n-min = 8
CPS  - --spec-ngram-mod-n-max = 8
CPS  - --spec-ngram-mod-n-match = 8
CPS  - --spec-ngram-simple-size-n = 8
CPS  - --spec-ngram-simple-size-m = 8
CPS  - --spec-ngram-simple-min-hits = 8
CPS  - --spec-ngram-map-k-size-n = 8
CPS  - --spec-ngram-map-k-size-m = 8
CPS  - --spec-ngram-map-k-min-hits = 8
CPS  - --spec-ngram-map-k4v-size-n = 8
CPS  - --spec-ngram-map-k4v-size-m = 8
CPS  - --spec-ngram-map-k4v-min-hits = 8
CPS  LLAMA_ARG_DRAFT_MAX --draft --draft-n --draft-max = 0 8
CPS  LLAMA_ARG_DRAFT_MIN --draft-min --draft-n-min = 0 8
CS   - --gpt-oss-20b-default
CS   - --gpt-oss-120b-default
CS   - --vision-gemma-4b-default
CS   - --vision-gemma-12b-default
CS   - --spec-default
CS   MTMD_BACKEND_DEVICE -mmdev --mmproj-device = none
S    - --spec-ngram-size-n = 3
S    - --spec-ngram-size-m = 3
S    - --spec-ngram-min-hits = 3
S    - -lcs --lookup-cache-static = file
S    - -lcd --lookup-cache-dynamic = file
S    LLAMA_ARG_KV_UNIFIED_PER_SLOT --kv-unified-per-slot = 1 512
S    LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT -cms --checkpoint-min-step = 0 256
S    LLAMA_ARG_KV_UNIFIED -kvu --kv-unified / -no-kvu --no-kv-unified
S    LLAMA_ARG_CACHE_IDLE_SLOTS --cache-idle-slots / --no-cache-idle-slots
S    - --spm-infill
S    LLAMA_ARG_POOLING --pooling = none mean cls last rank
S    LLAMA_ARG_CONT_BATCHING -cb --cont-batching / -nocb --no-cont-batching
S    LLAMA_ARG_MTMD_BATCH_MAX_TOKENS --mtmd-batch-max-tokens = 1024
S    LLAMA_ARG_ALIAS -a --alias = name a,b
S    LLAMA_ARG_TAGS --tags = a,b
S    - --embd-normalize = 2 -1
S    LLAMA_ARG_HOST --host = 127.0.0.1 ::1,127.0.0.1 /tmp/a.sock
S    LLAMA_ARG_PORT --port = 8080 0
S    LLAMA_ARG_REUSE_PORT --reuse-port
S    LLAMA_ARG_STATIC_PATH --path = folder
S    LLAMA_ARG_CORS_ORIGINS --cors-origins = * localhost http://a.b
S    LLAMA_ARG_CORS_METHODS --cors-methods = GET,POST
S    LLAMA_ARG_CORS_HEADERS --cors-headers = *
S    LLAMA_ARG_CORS_CREDENTIALS --cors-credentials / --no-cors-credentials
S    LLAMA_ARG_API_PREFIX --api-prefix = /v2
S    LLAMA_ARG_UI_CONFIG --ui-config --webui-config = {}
S    LLAMA_ARG_UI_CONFIG_FILE --ui-config-file --webui-config-file = @
S    LLAMA_ARG_UI_MCP_PROXY --ui-mcp-proxy --webui-mcp-proxy / --no-ui-mcp-proxy --no-webui-mcp-proxy
S    LLAMA_ARG_TOOLS --tools = all
S    LLAMA_ARG_TOOLS_RUNTIME --tools-runtime = docker:x
S    LLAMA_ARG_MCP_SERVERS_CONFIG --mcp-servers-config = file
S    LLAMA_ARG_MCP_SERVERS_JSON --mcp-servers-json = {}
S    LLAMA_ARG_AGENT -ag --agent / -no-ag --no-agent
S    LLAMA_ARG_UI --ui --webui / --no-ui --no-webui
S    LLAMA_ARG_EMBEDDINGS --embedding --embeddings
S    LLAMA_ARG_RERANKING --rerank --reranking
S    LLAMA_API_KEY --api-key = a a,b
S    LLAMA_ARG_API_KEY_FILE --api-key-file = @
S    LLAMA_ARG_SSL_KEY_FILE --ssl-key-file = file
S    LLAMA_ARG_SSL_CERT_FILE --ssl-cert-file = file
S    LLAMA_ARG_TIMEOUT -to --timeout = 3600 0
S    LLAMA_ARG_SSE_PING_INTERVAL --sse-ping-interval = -1 30
S    LLAMA_ARG_THREADS_HTTP --threads-http = -1 4
S    LLAMA_ARG_CACHE_PROMPT --cache-prompt / --no-cache-prompt
S    LLAMA_ARG_CACHE_REUSE --cache-reuse = 0 256
S    LLAMA_ARG_ENDPOINT_METRICS --metrics
S    LLAMA_ARG_ENDPOINT_PROPS --props
S    LLAMA_ARG_ENDPOINT_SLOTS --slots / --no-slots
S    - --slot-save-path = .
S    - --media-path = folder
S    LLAMA_ARG_MODELS_DIR --models-dir = folder
S    LLAMA_ARG_MODELS_PRESET --models-preset = file
S    LLAMA_ARG_MODELS_MAX --models-max = 4
S    LLAMA_ARG_MODELS_AUTOLOAD --models-autoload / --no-models-autoload
S    LLAMA_ARG_PREFILL_ASSISTANT --prefill-assistant / --no-prefill-assistant
S    - -sps --slot-prompt-similarity = 0.1 0.0 1
S    - --lora-init-without-apply
S    - --sleep-idle-seconds = -1 60
S    - --embd-gemma-default
S    - --fim-qwen-1.5b-default
S    - --fim-qwen-3b-default
S    - --fim-qwen-7b-default
S    - --fim-qwen-7b-spec
S    - --fim-qwen-14b-spec
S    - --fim-qwen-30b-default
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
