/* app_exceptions.cu - C++ exceptions through frames that hold device memory, and memory freed by
 * destructors after main has returned.
 *
 * An interposer must not disturb unwinding, nor the calls that arrive while the process ends. What
 * those late calls return depends on how the driver shuts down: it is printed, not judged.
 */
#include <stdexcept>
#include <string>

#include "test/apps/app.h"

class buffer {
public:
	explicit buffer(size_t bytes)
	{
		cudaError_t error = cudaMalloc(&ptr, bytes);

		if (error != cudaSuccess) {
			cudaGetLastError();
			throw std::runtime_error(cudaGetErrorName(error));
		}
		live++;
	}
	~buffer()
	{
		cudaError_t error = cudaFree(ptr);

		live--;
		if (error != cudaSuccess)
			fprintf(stderr, "cudaFree in a destructor: %s\n", cudaGetErrorName(error));
	}
	buffer(const buffer &) = delete;
	buffer &operator=(const buffer &) = delete;
	static int live;

private:
	void *ptr = nullptr;
};
int buffer::live;

/* Frees in its destructor, after main; does not throw there. */
struct late {
	const char *name;
	void *ptr = nullptr;

	~late()
	{
		if (ptr)
			say("%s: cudaFree returns %d", name, (int)cudaFree(ptr));
	}
};
static late global = { "a global's destructor" };

static void *held_by_atexit;

static void at_exit(void)
{
	say("atexit: cudaFree returns %d", (int)cudaFree(held_by_atexit));
}

static int recurse(int depth)
{
	buffer here((size_t)depth * 1000 + 1);

	if (depth == 0)
		throw std::string("from the bottom");
	return recurse(depth - 1) + 1;
}

static void through_frames(void)
{
	bool caught = false;

	try {
		recurse(20);
	} catch (const std::string &what) {
		caught = what == "from the bottom";
	}
	expect(caught && buffer::live == 0, "an exception through 21 frames");
}

static void out_of_memory(void)
{
	size_t free_bytes, total_bytes;
	bool caught = false;

	CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
	for (int i = 0; i < 3; i++) {
		try {
			buffer small(1 << 20);
			buffer large(2 * total_bytes);
		} catch (const std::runtime_error &error) {
			caught = !strcmp(error.what(), "cudaErrorMemoryAllocation");
		}
	}
	expect(caught && buffer::live == 0, "an exception for memory that there is not");
}

static void many(void)
{
	int caught = 0;

	for (int i = 0; i < 1000; i++) {
		try {
			buffer one((size_t)i + 1);

			if (i % 3 == 0)
				throw i;
		} catch (int) {
			caught++;
		}
	}
	expect(caught == 334 && buffer::live == 0, "a thousand, a third of them thrown");
}

int main(void)
{
	static late local = { "a static local's destructor" };

	through_frames();
	out_of_memory();
	many();
	checkpoint("all freed");
	CHECK(cudaMalloc(&global.ptr, 1 << 20));
	CHECK(cudaMalloc(&local.ptr, 2 << 20));
	CHECK(cudaMalloc(&held_by_atexit, 3 << 20));
	if (atexit(at_exit))
		DIE("atexit");
	checkpoint("held past main");
	say("app_exceptions: done");
	return 0;
}
