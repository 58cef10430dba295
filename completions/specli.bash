# Made by python -m specli.cli.options.reference; do not edit.
_specli_reply() {
    local IFS=$'\n'
    COMPREPLY=($1)
}

_specli_files() {
    compopt -o filenames 2>/dev/null
    if [ -n "$1" ]; then
        _specli_reply "$(compgen -f -X "!*$1" -- "$2"; compgen -d -- "$2")"
    else
        _specli_reply "$(compgen -f -- "$2")"
    fi
}

_specli_list() {
    local head=
    case $2 in *,*) head="${2%,*}," ;; esac
    compopt -o nospace 2>/dev/null
    _specli_reply "$(compgen -P "$head" -W "$1" -- "${2##*,}")"
}

_specli() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} words
    COMPREPLY=()
    if [ "$cur" = "=" ]; then
        cur=
    elif [ "$prev" = "=" ]; then
        prev=${COMP_WORDS[COMP_CWORD-2]}
    fi
    if [ "$COMP_CWORD" -eq 1 ]; then
        _specli_reply "$(compgen -W 'generate chat serve stats synth check convert --version --list-devices --list-models -v --verbose -h --usage --help' -- "$cur")"
        return
    fi
    case $prev in
        -p|--prompt)
            return ;;
        -f|--file)
            _specli_files '' "$cur"
            return ;;
        -bf|--binary-file)
            _specli_files '' "$cur"
            return ;;
        --prompts)
            _specli_files '.jsonl' "$cur"
            return ;;
        -r|--reverse-prompt)
            return ;;
        -np|--parallel)
            return ;;
        --workers)
            return ;;
        --retries)
            return ;;
        -m|--model)
            _specli_files '.gguf' "$cur"
            return ;;
        -hf|-hfr|--hf-repo)
            return ;;
        -hff|--hf-file)
            return ;;
        -hft|--hf-token)
            return ;;
        --override-kv)
            return ;;
        --spec-type)
            _specli_list 'none draft-simple draft-eagle3 draft-mtp draft-dflash draft-dspark draft-eagle draft-medusa ngram-simple ngram-map-k ngram-map-k4v ngram-mod ngram-cache' "$cur"
            return ;;
        --spec-order)
            _specli_reply "$(compgen -W 'best fixed' -- "$cur")"
            return ;;
        --spec-draft-n-max)
            _specli_reply "$(compgen -W 'auto' -- "$cur")"
            return ;;
        --spec-draft-n-min)
            return ;;
        --spec-draft-p-min|--draft-p-min|--spec-draft-conf-min)
            return ;;
        --spec-draft-sampling)
            _specli_reply "$(compgen -W 'greedy probabilistic' -- "$cur")"
            return ;;
        --spec-draft-tree)
            return ;;
        --spec-draft-p-split|--draft-p-split)
            return ;;
        --spec-synth-len)
            return ;;
        --spec-synth-rates)
            return ;;
        -md|--spec-draft-model|--model-draft)
            _specli_files '.gguf' "$cur"
            return ;;
        -hfd|-hfrd|--spec-draft-hf|--hf-repo-draft)
            return ;;
        -ctkd|--spec-draft-type-k|--cache-type-k-draft)
            _specli_reply "$(compgen -W 'f32 f16 bf16 q8_0 q4_0 q4_1 iq4_nl q5_0 q5_1' -- "$cur")"
            return ;;
        -ctvd|--spec-draft-type-v|--cache-type-v-draft)
            _specli_reply "$(compgen -W 'f32 f16 bf16 q8_0 q4_0 q4_1 iq4_nl q5_0 q5_1' -- "$cur")"
            return ;;
        -devd|--spec-draft-device|--device-draft)
            _specli_reply "$(compgen -W 'auto cpu cuda:0' -- "$cur")"
            return ;;
        -ngld|--spec-draft-ngl|--gpu-layers-draft|--n-gpu-layers-draft)
            _specli_reply "$(compgen -W 'auto all' -- "$cur")"
            return ;;
        -td|--spec-draft-threads|--threads-draft)
            return ;;
        -tbd|--spec-draft-threads-batch|--threads-batch-draft)
            return ;;
        -Cd|--spec-draft-cpu-mask|--cpu-mask-draft)
            return ;;
        -Crd|--spec-draft-cpu-range|--cpu-range-draft)
            return ;;
        --spec-draft-cpu-strict|--cpu-strict-draft)
            _specli_reply "$(compgen -W '0 1' -- "$cur")"
            return ;;
        --spec-draft-prio|--prio-draft)
            return ;;
        --spec-draft-poll|--poll-draft)
            return ;;
        -otd|--spec-draft-override-tensor|--override-tensor-draft)
            return ;;
        -ncmoed|--spec-draft-n-cpu-moe|--spec-draft-ncmoe|--n-cpu-moe-draft)
            return ;;
        --spec-ngram-simple-size-n)
            return ;;
        --spec-ngram-simple-size-m)
            return ;;
        --spec-ngram-simple-min-hits)
            return ;;
        --spec-ngram-map-k-size-n)
            return ;;
        --spec-ngram-map-k-size-m)
            return ;;
        --spec-ngram-map-k-min-hits)
            return ;;
        --spec-ngram-map-k4v-size-n)
            return ;;
        --spec-ngram-map-k4v-size-m)
            return ;;
        --spec-ngram-map-k4v-min-hits)
            return ;;
        --spec-ngram-mod-n-match)
            return ;;
        --spec-ngram-mod-n-min)
            return ;;
        --spec-ngram-mod-n-max)
            return ;;
        -lcs|--lookup-cache-static)
            _specli_files '' "$cur"
            return ;;
        -lcd|--lookup-cache-dynamic)
            _specli_files '' "$cur"
            return ;;
        -s|--seed)
            return ;;
        --temp|--temperature)
            return ;;
        --top-k)
            return ;;
        --top-p)
            return ;;
        --min-p)
            return ;;
        --top-nsigma|--top-n-sigma)
            return ;;
        --typical|--typical-p)
            return ;;
        --xtc-probability)
            return ;;
        --xtc-threshold)
            return ;;
        --samplers)
            return ;;
        --sampler-seq|--sampling-seq)
            return ;;
        --repeat-last-n)
            return ;;
        --repeat-penalty)
            return ;;
        --presence-penalty)
            return ;;
        --frequency-penalty)
            return ;;
        --dry-multiplier)
            return ;;
        --dry-base)
            return ;;
        --dry-allowed-length)
            return ;;
        --dry-penalty-last-n)
            return ;;
        --dry-sequence-breaker)
            return ;;
        --adaptive-target)
            return ;;
        --adaptive-decay)
            return ;;
        --dynatemp-range)
            return ;;
        --dynatemp-exp)
            return ;;
        --mirostat)
            return ;;
        --mirostat-lr)
            return ;;
        --mirostat-ent)
            return ;;
        -l|--logit-bias)
            return ;;
        --grammar)
            return ;;
        --grammar-file)
            _specli_files '' "$cur"
            return ;;
        -j|--json-schema)
            return ;;
        -jf|--json-schema-file)
            _specli_files '' "$cur"
            return ;;
        -c|--ctx-size)
            return ;;
        -n|--predict|--n-predict)
            return ;;
        -b|--batch-size)
            return ;;
        -ub|--ubatch-size)
            return ;;
        -ctk|--cache-type-k)
            _specli_reply "$(compgen -W 'f32 f16 bf16 q8_0 q4_0 q4_1 iq4_nl q5_0 q5_1' -- "$cur")"
            return ;;
        -ctv|--cache-type-v)
            _specli_reply "$(compgen -W 'f32 f16 bf16 q8_0 q4_0 q4_1 iq4_nl q5_0 q5_1' -- "$cur")"
            return ;;
        -dev|--device)
            _specli_reply "$(compgen -W 'auto cpu cuda:0' -- "$cur")"
            return ;;
        -ngl|--gpu-layers|--n-gpu-layers)
            _specli_reply "$(compgen -W 'auto all' -- "$cur")"
            return ;;
        --kernels)
            _specli_reply "$(compgen -W 'auto reference cpu graph triton' -- "$cur")"
            return ;;
        -t|--threads)
            return ;;
        -tb|--threads-batch)
            return ;;
        -C|--cpu-mask)
            return ;;
        -Cr|--cpu-range)
            return ;;
        --cpu-strict)
            _specli_reply "$(compgen -W '0 1' -- "$cur")"
            return ;;
        --prio)
            return ;;
        --poll)
            return ;;
        -ot|--override-tensor)
            return ;;
        -ncmoe|--n-cpu-moe)
            return ;;
        -ncffn|--n-cpu-ffn)
            return ;;
        -sm|--split-mode)
            _specli_reply "$(compgen -W 'none layer row tensor' -- "$cur")"
            return ;;
        -ts|--tensor-split)
            return ;;
        -mg|--main-gpu)
            return ;;
        --stats-json)
            _specli_files '' "$cur"
            return ;;
        --logprobs)
            return ;;
        -lv|--verbosity|--log-verbosity)
            return ;;
        --log-file)
            _specli_files '' "$cur"
            return ;;
        --log-colors)
            _specli_reply "$(compgen -W 'on off auto' -- "$cur")"
            return ;;
        -sys|--system-prompt)
            return ;;
        -sysf|--system-prompt-file)
            _specli_files '' "$cur"
            return ;;
        -co|--color)
            _specli_reply "$(compgen -W 'on off auto' -- "$cur")"
            return ;;
        -o|--output|--output-file)
            _specli_files '' "$cur"
            return ;;
        --chat-template)
            return ;;
        --chat-template-file)
            _specli_files '' "$cur"
            return ;;
        --chat-template-kwargs)
            return ;;
        -rea|--reasoning)
            _specli_reply "$(compgen -W 'on off auto' -- "$cur")"
            return ;;
        --reasoning-effort)
            return ;;
        --reasoning-format)
            _specli_reply "$(compgen -W 'none auto deepseek deepseek-legacy' -- "$cur")"
            return ;;
        --reasoning-budget)
            return ;;
        --stats-json)
            _specli_files '' "$cur"
            return ;;
        --host)
            return ;;
        --port)
            return ;;
        --api-key)
            return ;;
        --api-key-file)
            _specli_files '' "$cur"
            return ;;
        -np|--parallel)
            return ;;
        --queue)
            return ;;
        -a|--alias)
            return ;;
        --tags)
            return ;;
        --kv-unified-per-slot)
            return ;;
        -sps|--slot-prompt-similarity)
            return ;;
        --slot-save-path)
            _specli_files '' "$cur"
            return ;;
        -to|--timeout)
            return ;;
        --sse-ping-interval)
            return ;;
        --grace)
            return ;;
        --cors-origins)
            return ;;
        --cors-methods)
            return ;;
        --cors-headers)
            return ;;
        --api-prefix)
            return ;;
        --repeat)
            return ;;
        --warmup-runs)
            return ;;
        --n-prompts)
            return ;;
        --replay)
            _specli_files '' "$cur"
            return ;;
        --tune-seconds)
            return ;;
        -np|-npl|--parallel)
            return ;;
        --server)
            return ;;
        --concurrency)
            return ;;
        --rate)
            return ;;
        --api-key)
            return ;;
        --server-model)
            return ;;
        -to|--timeout)
            return ;;
        --extra-inputs)
            return ;;
        --speed-bench-json)
            _specli_files '' "$cur"
            return ;;
        --csv)
            _specli_files '' "$cur"
            return ;;
        --plot)
            _specli_files '' "$cur"
            return ;;
        --save)
            _specli_files '' "$cur"
            return ;;
        --text)
            _specli_files '' "$cur"
            return ;;
        --outfile)
            _specli_files '' "$cur"
            return ;;
        --outtype)
            _specli_reply "$(compgen -W 'auto f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q4_k q5_k q6_k' -- "$cur")"
            return ;;
        --target-model-dir)
            return ;;
        --model-name)
            return ;;
        --metadata)
            _specli_files '' "$cur"
            return ;;
        -hft|--hf-token)
            return ;;
        --split-max-tensors)
            return ;;
        --split-max-size)
            return ;;
        --check)
            _specli_files '.gguf' "$cur"
            return ;;
        --target-layers)
            return ;;
        --rope-theta)
            return ;;
    esac
    case $command in
        generate) words='-p --prompt -f --file -bf --binary-file --prompts -e --escape --no-escape -r --reverse-prompt -sp --special --verbose-prompt --display-prompt --no-display-prompt --resume --unordered -np --parallel -kvu --kv-unified -no-kvu --no-kv-unified --workers --retries --seed-per-prompt -m --model -hf -hfr --hf-repo -hff --hf-file -hft --hf-token --offline --override-kv --list-models --spec-type --spec-default --spec-adaptive --no-spec-adaptive --spec-order --spec-draft-n-max --spec-draft-n-min --spec-draft-p-min --draft-p-min --spec-draft-conf-min --spec-draft-sampling --spec-draft-tree --spec-draft-p-split --draft-p-split --spec-draft-survival --no-spec-draft-survival --spec-synth-len --spec-synth-rates -md --spec-draft-model --model-draft -hfd -hfrd --spec-draft-hf --hf-repo-draft -ctkd --spec-draft-type-k --cache-type-k-draft -ctvd --spec-draft-type-v --cache-type-v-draft -devd --spec-draft-device --device-draft -ngld --spec-draft-ngl --gpu-layers-draft --n-gpu-layers-draft -td --spec-draft-threads --threads-draft -tbd --spec-draft-threads-batch --threads-batch-draft -Cd --spec-draft-cpu-mask --cpu-mask-draft -Crd --spec-draft-cpu-range --cpu-range-draft --spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft --spec-draft-poll --poll-draft -otd --spec-draft-override-tensor --override-tensor-draft -cmoed --spec-draft-cpu-moe --cpu-moe-draft -ncmoed --spec-draft-n-cpu-moe --spec-draft-ncmoe --n-cpu-moe-draft --spec-ngram-simple-size-n --spec-ngram-simple-size-m --spec-ngram-simple-min-hits --spec-ngram-map-k-size-n --spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits --spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-min-hits --spec-ngram-mod-n-match --spec-ngram-mod-n-min --spec-ngram-mod-n-max -lcs --lookup-cache-static -lcd --lookup-cache-dynamic -s --seed --temp --temperature --top-k --top-p --min-p --top-nsigma --top-n-sigma --typical --typical-p --xtc-probability --xtc-threshold --samplers --sampler-seq --sampling-seq --repeat-last-n --repeat-penalty --presence-penalty --frequency-penalty --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker --adaptive-target --adaptive-decay --dynatemp-range --dynatemp-exp --mirostat --mirostat-lr --mirostat-ent -l --logit-bias --ignore-eos --grammar --grammar-file -j --json-schema -jf --json-schema-file -c --ctx-size -n --predict --n-predict -b --batch-size -ub --ubatch-size -ctk --cache-type-k -ctv --cache-type-v -dev --device -ngl --gpu-layers --n-gpu-layers --kernels --exact -t --threads -tb --threads-batch -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -ot --override-tensor -cmoe --cpu-moe -ncmoe --n-cpu-moe -ncffn --n-cpu-ffn -sm --split-mode -ts --tensor-split -mg --main-gpu --json --stats-json --trace --logprobs --prompt-logprobs --verify-lossless --perf --no-perf --version --list-devices -cl --cache-list --completion-bash -v --verbose --log-verbose -lv --verbosity --log-verbosity --log-disable --log-file --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --log-colors -h --help' ;;
        chat) words='-p --prompt -f --file -bf --binary-file -e --escape --no-escape -r --reverse-prompt -sp --special --verbose-prompt -sys --system-prompt -sysf --system-prompt-file -st --single-turn -mli --multiline-input --simple-io -co --color -o --output --output-file --show-timings --no-show-timings -m --model -hf -hfr --hf-repo -hff --hf-file -hft --hf-token --offline --override-kv --list-models --spec-type --spec-default --spec-adaptive --no-spec-adaptive --spec-order --spec-draft-n-max --spec-draft-n-min --spec-draft-p-min --draft-p-min --spec-draft-conf-min --spec-draft-sampling --spec-draft-tree --spec-draft-p-split --draft-p-split --spec-draft-survival --no-spec-draft-survival --spec-synth-len --spec-synth-rates -md --spec-draft-model --model-draft -hfd -hfrd --spec-draft-hf --hf-repo-draft -ctkd --spec-draft-type-k --cache-type-k-draft -ctvd --spec-draft-type-v --cache-type-v-draft -devd --spec-draft-device --device-draft -ngld --spec-draft-ngl --gpu-layers-draft --n-gpu-layers-draft -td --spec-draft-threads --threads-draft -tbd --spec-draft-threads-batch --threads-batch-draft -Cd --spec-draft-cpu-mask --cpu-mask-draft -Crd --spec-draft-cpu-range --cpu-range-draft --spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft --spec-draft-poll --poll-draft -otd --spec-draft-override-tensor --override-tensor-draft -cmoed --spec-draft-cpu-moe --cpu-moe-draft -ncmoed --spec-draft-n-cpu-moe --spec-draft-ncmoe --n-cpu-moe-draft --spec-ngram-simple-size-n --spec-ngram-simple-size-m --spec-ngram-simple-min-hits --spec-ngram-map-k-size-n --spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits --spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-min-hits --spec-ngram-mod-n-match --spec-ngram-mod-n-min --spec-ngram-mod-n-max -lcs --lookup-cache-static -lcd --lookup-cache-dynamic -s --seed --temp --temperature --top-k --top-p --min-p --top-nsigma --top-n-sigma --typical --typical-p --xtc-probability --xtc-threshold --samplers --sampler-seq --sampling-seq --repeat-last-n --repeat-penalty --presence-penalty --frequency-penalty --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker --adaptive-target --adaptive-decay --dynatemp-range --dynatemp-exp --mirostat --mirostat-lr --mirostat-ent -l --logit-bias --ignore-eos --grammar --grammar-file -j --json-schema -jf --json-schema-file -c --ctx-size -n --predict --n-predict -b --batch-size -ub --ubatch-size -ctk --cache-type-k -ctv --cache-type-v -dev --device -ngl --gpu-layers --n-gpu-layers --kernels --exact -t --threads -tb --threads-batch -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -ot --override-tensor -cmoe --cpu-moe -ncmoe --n-cpu-moe -ncffn --n-cpu-ffn -sm --split-mode -ts --tensor-split -mg --main-gpu --chat-template --chat-template-file --chat-template-kwargs -rea --reasoning --reasoning-effort --reasoning-format --reasoning-preserve --no-reasoning-preserve --reasoning-budget --skip-chat-parsing --no-skip-chat-parsing --stats-json --trace --version --list-devices -cl --cache-list --completion-bash -v --verbose --log-verbose -lv --verbosity --log-verbosity --log-disable --log-file --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --log-colors -h --help' ;;
        serve) words='-e --escape --no-escape -r --reverse-prompt -sp --special --host --port --api-key --api-key-file -np --parallel --queue -a --alias --tags --kv-unified-per-slot --cache-prompt --no-cache-prompt -sps --slot-prompt-similarity --spec-ngram-mod-shared --no-spec-ngram-mod-shared --slot-save-path --slots --no-slots --metrics --props -to --timeout --sse-ping-interval --grace --cors-origins --cors-methods --cors-headers --cors-credentials --no-cors-credentials --api-prefix --prefill-assistant --no-prefill-assistant --ui --webui --no-ui --no-webui -m --model -hf -hfr --hf-repo -hff --hf-file -hft --hf-token --offline --override-kv --list-models --spec-type --spec-default --spec-adaptive --no-spec-adaptive --spec-order --spec-draft-n-max --spec-draft-n-min --spec-draft-p-min --draft-p-min --spec-draft-conf-min --spec-draft-sampling --spec-draft-tree --spec-draft-p-split --draft-p-split --spec-draft-survival --no-spec-draft-survival --spec-synth-len --spec-synth-rates -md --spec-draft-model --model-draft -hfd -hfrd --spec-draft-hf --hf-repo-draft -ctkd --spec-draft-type-k --cache-type-k-draft -ctvd --spec-draft-type-v --cache-type-v-draft -devd --spec-draft-device --device-draft -ngld --spec-draft-ngl --gpu-layers-draft --n-gpu-layers-draft -td --spec-draft-threads --threads-draft -tbd --spec-draft-threads-batch --threads-batch-draft -Cd --spec-draft-cpu-mask --cpu-mask-draft -Crd --spec-draft-cpu-range --cpu-range-draft --spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft --spec-draft-poll --poll-draft -otd --spec-draft-override-tensor --override-tensor-draft -cmoed --spec-draft-cpu-moe --cpu-moe-draft -ncmoed --spec-draft-n-cpu-moe --spec-draft-ncmoe --n-cpu-moe-draft --spec-ngram-simple-size-n --spec-ngram-simple-size-m --spec-ngram-simple-min-hits --spec-ngram-map-k-size-n --spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits --spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-min-hits --spec-ngram-mod-n-match --spec-ngram-mod-n-min --spec-ngram-mod-n-max -lcs --lookup-cache-static -lcd --lookup-cache-dynamic -s --seed --temp --temperature --top-k --top-p --min-p --top-nsigma --top-n-sigma --typical --typical-p --xtc-probability --xtc-threshold --samplers --sampler-seq --sampling-seq --repeat-last-n --repeat-penalty --presence-penalty --frequency-penalty --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker --adaptive-target --adaptive-decay --dynatemp-range --dynatemp-exp --mirostat --mirostat-lr --mirostat-ent -l --logit-bias --ignore-eos --grammar --grammar-file -j --json-schema -jf --json-schema-file -c --ctx-size -n --predict --n-predict -b --batch-size -ub --ubatch-size -ctk --cache-type-k -ctv --cache-type-v -dev --device -ngl --gpu-layers --n-gpu-layers --kernels --exact -t --threads -tb --threads-batch -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -ot --override-tensor -cmoe --cpu-moe -ncmoe --n-cpu-moe -ncffn --n-cpu-ffn -sm --split-mode -ts --tensor-split -mg --main-gpu --chat-template --chat-template-file --chat-template-kwargs -rea --reasoning --reasoning-effort --reasoning-format --reasoning-budget --skip-chat-parsing --no-skip-chat-parsing --version --list-devices -cl --cache-list --completion-bash -v --verbose --log-verbose -lv --verbosity --log-verbosity --log-disable --log-file --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --log-colors -h --help' ;;
        stats) words='-p --prompt -f --file -bf --binary-file --prompts -e --escape --no-escape -r --reverse-prompt -sp --special --workers --retries --repeat --warmup-runs --n-prompts -cnv --conversation -no-cnv --no-conversation --replay --tune --tune-seconds -np -npl --parallel -kvu --kv-unified -no-kvu --no-kv-unified --server --concurrency --rate --api-key --server-model -to --timeout --stream --no-stream --extra-inputs --speed-bench-json -m --model -hf -hfr --hf-repo -hff --hf-file -hft --hf-token --offline --override-kv --list-models --spec-type --spec-default --spec-adaptive --no-spec-adaptive --spec-order --spec-draft-n-max --spec-draft-n-min --spec-draft-p-min --draft-p-min --spec-draft-conf-min --spec-draft-sampling --spec-draft-tree --spec-draft-p-split --draft-p-split --spec-draft-survival --no-spec-draft-survival --spec-synth-len --spec-synth-rates -md --spec-draft-model --model-draft -hfd -hfrd --spec-draft-hf --hf-repo-draft -ctkd --spec-draft-type-k --cache-type-k-draft -ctvd --spec-draft-type-v --cache-type-v-draft -devd --spec-draft-device --device-draft -ngld --spec-draft-ngl --gpu-layers-draft --n-gpu-layers-draft -td --spec-draft-threads --threads-draft -tbd --spec-draft-threads-batch --threads-batch-draft -Cd --spec-draft-cpu-mask --cpu-mask-draft -Crd --spec-draft-cpu-range --cpu-range-draft --spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft --spec-draft-poll --poll-draft -otd --spec-draft-override-tensor --override-tensor-draft -cmoed --spec-draft-cpu-moe --cpu-moe-draft -ncmoed --spec-draft-n-cpu-moe --spec-draft-ncmoe --n-cpu-moe-draft --spec-ngram-simple-size-n --spec-ngram-simple-size-m --spec-ngram-simple-min-hits --spec-ngram-map-k-size-n --spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits --spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-min-hits --spec-ngram-mod-n-match --spec-ngram-mod-n-min --spec-ngram-mod-n-max -lcs --lookup-cache-static -lcd --lookup-cache-dynamic -s --seed --temp --temperature --top-k --top-p --min-p --top-nsigma --top-n-sigma --typical --typical-p --xtc-probability --xtc-threshold --samplers --sampler-seq --sampling-seq --repeat-last-n --repeat-penalty --presence-penalty --frequency-penalty --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker --adaptive-target --adaptive-decay --dynatemp-range --dynatemp-exp --mirostat --mirostat-lr --mirostat-ent -l --logit-bias --ignore-eos --grammar --grammar-file -j --json-schema -jf --json-schema-file -c --ctx-size -n --predict --n-predict -b --batch-size -ub --ubatch-size -ctk --cache-type-k -ctv --cache-type-v -dev --device -ngl --gpu-layers --n-gpu-layers --kernels --exact -t --threads -tb --threads-batch -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -ot --override-tensor -cmoe --cpu-moe -ncmoe --n-cpu-moe -ncffn --n-cpu-ffn -sm --split-mode -ts --tensor-split -mg --main-gpu --chat-template --chat-template-file --chat-template-kwargs -rea --reasoning --reasoning-effort --json --csv --plot --save --version --list-devices -cl --cache-list --completion-bash -v --verbose --log-verbose -lv --verbosity --log-verbosity --log-disable --log-file --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --log-colors -h --help' ;;
        synth) words='-p --prompt -f --file -bf --binary-file --prompts -e --escape --no-escape -r --reverse-prompt -sp --special --repeat --warmup-runs --n-prompts -cnv --conversation -no-cnv --no-conversation --sweep -m --model -hf -hfr --hf-repo -hff --hf-file -hft --hf-token --offline --override-kv --list-models --spec-type --spec-default --spec-adaptive --no-spec-adaptive --spec-order --spec-draft-n-max --spec-draft-n-min --spec-draft-p-min --draft-p-min --spec-draft-conf-min --spec-draft-sampling --spec-draft-tree --spec-draft-p-split --draft-p-split --spec-draft-survival --no-spec-draft-survival --spec-synth-len --spec-synth-rates -md --spec-draft-model --model-draft -hfd -hfrd --spec-draft-hf --hf-repo-draft -ctkd --spec-draft-type-k --cache-type-k-draft -ctvd --spec-draft-type-v --cache-type-v-draft -devd --spec-draft-device --device-draft -ngld --spec-draft-ngl --gpu-layers-draft --n-gpu-layers-draft -td --spec-draft-threads --threads-draft -tbd --spec-draft-threads-batch --threads-batch-draft -Cd --spec-draft-cpu-mask --cpu-mask-draft -Crd --spec-draft-cpu-range --cpu-range-draft --spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft --spec-draft-poll --poll-draft -otd --spec-draft-override-tensor --override-tensor-draft -cmoed --spec-draft-cpu-moe --cpu-moe-draft -ncmoed --spec-draft-n-cpu-moe --spec-draft-ncmoe --n-cpu-moe-draft --spec-ngram-simple-size-n --spec-ngram-simple-size-m --spec-ngram-simple-min-hits --spec-ngram-map-k-size-n --spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits --spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-min-hits --spec-ngram-mod-n-match --spec-ngram-mod-n-min --spec-ngram-mod-n-max -lcs --lookup-cache-static -lcd --lookup-cache-dynamic -s --seed --temp --temperature --top-k --top-p --min-p --top-nsigma --top-n-sigma --typical --typical-p --xtc-probability --xtc-threshold --samplers --sampler-seq --sampling-seq --repeat-last-n --repeat-penalty --presence-penalty --frequency-penalty --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker --adaptive-target --adaptive-decay --dynatemp-range --dynatemp-exp --mirostat --mirostat-lr --mirostat-ent -l --logit-bias --ignore-eos --grammar --grammar-file -j --json-schema -jf --json-schema-file -c --ctx-size -n --predict --n-predict -b --batch-size -ub --ubatch-size -ctk --cache-type-k -ctv --cache-type-v -dev --device -ngl --gpu-layers --n-gpu-layers --kernels --exact -t --threads -tb --threads-batch -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -ot --override-tensor -cmoe --cpu-moe -ncmoe --n-cpu-moe -ncffn --n-cpu-ffn -sm --split-mode -ts --tensor-split -mg --main-gpu --chat-template --chat-template-file --chat-template-kwargs -rea --reasoning --reasoning-effort --json --csv --plot --version --list-devices -cl --cache-list --completion-bash -v --verbose --log-verbose -lv --verbosity --log-verbosity --log-disable --log-file --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --log-colors -h --help' ;;
        check) words='-m --model -hf -hfr --hf-repo -hff --hf-file -hft --hf-token --offline --override-kv --list-models --spec-type -md --spec-draft-model --model-draft -hfd -hfrd --spec-draft-hf --hf-repo-draft --json --text --version -v --verbose --log-verbose -lv --verbosity --log-verbosity --log-disable --log-file --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --log-colors -h --help' ;;
        convert) words='--outfile --outtype --target-model-dir --mtp --no-mtp --no-nextn --vocab-only --model-name --metadata --remote --offline -hft --hf-token --split-max-tensors --split-max-size --no-tensor-first-split --dry-run --json --check --target-layers --rope-theta --borrow-embeddings --norm-before-residual --no-norm-before-residual --sample-from-anchor --no-sample-from-anchor --version -v --verbose --log-verbose -lv --verbosity --log-verbosity --log-disable --log-file --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --log-colors -h --help' ;;
        *) return ;;
    esac
    if [ "$COMP_CWORD" -eq 2 ]; then
        case $command/$cur in
            */-*) ;;
            stats/*) _specli_reply "$(compgen -W 'show' -- "$cur")"; return ;;
        esac
    fi
    case $cur in
        -*) _specli_reply "$(compgen -W "$words" -- "$cur")" ;;
        *) _specli_files '' "$cur" ;;
    esac
}
complete -F _specli specli
