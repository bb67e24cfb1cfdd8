/* ipc.h - conformance of memory and events shared between two processes.
 *
 * The exporter makes everything, prints its lines, and runs an importer, this program again, which
 * gets the handles in hexadecimal on its command line and prints its own.
 */
#ifndef TEST_CONFORMANCE_IPC_H
#define TEST_CONFORMANCE_IPC_H

#include "test/conformance/children.h"

static void hex_of(char *text, const void *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		snprintf(text + 2 * i, 3, "%02x", ((const unsigned char *)data)[i]);
}

static void from_hex(void *data, const char *text, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		unsigned int byte = 0;

		sscanf(text + 2 * i, "%2x", &byte);
		((unsigned char *)data)[i] = (unsigned char)byte;
	}
}

static void ipc_export(void)
{
	char base_text[130] = "", inside_text[130] = "", small_text[130] = "", event_text[130] = "";
	cudaIpcMemHandle_t base, inside, small_handle, other;
	cudaIpcEventHandle_t event_handle = {};
	const char *arguments[] = { "--child", "importer", base_text, inside_text, small_text,
				    event_text, NULL };
	char *big = NULL, *first = NULL, *small = NULL;
	void *async = NULL, *managed = NULL, *pinned = NULL;
	cudaEvent_t event = NULL, plain = NULL;
	void *p = NULL;

	conf_section = "IPC, the exporter";
	NEED(cudaMalloc(&big, 4 << 20));
	NEED(cudaMalloc(&first, 4096));
	NEED(cudaMalloc(&small, 4096));
	NEED(cudaMallocAsync(&async, 4096, 0));
	NEED(cudaMallocManaged(&managed, 4096));
	NEED(cudaMallocHost(&pinned, 4096));
	NEED(cudaMemset(big, 0x11, 1 << 20));
	NEED(cudaMemset(big + (1 << 20), 0x22, 3 << 20));
	NEED(cudaMemset(first, 0x33, 4096));
	NEED(cudaMemset(small, 0x44, 4096));
	NEED(cudaDeviceSynchronize());
	CODE_OF("a handle of an allocation", cudaIpcGetMemHandle(&base, big));
	CODE_OF("a handle of an interior pointer", cudaIpcGetMemHandle(&inside, big + (1 << 20)));
	TRUTH("the two handles are equal", !memcmp(&base, &inside, sizeof(base)));
	CODE_OF("the same again", cudaIpcGetMemHandle(&other, big));
	TRUTH("equal", !memcmp(&base, &other, sizeof(base)));
	TRUTH("its bytes 56 to 63 are zero", !memcmp((char *)&base + 56, "\0\0\0\0\0\0\0", 8));
	CODE_OF("a handle of a small allocation", cudaIpcGetMemHandle(&small_handle, small));
	CODE_OF("of cudaMallocAsync memory", cudaIpcGetMemHandle(&other, async));
	CODE_OF("of managed memory", cudaIpcGetMemHandle(&other, managed));
	CODE_OF("of pinned memory", cudaIpcGetMemHandle(&other, pinned));
	CODE_OF("of nothing", cudaIpcGetMemHandle(&other, NULL));
	CODE_OF("opened by its own process",
		cudaIpcOpenMemHandle(&p, base, cudaIpcMemLazyEnablePeerAccess));
	CODE_OF("closed though never opened", cudaIpcCloseMemHandle(big));
	NEED(cudaEventCreateWithFlags(&plain, cudaEventDisableTiming));
	CODE_OF("an event not made for it", cudaIpcGetEventHandle(&event_handle, plain));
	CODE_OF("an event for it, with timing",
		cudaEventCreateWithFlags(&event, cudaEventInterprocess));
	NEED(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
	CODE_OF("an event for it", cudaIpcGetEventHandle(&event_handle, event));
	NEED(cudaEventRecord(event, 0));
	NEED(cudaDeviceSynchronize());
	hex_of(base_text, &base, sizeof(base));
	hex_of(inside_text, &inside, sizeof(inside));
	hex_of(small_text, &small_handle, sizeof(small_handle));
	hex_of(event_text, &event_handle, sizeof(event_handle));
	run_child(arguments);
	TRUTH("the importer's writing is seen", conf_holds(big, 0x77, 1 << 20));
	CODE_OF("freed", cudaFree(big));
	cudaFree(first);
	cudaFree(small);
	cudaFree(async);
	cudaFree(managed);
	cudaFreeHost(pinned);
	cudaEventDestroy(event);
	cudaEventDestroy(plain);
	cudaDeviceSynchronize();
}

static cudaError_t ipc_open(char **p, cudaIpcMemHandle_t handle)
{
	return cudaIpcOpenMemHandle((void **)p, handle, cudaIpcMemLazyEnablePeerAccess);
}

/* Close until it is refused, or ten times. */
static int ipc_close_all(char *p)
{
	int closed = 0;

	while (closed < 10 && cudaIpcCloseMemHandle(p) == cudaSuccess)
		closed++;
	cudaGetLastError();
	return closed;
}

static void importer_looks(cudaIpcMemHandle_t base)
{
	struct cudaPointerAttributes attributes;
	cudaIpcMemHandle_t forwarded;
	CUdeviceptr start = 0;
	bool capable = true;
	size_t size = 0;
	char *p = NULL;

	CODE_OF("opened without the flag", cudaIpcOpenMemHandle((void **)&p, base, 0));
	CODE_OF("opened", ipc_open(&p, base));
	TRUTH("the contents of its beginning", conf_holds(p, 0x11, 1 << 20));
	CODE_OF("its attributes", cudaPointerGetAttributes(&attributes, p));
	VALUE("its type", attributes.type);
	CODE_OF("its address range", DRIVER(cuMemGetAddressRange, 3020)(&start, &size,
									(CUdeviceptr)p + 5000));
	TRUTH("it begins at the base", start == (CUdeviceptr)p);
	VALUE("its size", size);
	CODE_OF("its own legacy IPC attribute", DRIVER(cuPointerGetAttribute, 4000)(
		&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, (CUdeviceptr)p));
	VALUE("it says", capable);
	CODE_OF("exported once more", cudaIpcGetMemHandle(&forwarded, p));
	CODE_OF("written", cudaMemset(p, 0x77, 1 << 20));
	CODE(cudaDeviceSynchronize());
	CODE_OF("closed from inside", cudaIpcCloseMemHandle(p + 4096));
	CODE_OF("closed", cudaIpcCloseMemHandle(p));
	CODE_OF("closed again", cudaIpcCloseMemHandle(p));
	CODE_OF("used after that", cudaMemset(p, 1, 16));
}

/* Each of these opens anew and ends with everything closed, if it can. */
static void importer_counts(cudaIpcMemHandle_t base, cudaIpcMemHandle_t inside)
{
	cudaIpcMemHandle_t changed = base;
	char *p = NULL, *q = NULL;

	NEED(ipc_open(&p, base));
	CODE_OF("opened twice", ipc_open(&q, base));
	TRUTH("the same address", p == q);
	VALUE("times it could be closed", ipc_close_all(p));
	NEED(ipc_open(&p, base));
	q = NULL;
	CODE_OF("the interior handle", ipc_open(&q, inside));
	TRUTH("it is the base", p == q);
	VALUE("times it could be closed", ipc_close_all(p));
	NEED(ipc_open(&p, base));
	memset((char *)&changed + 56, 0x5a, 8);
	q = NULL;
	CODE_OF("with other bytes 56 to 63", ipc_open(&q, changed));
	TRUTH("the same address", p == q);
	VALUE("times it could be closed", ipc_close_all(p));
	NEED(ipc_open(&p, base));
	CODE_OF("cudaFree of it", cudaFree(p));
	VALUE("times it could be closed after that", ipc_close_all(p));
	NEED(ipc_open(&p, base));
	CODE_OF("cudaFreeAsync of it", cudaFreeAsync(p, 0));
	VALUE("times it could be closed after that", ipc_close_all(p));
	memset(&changed, 0x5a, sizeof(changed));
	CODE_OF("a handle that is none", ipc_open(&q, changed));
}

static void child_importer(char **texts)
{
	cudaIpcMemHandle_t base, inside, small_handle;
	cudaIpcEventHandle_t event_handle;
	cudaEvent_t event = NULL;
	CUdeviceptr start = 0;
	char *small = NULL;
	size_t size = 0;

	conf_section = "IPC, the importer";
	from_hex(&base, texts[0], sizeof(base));
	from_hex(&inside, texts[1], sizeof(inside));
	from_hex(&small_handle, texts[2], sizeof(small_handle));
	from_hex(&event_handle, texts[3], sizeof(event_handle));
	NEED(cudaFree(0));
	importer_looks(base);
	importer_counts(base, inside);
	CODE_OF("the small one", ipc_open(&small, small_handle));
	if (small) {
		TRUTH("its contents", conf_holds(small, 0x44, 4096));
		CODE_OF("its address range", DRIVER(cuMemGetAddressRange, 3020)(
			&start, &size, (CUdeviceptr)small));
		VALUE("its size", size);
		CODE_OF("closed", cudaIpcCloseMemHandle(small));
	}
	CODE_OF("the event opened", cudaIpcOpenEventHandle(&event, event_handle));
	if (event) {
		CODE_OF("queried", cudaEventQuery(event));
		CODE_OF("destroyed", cudaEventDestroy(event));
	}
}

#endif
