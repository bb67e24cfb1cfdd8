/* app_random.c - a random program: memory of every kind made, mapped, freed rightly and wrongly, in
 * contexts that come and go, on two devices; a checkpoint every so often. The same seed makes the
 * same program.
 *
 * usage: app_random [seed [steps]]
 * Thread context: one thread.
 */
#include "test/apps/drv.h"

#define THINGS 200
#define CONTEXTS 6		/* 0 and 1: the primary ones, which stay */
#define PAGE ((size_t)2 << 20)
#define WINDOW 64u		/* pages of reserved addresses */

enum kind { NOTHING, LINEAR, PITCHED, MANAGED, HOST, ARRAY, PYRAMID, ASYNC, FROM_POOL, HANDLE, KINDS };

struct thing {
	enum kind kind;
	int context;		/* it dies with that one; -1: with none */
	uint64_t value;
	unsigned int pages;	/* of a handle */
};

static struct thing things[THINGS];
static CUcontext contexts[CONTEXTS];
static CUmemoryPool pools[2];
static CUdeviceptr window;
static unsigned int mapped[WINDOW];	/* pages of the mapping that begins there */
static bool taken[WINDOW];
static int current;
static uint64_t state;
static unsigned long refused;

static unsigned int draw(unsigned int below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (unsigned int)(state >> 33) % below;
}

static int device_of(int context)
{
	return context & 1;
}

static void choose_context(int context)
{
	CHECK(cuCtxSetCurrent(contexts[context]));
	current = context;
}

/* ---- one step of each sort ---- */

static CUresult make_array(struct thing *thing, bool levels)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { .Width = 1 + draw(300), .Height = draw(200),
					 .Format = CU_AD_FORMAT_UNSIGNED_INT16,
					 .NumChannels = 1u << draw(3) };
	CUmipmappedArray pyramid = NULL;
	CUarray array = NULL;
	CUresult r;

	if (!levels)
		desc.Depth = desc.Height ? draw(20) : 0;
	r = levels ? cuMipmappedArrayCreate(&pyramid, &desc, 1 + draw(3))
		   : cuArray3DCreate(&array, &desc);
	thing->value = levels ? (uintptr_t)pyramid : (uintptr_t)array;
	return r;
}

static CUresult make_handle(struct thing *thing)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
						   .id = (int)draw(2) } };
	CUmemGenericAllocationHandle handle;
	CUresult r;

	thing->pages = 1 + draw(4);
	r = cuMemCreate(&handle, thing->pages * PAGE, &prop, 0);
	thing->value = handle;
	return r;
}

static void make(struct thing *thing)
{
	size_t pitch, bytes = 1 + draw(1u << (4 + draw(18)));
	CUdeviceptr ptr = 0;
	void *host = NULL;
	CUresult r;

	thing->context = current;
	thing->kind = (enum kind)(1 + draw(KINDS - 1));
	switch (thing->kind) {
	case LINEAR:
		r = cuMemAlloc(&ptr, bytes);
		break;
	case PITCHED:
		r = cuMemAllocPitch(&ptr, &pitch, 1 + draw(2000), 1 + draw(100), 4);
		break;
	case MANAGED:
		r = cuMemAllocManaged(&ptr, bytes, CU_MEM_ATTACH_GLOBAL);
		break;
	case HOST:
		r = cuMemHostAlloc(&host, bytes, 0);
		ptr = (uintptr_t)host;
		break;
	case ASYNC:
		r = cuMemAllocAsync(&ptr, bytes, NULL);
		thing->context = -1;
		break;
	case FROM_POOL:
		r = cuMemAllocFromPoolAsync(&ptr, bytes, pools[draw(2)], NULL);
		thing->context = -1;
		break;
	case HANDLE:
		r = make_handle(thing);
		ptr = thing->value;
		thing->context = -1;
		break;
	default:
		r = make_array(thing, thing->kind == PYRAMID);
		ptr = thing->value;
		break;
	}
	thing->value = ptr;
	if (r) {
		refused++;
		thing->kind = NOTHING;
	}
}

static CUresult end(const struct thing *thing, enum kind as)
{
	switch (as) {
	case HOST:
		return cuMemFreeHost((void *)(uintptr_t)thing->value);
	case ARRAY:
		return cuArrayDestroy((CUarray)(uintptr_t)thing->value);
	case PYRAMID:
		return cuMipmappedArrayDestroy((CUmipmappedArray)(uintptr_t)thing->value);
	case ASYNC:
	case FROM_POOL:
		return draw(2) ? cuMemFreeAsync(thing->value, NULL) : cuMemFree(thing->value);
	case HANDLE:
		return cuMemRelease(thing->value);
	case LINEAR:
		return draw(8) ? cuMemFree(thing->value) : cuMemFreeAsync(thing->value, NULL);
	default:
		return cuMemFree(thing->value);
	}
}

/* Pointers that are not to be freed like this: the wrong door, or the inside. */
static void end_wrongly(const struct thing *thing)
{
	struct thing inside = *thing;

	switch (thing->kind) {
	case LINEAR:
	case MANAGED:
	case ASYNC:
		inside.value++;
		refused += end(draw(2) ? &inside : thing, HOST) != 0;
		break;
	case HOST:
		refused += end(thing, LINEAR) != 0;
		break;
	default:
		break;
	}
}

static void map(const struct thing *thing)
{
	unsigned int at = draw(WINDOW), pages = thing->pages;

	for (unsigned int i = at; i < at + pages; i++) {
		if (i >= WINDOW || taken[i])
			return;
	}
	CHECK(cuMemMap(window + at * PAGE, pages * PAGE, 0, thing->value, 0));
	mapped[at] = pages;
	for (unsigned int i = at; i < at + pages; i++)
		taken[i] = true;
}

/* The mapping at a random place, with those that follow it and the holes between them. */
static void unmap(void)
{
	unsigned int at = draw(WINDOW), pages, count = 1 + draw(3);

	if (!mapped[at])
		return;
	for (pages = 0; count && at + pages < WINDOW; count--)
		pages += mapped[at + pages] ? mapped[at + pages] : 1;
	CHECK(cuMemUnmap(window + at * PAGE, pages * PAGE));
	for (unsigned int i = at; i < at + pages; i++) {
		mapped[i] = 0;
		taken[i] = false;
	}
}

/* A second reference, by the address of a mapping, as a thing of its own. */
static void retain(struct thing *thing)
{
	unsigned int at = draw(WINDOW);
	CUmemGenericAllocationHandle handle;

	if (!mapped[at])
		return;
	CHECK(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)(window + at * PAGE)));
	*thing = (struct thing){ .kind = HANDLE, .context = -1, .value = handle,
				 .pages = mapped[at] };
}

static void change_context(void)
{
	int which = 2 + (int)draw(CONTEXTS - 2);
	CUctxCreateParams params = { 0 };

	if (!contexts[which]) {
		CHECK(cuCtxCreate(&contexts[which], &params, 0, device_of(which)));
		CHECK(cuCtxPopCurrent(NULL));
	} else if (draw(3) == 0) {
		choose_context(which & 1);
		CHECK(cuCtxDestroy(contexts[which]));
		contexts[which] = NULL;
		for (int i = 0; i < THINGS; i++) {
			if (things[i].kind && things[i].context == which)
				things[i].kind = NOTHING;
		}
	}
	which = (int)draw(CONTEXTS);
	choose_context(contexts[which] ? which : (int)draw(2));
}

static void step(void)
{
	struct thing *thing = &things[draw(THINGS)];

	switch (draw(12)) {
	case 0:
		change_context();
		break;
	case 1:
		unmap();
		break;
	case 2:
		if (!thing->kind)
			retain(thing);
		break;
	case 3:
		end_wrongly(thing);
		break;
	default:
		if (!thing->kind) {
			make(thing);
		} else if (thing->kind == HANDLE && draw(2)) {
			map(thing);
		} else {
			CHECK(end(thing, thing->kind));
			thing->kind = NOTHING;
		}
	}
}

static void set_up(void)
{
	for (int i = 0; i < 2; i++) {
		CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
					 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
						       .id = i } };

		CHECK(cuDevicePrimaryCtxRetain(&contexts[i], i));
		drv_context[i] = contexts[i];
		CHECK(cuMemPoolCreate(&pools[i], &props));
	}
	choose_context(0);
	CHECK(cuMemAddressReserve(&window, WINDOW * PAGE, 0, 0, 0));
}

int main(int argc, char **argv)
{
	unsigned long steps = argc > 2 ? strtoul(argv[2], NULL, 10) : 6000;

	state = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
	/* On an H200 such a program corrupts the driver's own heap (580.159.04: free(): invalid next
	 * size), bare; what of it is to blame is not known. */
	if (!FAKE(fakecuda_now)) {
		say("skip: no fake device");
		return 0;
	}
	CHECK(cuInit(0));
	need_devices(2);
	set_up();
	for (unsigned long i = 1; i <= steps; i++) {
		step();
		if (i % 200 == 0)
			checkpoint(2, "on the way");
	}
	say("%lu calls refused", refused);
	expect(refused > 10, "some calls are refused");
	say("app_random: done");
	return 0;
}
