#!/bin/sh
# The test suite under AddressSanitizer + UndefinedBehaviorSanitizer, then the threaded tests under ThreadSanitizer.
# sanitize.sh soak [SECONDS]: in place of that, many clients for so long (600) on the first build.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
python=$here/build/venv/bin/python
export LSAN_OPTIONS="suppressions=$here/tools/lsan.supp:print_suppressions=0"
run() { # NAME SANITIZERS CTEST_ARGS…
    dir=$here/build-$1; san=$2; shift 2
    cmake -S "$here" -B "$dir" -G Ninja -DLILY_SANITIZE="$san" -DLILY_PYTHON="$python" >/dev/null
    cmake --build "$dir"
    ctest --test-dir "$dir" --output-on-failure "$@"
}
if [ "${1:-}" = soak ]; then
    run asan address,undefined -N >/dev/null
    # What was freed is kept for a while to catch its use; keep little, since memory is measured.
    ASAN_OPTIONS=quarantine_size_mb=16 exec "$python" -m pytest -q -s -p no:cacheprovider --build-dir "$here/build-asan" \
        --seconds "${2:-600}" "$here/tests/soak"
fi
run asan address,undefined -LE 'all|nightly'
run tsan thread -LE 'all|nightly' -L threads
