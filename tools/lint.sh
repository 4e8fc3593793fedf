#!/bin/sh
# What the compiler does not check.  lint.sh rules: layers, sizes, private paths (a test runs it).  lint.sh: these,
# then the static analysers shellcheck and cppcheck where they are installed.
set -eu
cd "$(dirname "$0")/.."
if ! git rev-parse --git-dir >/dev/null 2>&1; then
    echo "lint skipped: not a git checkout"
    exit 0
fi
bad=0
fail() { echo "lint: $*" >&2; bad=1; }

# A folder includes only from itself and from folders above it.
order="base checkpoint model text plan device sample run api cli"
allowed=""
for part in $order; do
    allowed="$allowed $part"
    pattern=$(echo "${allowed# }" | tr ' ' '|')
    grep -rnE '^#include "' "src/$part" 2>/dev/null |
        grep -vE "#include \"(($pattern)/[a-z0-9_/.-]+|version\.h)\"" |
        while read -r line; do fail "layer: $line"; echo x >.lint-bad; done
done
[ ! -f .lint-bad ] || { rm -f .lint-bad; bad=1; }

for f in $(git ls-files '*.c' '*.h' '*.cu' '*.m' '*.py' '*.sh'); do
    [ -f "$f" ] || continue
    lines=$(wc -l <"$f")
    [ "$lines" -le 1200 ] || fail "$f has $lines lines"
done

if git grep -nIE '(^|[^a-zA-Z.])/(work|farm|home|root)/' -- . ':!tools/lint.sh' ':!LICENSE'; then fail "paths of one machine"; fi
if git grep -nIE 'TODO|FIXME|(^|[^X])XXX([^X]|$)|HACK' -- 'src' 'include' 'tools' ':!tools/lint.sh'; then fail "unfinished work"; fi

[ "${1:-}" != rules ] || exit $bad

for tool in shellcheck cppcheck; do
    command -v $tool >/dev/null || echo "lint: $tool is not installed, its checks are skipped"
done
if command -v shellcheck >/dev/null; then shellcheck tools/*.sh .ci/run || bad=1; fi
if command -v cppcheck >/dev/null; then
    cppcheck --std=c11 --quiet --error-exitcode=1 --inline-suppr --suppress=missingIncludeSystem \
        --suppress=invalidFunctionArg --suppress=arrayIndexThenCheck --suppress=normalCheckLevelMaxBranches --enable=warning,portability \
        -D__x86_64__=1 -D_GNU_SOURCE --include=tools/cppcheck.h \
        -Isrc -Ibuild/generated src || bad=1
fi
exit $bad
