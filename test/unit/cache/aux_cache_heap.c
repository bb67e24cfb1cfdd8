/*
 * aux_cache_heap.c - heaps of the cache on a driver of the test's own: see aux_cache_heap.h.
 */
#include "recorder/journal/state.h"
#include "preload/options/options.h"
#include "preload/cache/thread_cache.h"
#include "test/unit/cache/aux_cache_heap.h"
#include "test/unit/journal/aux_journal.h"
#include "test/suite.h"

#include <errno.h>
#include <pthread.h>

#define FREED 256u

struct aux_driver aux_driver;
bool aux_tcache;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct freed { uint64_t address, bytes; } freed[FREED];
static unsigned int freed_count;

void aux_driver_begin(uint64_t capacity)
{
	aux_driver = (struct aux_driver){ .next = UINT64_C(0x7e0000000000), .capacity = capacity };
	freed_count = 0;
}

/* What was freed last is handed out first, as drivers do. */
static uint64_t address_for(uint64_t bytes)
{
	for (unsigned int i = freed_count; i-- > 0;)
		if (freed[i].bytes == bytes) {
			uint64_t address = freed[i].address;

			freed[i] = freed[--freed_count];
			return address;
		}
	aux_driver.next += bytes;
	return aux_driver.next - bytes;
}

static int driver_alloc(void *arg, uint64_t bytes, uint64_t stream, uint64_t *ret_address)
{
	int r = -ENOMEM;

	(void)stream;
	if (aux_driver.between)
		aux_driver.between();
	pthread_mutex_lock(&mutex);
	aux_driver.calls++;
	if (((struct gm_cache_heap *)arg)->context >= AUX_ENDLESS) {
		*ret_address = aux_driver.next += bytes;
		aux_driver.next += bytes;
		r = 0;
	} else if ((!aux_driver.fail_at || aux_driver.calls < aux_driver.fail_at) &&
	    bytes <= aux_driver.capacity - aux_driver.used) {
		aux_driver.used += bytes;
		*ret_address = address_for(bytes);
		r = 0;
	}
	pthread_mutex_unlock(&mutex);
	return r;
}

static void driver_free(void *arg, uint64_t address, uint64_t bytes, uint64_t stream)
{
	(void)stream;
	if (aux_driver.between)
		aux_driver.between();
	if (((struct gm_cache_heap *)arg)->context >= AUX_ENDLESS)
		return;
	pthread_mutex_lock(&mutex);
	AUX_MUST(aux_driver.used >= bytes);
	aux_driver.used -= bytes;
	if (freed_count < FREED)
		freed[freed_count++] = (struct freed){ address, bytes };
	pthread_mutex_unlock(&mutex);
}

static void settle(void *arg)
{
	(void)arg;
	if (aux_driver.settle)
		aux_driver.settle();
}

static struct gm_heap_ops ops = { .driver_alloc = driver_alloc, .driver_free = driver_free, .synchronize = settle };

static void fill_in(void)
{
	gm_cache_heap_records(&ops);
}

struct gm_cache_heap *aux_heap(uint8_t domain, uint8_t kind, uint32_t context, const char *conf,
			   uint64_t limit)
{
	static pthread_once_t filled_in = PTHREAD_ONCE_INIT;
	struct gm_heap_config config;
	struct gm_cache_heap_setup setup = {
		.config = &config, .ops = &ops, .context = context, .domain = domain,
		.kind = kind, .thread_cache = aux_tcache,
	};
	struct gm_cache_heap *heap = NULL;
	char error[GM_OPTION_ERROR_BYTES];

	pthread_once(&filled_in, fill_in);
	if (!gm_get(&gm_rec.caches)) {		/* a new journal */
		gm_cache_heap_begin();
		gm_tcache_begin(gm_cache_heap_free_late);
	}
	AUX_MUST(gm_options_heap_parse(&config, conf, false, error) == 0);
	config.limit = limit;
	AUX_MUST(gm_cache_heap_new(&setup, &heap) == 0);
	return heap;
}

struct gm_alloc aux_request(uint64_t bytes, uint64_t stream, uint16_t module)
{
	return (struct gm_alloc){ .requested = bytes, .stream = stream, .module = module };
}

int aux_serve(struct gm_cache_heap *heap, struct gm_alloc *alloc, uint32_t *ret_block)
{
	uint64_t op = gm_op_begin(GM_ACTION_ALLOC, GM_KIND_DEVICE, 0, 0, alloc->requested);
	int r = gm_cache_heap_alloc(heap, op, alloc, ret_block);

	if (r == -EAGAIN)
		r = gm_cache_heap_grow(heap, op, alloc, ret_block);
	gm_op_end(op);
	return r;
}

static enum gm_cache_when answer(void *arg, uint32_t block, uint32_t number, uint64_t bytes)
{
	(void)block;
	(void)number;
	(void)bytes;
	return *(bool *)arg ? GM_FREE_NOW : GM_FREE_LATER;
}

int aux_release(struct gm_cache_heap *heap, uint32_t block, uint64_t address, bool now)
{
	struct gm_cache_free how = { .tsc = gm_stamp_before(), .when = answer, .arg = &now,
				      .stack = GM_STACK_OF_BLOCK };
	uint64_t op = gm_op_begin(GM_ACTION_FREE_REQUESTED, GM_KIND_DEVICE, 0, address, 0);
	int r = gm_cache_heap_free(heap, op, block, address, &how);

	gm_op_end(op);
	return r;
}

void aux_complete(struct gm_cache_heap *heap, uint32_t block)
{
	struct gm_reuse_item item = { .block = block, .owner = heap->number };

	gm_cache_heap_complete(&item, 1);
}

int aux_check_heaps(void)
{
	int bad = 0;

	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, GM_CACHE_ALL));)
		bad += gm_cache_heap_check(heap);
	return bad;
}
