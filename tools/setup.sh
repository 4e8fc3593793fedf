#!/bin/sh
# Installs what is missing to build (setup.sh build), to fetch a compiler for the cuda device too (setup.sh cuda), or to
# test (setup.sh test), with apt or Homebrew.
# Asks the package manager for nothing when everything is there.
set -eu

debian_build="gcc g++ make cmake ninja-build pkg-config libjansson-dev libpcre2-dev libutf8proc-dev
  libmicrohttpd-dev libedit-dev libcmocka-dev curl jq ca-certificates"
debian_test="python3 python3-venv git chromium chromium-driver haproxy groff-base zsh fish"
debian_cuda="python3 python3-venv"
brew_build="cmake ninja pkg-config jansson pcre2 utf8proc libmicrohttpd libedit cmocka jq"
brew_test="python@3 haproxy groff zsh fish"

case "${1:-build}" in
build) debian="$debian_build"; brew="$brew_build" ;;
cuda) debian="$debian_build $debian_cuda"; brew="$brew_build" ;;
test) debian="$debian_build $debian_test"; brew="$brew_build $brew_test" ;;
*) echo "usage: setup.sh build|cuda|test" >&2; exit 2 ;;
esac

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

if command -v apt-get >/dev/null; then
    missing=""
    for p in $debian; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
    done
    [ -n "$missing" ] || exit 0
    echo "installing:$missing"
    as_root apt-get update -qq
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing >/dev/null
elif command -v brew >/dev/null; then
    have=" $(brew list --formula -1 | tr '\n' ' ') "
    missing=""
    for p in $brew; do
        case "$have" in *" $p "* | *" $p@"*) ;; *) missing="$missing $p" ;; esac
    done
    [ -n "$missing" ] || exit 0
    echo "installing:$missing"
    # shellcheck disable=SC2086
    brew install --quiet $missing
else
    echo "neither apt-get nor brew is here; Lily needs: $debian" >&2
    exit 1
fi
