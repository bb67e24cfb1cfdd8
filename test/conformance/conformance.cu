/* conformance.cu - prints what a CUDA driver does, call by call: "section | call -> result".
 *
 * Run on a real GPU with NVIDIA's runtime its output is the golden file (h200.golden); run on
 * test/fakecuda it must print the same. See conf.h for the form of the lines, and each section's
 * header for what it asks. It wants a device to itself, and less than a minute.
 *
 *   conformance [--section NAME]     NAME: the beginning of a function's name in the list below
 */
#include "test/conformance/capture_odds.h"
#include "test/conformance/graphs.h"
#include "test/conformance/ipc.h"
#include "test/conformance/memory.h"
#include "test/conformance/pointers.h"
#include "test/conformance/pools.h"
#include "test/conformance/resolve.h"
#include "test/conformance/waits.h"

static void bare(void) { in_a_child("bare"); }
static void contexts(void) { in_a_child("contexts"); }
static void reset(void) { in_a_child("reset"); }
static void faults(void) { in_a_child("fault"); }
static void forks(void) { in_a_child("fork"); }
static void ends(void) { in_a_child("exit"); }
static void pool_that_gives_back(void) { pool_life(0); }
static void pool_that_keeps(void) { pool_life(UINT64_MAX); }

static const struct {
	const char *name;
	void (*run)(void);
} sections[] = {
#define SECTION(name) { #name, name }
	SECTION(bare), SECTION(resolution), SECTION(zero_sizes), SECTION(wrong_frees),
	SECTION(placement), SECTION(charges), SECTION(pitches), SECTION(array_sizes),
	SECTION(array_charges), SECTION(host_memory), SECTION(copies), SECTION(errors_that_pass),
	SECTION(pointer_attributes), SECTION(address_ranges), SECTION(buffer_ids),
	SECTION(pool_defaults), SECTION(pool_that_gives_back), SECTION(pool_that_keeps),
	SECTION(pool_reuse), SECTION(pool_odds), SECTION(vmm_handles), SECTION(vmm_addresses),
	SECTION(vmm_mappings), SECTION(vmm_several_at_once), SECTION(who_waits),
	SECTION(who_waits_vmm), SECTION(legacy_stream), SECTION(events), SECTION(context_events),
	SECTION(destroyed_streams), SECTION(wait_for_values), SECTION(streams), SECTION(in_host_functions),
	SECTION(capture_states), SECTION(capture_joins), SECTION(capture_blocking),
	SECTION(capture_table), SECTION(graph_captured), SECTION(graph_of_nodes),
	SECTION(graph_auto_free), SECTION(graph_frees_ours), SECTION(ipc_export),
	SECTION(contexts), SECTION(reset), SECTION(faults), SECTION(forks), SECTION(ends),
#undef SECTION
};

static int child(int argc, char **argv)
{
	const char *name = argv[2];

	if (!strcmp(name, "bare"))
		child_bare();
	else if (!strcmp(name, "contexts"))
		child_contexts();
	else if (!strcmp(name, "reset"))
		child_reset();
	else if (!strcmp(name, "fault"))
		child_fault();
	else if (!strcmp(name, "fork"))
		child_fork();
	else if (!strcmp(name, "exit"))
		child_exit();
	else if (!strcmp(name, "importer") && argc > 6)
		child_importer(argv + 3);
	else
		return 2;
	return 0;
}

/* Kernels are loaded and the device is awake before anything is measured. */
static bool warm_up(void)
{
	CUmemAllocationProp prop = vmm_device_memory();
	uint32_t *p = NULL;

	conf_section = "warm-up";
	if (cudaStreamCreateWithFlags(&conf_busy, cudaStreamNonBlocking) || cudaMalloc(&p, 4096))
		return false;
	spin<<<1, 1, 0, conf_busy>>>(1000ull);
	fill<<<1, 1>>>(p, 1u, 1u);
	DRIVER(cuMemGetAllocationGranularity, 10020)(&vmm_page, &prop,
						     CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	return cudaDeviceSynchronize() == cudaSuccess && cudaFree(p) == cudaSuccess && vmm_page;
}

int main(int argc, char **argv)
{
	const char *only = "";

	if (argc > 2 && !strcmp(argv[1], "--child"))
		return child(argc, argv);
	if (argc > 2 && !strcmp(argv[1], "--section"))
		only = argv[2];
	if (!warm_up()) {
		fprintf(stderr, "conformance: no usable device: %s\n",
			cudaGetErrorName(cudaGetLastError()));
		return 1;
	}
	for (auto &section : sections) {
		if (!strncmp(section.name, only, strlen(only)))
			section.run();
	}
	return 0;
}
