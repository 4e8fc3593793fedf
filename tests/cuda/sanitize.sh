#!/bin/sh
# The cuda device under compute-sanitizer: a prompt of 70 tokens and 4 decoded tokens, fused rows, single ones and those of
# other cards, on small checkpoints, with each of the tools.
#   sanitize.sh LILY CHECKPOINT… [-- TOOL…]       tools: memcheck, racecheck, synccheck (all)
# Ends with 77, which ctest calls skipped, where there is no compute-sanitizer or no GPU.
set -u
lily=$1; shift
models=
while [ $# -gt 0 ] && [ "$1" != -- ]; do models="$models $1"; shift; done
[ $# -gt 0 ] && shift
tools=${*:-memcheck racecheck synccheck}
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
[ -x "$sanitizer" ] || { echo "skipped: compute-sanitizer is not installed"; exit 77; }
case $("$lily" --version) in
*"cuda: built, but"* | *"cuda: not built"*) "$lily" --version; echo "skipped: no GPU"; exit 77 ;;
esac
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
awk 'BEGIN { for (i = 0; i < 74; i++) printf "%s%d", i ? ", " : "[", i * 7919 % 997; print "]" }' > "$work/ids"
fused=$("$lily" score --help | grep -q -- --without && echo fuse-expert-up,fuse-expert-down,fuse-qk,fuse-scan-norm,matrix-scan)
failed=0
for model in $models; do
    for tool in $tools; do
        for without in "" "$fused" portable; do
            start=$(date +%s) device=cuda
            [ "$without" = portable ] && without= device=cuda:portable
            "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 "$lily" score --model "$model" --device $device \
                --ctx-size 256 --ids "$work/ids" --windows 70,1,1,1,1 ${without:+--without "$without"} > "$work/log" 2>&1
            code=$?
            echo "$tool, $(basename "$model"), $device${without:+, without $without}: exit $code, $(grep 'ERROR SUMMARY\|RACECHECK SUMMARY' "$work/log" | tail -1 | sed 's/=* *//'), $(($(date +%s) - start)) s"
            [ $code -eq 0 ] && continue
            failed=1
            # Which kernel and where: the first reports without the stack of the host, and what lily said last.
            grep '^=========' "$work/log" | grep -v 'Host Frame\|COMPUTE-SANITIZER\|^=========[[:space:]]*$' | head -30
            grep -v "^=========" "$work/log" | tail -3
        done
    done
done
exit $failed
