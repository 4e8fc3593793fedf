#!/bin/sh
# The test suite under AddressSanitizer + UndefinedBehaviorSanitizer, then the threaded tests under ThreadSanitizer.
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
run asan address,undefined -LE 'all|nightly'
run tsan thread -LE 'all|nightly' -L threads
