#!/bin/sh
# llama.cpp beside Lily on one GPU: builds the peer, writes its model, runs both alternating and prints the ratios.
#   bench/peers/llama.sh MODEL WORK [OPTIONS of against.py …]
# MODEL: the full-size checkpoint (build/mkckpt full MODEL). WORK: a folder with 20 GB of room; what is there already is
# taken. Needs cmake, ninja, nvcc, numpy and, for the sources (the PyPI package llama-cpp-python holds them), the network.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
model=$1; work=$2; shift 2
version=0.3.36
source=$work/llama_cpp_python-$version/vendor/llama.cpp
mkdir -p "$work"
if [ ! -e "$work/bin/llama_speed" ]; then
    if [ ! -e "$source" ]; then
        python3 -m pip download -q --no-binary :all: --no-deps -d "$work" llama-cpp-python==$version
        tar -xzf "$work/llama_cpp_python-$version.tar.gz" -C "$work"
    fi
    cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_CUDA=ON -DGGML_CUDA_NCCL=OFF \
        -DCMAKE_CUDA_ARCHITECTURES="${ARCHITECTURES:-90a-real}" -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF \
        -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_OPENSSL=OFF
    cmake --build "$work/build"
    mkdir -p "$work/bin"
    cc -O2 -I "$source/include" -I "$source/ggml/include" "$here/llama_speed.c" -o "$work/bin/llama_speed" \
        -L "$work/build/bin" -lllama -lggml -lggml-base -Wl,-rpath,"$work/build/bin"
fi
[ -e "$work/q4_k.gguf" ] || { python3 "$here/gen_gguf.py" "$work/part.gguf"; mv "$work/part.gguf" "$work/q4_k.gguf"; }
exec python3 "$here/against.py" --lily "${LILY:-$here/../../build/lily}" --model "$model" --peer "$work/bin/llama_speed" \
    --gguf "$work/q4_k.gguf" "$@"
