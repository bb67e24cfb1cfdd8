/* overrun.cu - writes one word past the end of an allocation, for compute-sanitizer to find; with
 * "clean" it does not. */
#include <cstdio>
#include <cstring>

#include <cuda_runtime.h>

__global__ void write_at(int *p, int at)
{
	p[at] = 1;
}

int main(int argc, char **argv)
{
	bool clean = argc > 1 && !strcmp(argv[1], "clean");
	int *p, *q;

	cudaMalloc(&p, 1000 * sizeof(int));
	cudaMalloc(&q, 1000 * sizeof(int));
	write_at<<<1, 1>>>(p, clean ? 999 : 1000);
	printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
	cudaFree(p);
	cudaFree(q);
	return 0;
}
