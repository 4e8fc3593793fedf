#!/bin/sh
# The nvcc that tools/cuda.sh fetches makes a program that links and runs: test_cuda_toolkit.sh REPOSITORY
set -eu
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
"$1/tools/cuda.sh" "$room" fetch
cat > "$room/count.cu" <<'END'
#include <cstdio>
__global__ void nothing(int *p) { *p = 1; }
int main(void)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    std::printf("%d GPUs (%s)\n", n, cudaGetErrorString(e));
    return 0;
}
END
"$room/cuda/nvidia/cu13/bin/nvcc" -arch=sm_90 -o "$room/count" "$room/count.cu"
"$room/count"
