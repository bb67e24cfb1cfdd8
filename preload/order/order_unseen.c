/*
 * order_unseen.c - work that no hook may see: private tables of the driver, objects that were bound
 * past us. Then the single-stream fast path is off.
 *
 * cuGetExportTable hands out tables of functions by a UUID. Those that every copy of the runtime
 * asks for submit no work by themselves (what the runtime launches goes through the public names);
 * of others that is not known.
 *
 * Thread context: any, also inside the loader and before the library has started. Signal context:
 * none.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "preload/order/context.h"
#include "preload/order/order.h"
#include "preload/process/say.h"

static const struct table {
	unsigned char uuid[16];
	const char *what;
} known[] = {
	{ "\xf8\xcf\xf9\x51\x21\x46\x8b\x4e\xb9\xe2\xfb\x46\x9e\x7c\x0d\xd9", "runtime, at start" },
	{ "\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9", "runtime" },
	{ "\xa0\x94\x79\x8c\x2e\x74\x2e\x74\x93\xf2\x08\x00\x20\x0c\x0a\x66", "tools, runtime calls" },
	{ "\x42\xd8\x5a\x81\x23\xf6\xcb\x47\x82\x98\xf6\xe7\x8a\x3a\xec\xdc", "tools, threads" },
	{ "\xc6\x93\x33\x6e\x11\x21\xdf\x11\xa8\xc3\x68\xf3\x55\xd8\x95\x93", "storage of contexts" },
	{ "\x0c\xa5\x0b\x8c\x10\x04\x92\x9a\x89\xa7\xd0\xdf\x10\xe7\x72\x86", "makes contexts" },
	{ "\x19\x5b\xcb\xf4\xd6\x7d\x02\x4a\xac\xc5\x1d\x29\xce\xa6\x31\xae", "host memory of tools" },
	{ "\xb1\x05\x41\xe1\xf7\xc7\xc7\x4a\x9f\x64\xf2\x23\xbe\x99\xf1\xe2", "devices, runtime" },
	{ "\xd4\x08\x20\x55\xbd\xe6\x70\x4b\x8d\x34\xba\x12\x3c\x66\xe1\xf2", "checks, at start" },
	{ "\x26\x3e\x88\x60\x7c\xd2\x61\x43\x92\xf6\xbb\xd5\x00\x6d\xfa\x7e", "checks, at start" },
	/* Libraries of CUDA 13 ask for these; all that they launch is seen by the hooks nevertheless
	 * (test/gpu/gpu_launches.py counts: 311 of 311 on an H200). */
	{ "\x21\x31\x8c\x60\x97\x14\x32\x48\x8c\xa6\x41\xff\x73\x24\xc8\xf2", "cuBLASLt" },
	{ "\x17\x34\xdc\x26\x80\x0d\x47\x45\x87\x26\xc0\xf1\xe7\xdd\x8b\xca", "cuBLASLt" },
	{ "\xda\x91\x51\xd3\x3a\xe6\xcc\x41\xa5\xc0\x4f\x26\xd5\x33\xe3\x28", "NVRTC" },
	{ "\x69\xa2\x8e\x9f\x24\x49\x8b\x47\xb0\x30\xc5\xda\x33\x0e\xa4\xe9",
	  "something that PyTorch and JAX load" },
	{ "\x6e\x16\x3f\xbe\xb9\x58\x44\x4d\x83\x5c\xe1\x82\xaf\xf1\x99\x1e", "cuFFT" },
};

static _Atomic(bool) unseen;

static const char *reason;		/* not told yet */

static void tell_reason(void)
{
	const char *why = __atomic_exchange_n(&reason, NULL, __ATOMIC_RELAXED);

	if (why && gm_state.options.verbose)
		gm_say_always("single-stream fast path off: ", why);
}

/* Asked when the options have been read. */
bool gm_order_unseen(void)
{
	if (unseen)
		tell_reason();
	return unseen;
}

void gm_order_unseen_work(const char *why)
{
	if (!unseen)
		reason = why;
	unseen = true;
	gm_context_handles_changed();
	if (gm_order_on)
		gm_reuse_end_single(gm_order_reuse());
	if (gm_state_is_mine())
		tell_reason();
}

/* ---- private tables ---- */

static bool is_known(const CUuuid *id)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (memcmp(id->bytes, known[i].uuid, sizeof(known[i].uuid)) == 0)
			return true;
	return false;
}

static void format_uuid(const CUuuid *id, char text[37])
{
	static const char digits[] = "0123456789abcdef";
	char *at = text;

	for (unsigned int i = 0; i < 16; i++) {
		unsigned char byte = (unsigned char)id->bytes[i];

		if (i == 4 || i == 6 || i == 8 || i == 10)
			*at++ = '-';
		*at++ = digits[byte >> 4];
		*at++ = digits[byte & 15];
	}
	*at = '\0';
}

#define UNKNOWN_TABLE "a private table of the driver that is not known: "
static char unknown_reason[sizeof(UNKNOWN_TABLE) + 37] = UNKNOWN_TABLE;

/* The library may not have started, its options not been read: then only the flag is kept. */
static void tell(const CUuuid *id, const void *caller)
{
	char text[37];
	Dl_info info;

	format_uuid(id, text);
	if (gm_state_is_mine() && gm_state.options.verbose)
		gm_say_always("unknown private table of the driver ", text, ", asked for by ",
			      dladdr(caller, &info) && info.dli_fname ? info.dli_fname : "?");
	if (!unseen)
		memcpy(unknown_reason + strlen(UNKNOWN_TABLE), text, sizeof(text));
	gm_order_unseen_work(unknown_reason);
}

CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
	CUresult result = GM_REAL(cuGetExportTable)(ppExportTable, pExportTableId);

	if (!result && pExportTableId && !is_known(pExportTableId))
		tell(pExportTableId, __builtin_return_address(0));
	return result;
}
