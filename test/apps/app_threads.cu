/* app_threads.cu - eight threads, each with two streams, allocate in both ways and verify contents.
 *
 * Every block is filled with a value of its own and read back before it is freed: a block that two
 * owners had at once shows. Threads hand blocks to each other too, so that memory is freed by
 * another thread than the one that asked for it.
 */
#include <pthread.h>

#include "test/apps/app.h"

#define THREADS 8
#define STEPS 300
#define SLOTS 12

struct block {
	void *ptr;
	size_t bytes;
	unsigned char value;
	bool async;
};

struct thread {
	pthread_t id;
	unsigned index;
	cudaStream_t stream[2];
	uint32_t random;
	unsigned long verified;
};

/* What one thread leaves for another to free; lock: hand_lock. */
static pthread_mutex_t hand_lock = PTHREAD_MUTEX_INITIALIZER;
static struct block handed;

static uint32_t next_random(struct thread *self)
{
	self->random = self->random * 1664525u + 1013904223u;
	return self->random >> 8;
}

static struct block take(struct thread *self)
{
	cudaStream_t stream = self->stream[next_random(self) & 1];
	struct block block;

	block.bytes = 1 + next_random(self) % 200000;
	block.value = (unsigned char)next_random(self);
	block.async = next_random(self) & 1;
	if (block.async)
		CHECK(cudaMallocAsync(&block.ptr, block.bytes, stream));
	else
		CHECK(cudaMalloc(&block.ptr, block.bytes));
	CHECK(cudaMemsetAsync(block.ptr, block.value, block.bytes, stream));
	CHECK(cudaStreamSynchronize(stream));
	return block;
}

static void verify_and_free(struct thread *self, struct block *block)
{
	cudaStream_t stream = self->stream[next_random(self) & 1];

	if (!holds_byte(block->ptr, block->value, block->bytes))
		DIE("thread %u: a block of %zu bytes lost its contents", self->index, block->bytes);
	self->verified++;
	if (block->async && (next_random(self) & 1))
		CHECK(cudaFreeAsync(block->ptr, stream));
	else
		CHECK(cudaFree(block->ptr));
	block->ptr = NULL;
}

/* Leave @block for whoever comes next, and take what was left there. */
static struct block exchange(struct block block)
{
	struct block other;

	pthread_mutex_lock(&hand_lock);
	other = handed;
	handed = block;
	pthread_mutex_unlock(&hand_lock);
	return other;
}

static void *body(void *arg)
{
	struct thread *self = (struct thread *)arg;
	struct block slots[SLOTS] = {};

	CHECK(cudaSetDevice(0));
	for (auto &stream : self->stream)
		CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (int step = 0; step < STEPS; step++) {
		struct block *slot = &slots[next_random(self) % SLOTS];

		if (!slot->ptr)
			*slot = take(self);
		else if (next_random(self) % 4 == 0)
			*slot = exchange(*slot);
		else
			verify_and_free(self, slot);
	}
	for (auto &slot : slots) {
		if (slot.ptr)
			verify_and_free(self, &slot);
	}
	for (auto stream : self->stream) {
		CHECK(cudaStreamSynchronize(stream));
		CHECK(cudaStreamDestroy(stream));
	}
	return NULL;
}

int main(void)
{
	struct thread threads[THREADS] = {};
	unsigned long verified = 0;

	for (unsigned i = 0; i < THREADS; i++) {
		threads[i].index = i;
		threads[i].random = 77 + i;
		if (pthread_create(&threads[i].id, NULL, body, &threads[i]))
			DIE("pthread_create");
	}
	for (auto &thread : threads) {
		pthread_join(thread.id, NULL);
		verified += thread.verified;
	}
	if (handed.ptr) {
		if (!holds_byte(handed.ptr, handed.value, handed.bytes))
			DIE("the block between threads lost its contents");
		CHECK(cudaFree(handed.ptr));
	}
	expect(verified > THREADS * STEPS / 4, "blocks of 8 threads verified");
	CHECK(cudaDeviceSynchronize());
	checkpoint("all freed");
	say("app_threads: done");
	return 0;
}
