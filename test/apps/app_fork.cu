/* app_fork.cu - forks before and after CUDA began; the children print what their calls return.
 *
 * Before: the child is a fresh CUDA program. After: CUDA refuses the child with error 3, whatever
 * it calls; the parent goes on. Children print before the parent does: it waits for each.
 */
#include <sys/wait.h>

#include "test/apps/app.h"

static void report(const char *what, cudaError_t error)
{
	say("child: %s: %d", what, (int)error);
}

/* What a child of a process that had used CUDA gets. */
static int refused(void *parents)
{
	size_t free_bytes, total_bytes;
	cudaStream_t stream;
	void *ptr = NULL;

	report("cudaMalloc", cudaMalloc(&ptr, 1000));
	report("cudaFree of the parent's", cudaFree(parents));
	report("cudaMallocAsync", cudaMallocAsync(&ptr, 1000, 0));
	report("cudaMallocManaged", cudaMallocManaged(&ptr, 1000));
	report("cudaMallocHost", cudaMallocHost(&ptr, 1000));
	report("cudaMemGetInfo", cudaMemGetInfo(&free_bytes, &total_bytes));
	report("cudaStreamCreate", cudaStreamCreate(&stream));
	report("cudaDeviceSynchronize", cudaDeviceSynchronize());
	return 0;
}

/* A child of a process that had not: everything works. */
static int fresh(void)
{
	void *ptr;

	CHECK(cudaMalloc(&ptr, 3 << 20));
	CHECK(cudaMemset(ptr, 6, 3 << 20));
	expect(holds_byte(ptr, 6, 3 << 20), "child: memory of its own");
	checkpoint_as("child", 1, "in a child forked before CUDA");
	CHECK(cudaFree(ptr));
	return 0;
}

static void reap(pid_t pid, const char *what)
{
	int status = 0;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		DIE("fork or waitpid");
	expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, what);
}

int main(void)
{
	void *ptr;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0)
		exit(fresh());
	reap(pid, "a child forked before CUDA");

	CHECK(cudaMalloc(&ptr, 1 << 20));
	CHECK(cudaMemset(ptr, 1, 1 << 20));
	CHECK(cudaDeviceSynchronize());
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		exit(refused(ptr));
	reap(pid, "a child forked after CUDA, leaving by exit");
	pid = fork();
	if (pid == 0)
		_exit(0);
	reap(pid, "a child that leaves by _exit at once");

	expect(holds_byte(ptr, 1, 1 << 20), "the parent's memory");
	checkpoint("the parent after its children");
	CHECK(cudaFree(ptr));
	checkpoint("freed");
	say("app_fork: done");
	return 0;
}
