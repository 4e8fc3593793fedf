#!/bin/sh
# Each libFuzzer target for SECONDS (default 60). Needs clang; says so and ends well where there is none.
set -eu
seconds=${1:-60}
here=$(cd "$(dirname "$0")/.." && pwd)
if ! command -v clang >/dev/null; then
    echo "fuzzing skipped: clang is not installed"
    exit 0
fi
dir=$here/build-fuzz
CC=clang CXX=clang++ cmake -S "$here" -B "$dir" -G Ninja -DLILY_FUZZ=ON -DLILY_SANITIZE=address,undefined >/dev/null
cmake --build "$dir"
for target in "$dir"/fuzz/fuzz_*; do
    [ -x "$target" ] || continue
    name=$(basename "$target")
    corpus=$dir/corpus/$name
    seeds=$here/tests/fuzz/seeds/${name#fuzz_}
    mkdir -p "$corpus"
    [ -d "$seeds" ] || seeds=""
    echo "== $name, $seconds s"
    # shellcheck disable=SC2086
    "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 \
        -artifact_prefix="$dir/" "$corpus" $seeds
done
