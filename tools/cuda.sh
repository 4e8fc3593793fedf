#!/bin/sh
# tools/cuda.sh BUILD [fetch]: an nvcc for the cuda device.  Takes the one that is installed, else (or with `fetch`) puts
# NVIDIA's packages from PyPI into BUILD/cuda, where cmake/cuda.cmake looks.
set -eu
build=$1
version=13.0
for nvcc in "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc "$build/cuda/nvidia/cu13/bin/nvcc"; do
    if [ "${2:-}" != fetch ] && [ -x "$nvcc" ]; then
        echo "nvcc: $nvcc"
        exit 0
    fi
done
python3 -c 'import ensurepip, venv' 2>/dev/null || {
    echo "cuda: python3 with venv is needed to fetch nvcc: run 'make setup DEVICE=cuda' once, or install a CUDA toolkit" >&2
    exit 1
}
echo "nvcc: fetching $version from PyPI into $build/cuda"
python3 -m venv "$build/cuda-venv"
"$build/cuda-venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$build/cuda" \
    "nvidia-cuda-nvcc==$version.*" "nvidia-cuda-crt==$version.*" "nvidia-nvvm==$version.*" \
    "nvidia-cuda-runtime==$version.*" "nvidia-cuda-cccl==$version.*"
rm -rf "$build/cuda-venv"
ln -sfn lib "$build/cuda/nvidia/cu13/lib64"        # where nvcc looks for the runtime that it links
test -x "$build/cuda/nvidia/cu13/bin/nvcc"
