#!/bin/bash
# gpu.sh MODEL OUT [STEP…] - all measurements of the cuda device at full size, as raw JSON lines (docs/results-schema.md).
#
# MODEL is made when there is none (20 GB). OUT, a file of bench/results, begins with a line about the machine; each
# command's lines follow one that names it. Steps, all by default; in brackets what each takes on an H200:
#   check    the tests that need a GPU and compute-sanitizer, whole, into OUT with -check.txt for .jsonl (240 s); first,
#            since what follows is worth little where they fail
#   speed    prompts and replies at 256 to 4096 tokens (15 s)
#   long     … at 32K, 64K and 128K (60 s)
#   ablate   every switch in pairs, at 512 to 4096 tokens (60 s)
#   deep     … at 32K, 64K and 128K, but prompt-chunks, which reads whole prompts (80 s)
#   chunks   prompt-chunks at 32K (20 s)
#   verify   runs of one to five tokens, as speculation would need them (20 s)
#   kernels  kernels against their rivals and plain reads (60 s)
set -u
cd "$(dirname "$0")/.." || exit 1
model=${1:?model folder} out=${2:?file} build=build
shift 2
[ $# -gt 0 ] || set -- check speed long ablate deep chunks verify kernels
[ -f "$model/config.json" ] || $build/mkckpt full "$model" || exit 1

say() { printf '%s\n' "$1" >> "$out"; }
ran() {
    local start=$SECONDS
    say "{\"command\": \"$*\", \"date\": \"$(date -u +%FT%TZ)\"}"
    "$@" >> "$out" || echo "gpu.sh: $1 ended with $?" >&2
    echo "$((SECONDS - start)) s: $*" >&2
}
checked() {
    local start=$SECONDS log=${out%.jsonl}-check.txt
    echo "== $*" >> "$log"
    "$@" >> "$log" 2>&1
    local code=$?
    echo "== ended with $code after $((SECONDS - start)) s" >> "$log"
    [ $code -eq 0 ] || echo "gpu.sh: $* ended with $code, see $log" >&2
}
lily() { local verb=$1; shift; ran $build/lily "$verb" --model "$model" --device cuda --chunk 4096 --json "$@"; }
switches() { sed -n 's/^X([A-Z_]*, *"\([a-z-]*\)".*/\1/p' src/plan/ablate.def | grep -vx "$1" | paste -sd,; }

IFS=, read -r gpu driver <<< "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)"
say "{\"gpu\": \"$gpu\", \"driver\": \"${driver# }\", \"commit\": \"$(git rev-parse --short HEAD)\", \"date\": \"$(date -u +%FT%TZ)\"}"

for step; do
    case $step in
    check)
        for set in "" portable; do
            checked $build/tests/test_cuda_rows $set
            checked $build/tests/test_cuda_device $set
        done
        checked $build/tests/test_cuda_attention
        for test in disk engine engine_sampling engine_queue engine_faults engine_score engine_turns engine_handoff; do
            checked $build/tests/test_$test cuda
        done
        checked tests/cuda/sanitize.sh $build/lily models/demo $build/tests/ck/odd ;;
    speed)  lily bench --lengths 256,512,1024,2048,3840,4096 --decode 64 --samples 5 --ctx-size 8192 ;;
    long)   lily bench --lengths 32768,65536,131072 --decode 64 --samples 2 --ctx-size 132096 ;;
    ablate) lily ablate --lengths 512,2048,3840,4096 --decode 32 --samples 8 --seconds 0.4 --ctx-size 8192 \
                --switches "$(switches prompt-chunks)" ;;
    deep)   lily ablate --lengths 32768,65536,131072 --decode 32 --samples 6 --seconds 0.5 --ctx-size 132096 \
                --switches "$(switches prompt-chunks)" ;;
    chunks) lily ablate --lengths 32768 --decode 16 --samples 4 --ctx-size 40960 --switches prompt-chunks ;;
    verify) lily bench --verify 1,2,3,4,5 --lengths 512,4096,32768 --decode 60 --samples 3 --ctx-size 40960 ;;
    kernels)
        for kernel in decode_gemv decode_attention prefill_gemm prefill_delta prefill_attention; do
            [ ! -x $build/bench/$kernel ] || ran $build/bench/$kernel
        done
        [ ! -x $build/bench/token_parts ] || ran $build/bench/token_parts "$model"
        [ ! -x $build/bench/stages ] || ran $build/bench/stages "$model" ;;
    *) echo "gpu.sh: no step is called $step" >&2; exit 1 ;;
    esac
done
