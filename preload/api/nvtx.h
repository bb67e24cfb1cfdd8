/*
 * nvtx.h - NVTX, NVIDIA's tools extension: the program's marks and ranges become annotations.
 *
 *   nvtx.c        how a program's NVTX finds us (getenv), and what it then calls:
 *                 InitializeInjectionNvtx2, and the functions put in its table
 *   nvtx_text.c   messages to text, and what it registers: names of domains, strings
 *
 * The layouts are those of NVTX 3 (nvtxDetail/nvtxTypes.h of any version: only ever added to),
 * declared here so that no toolkit needs to have the header.
 *
 * Thread context: any; NVTX may be called before CUDA, which starts nothing: what is said then is
 * passed over. Signal context: none.
 */
#ifndef GM_PRELOAD_NVTX_H
#define GM_PRELOAD_NVTX_H

#include <stdbool.h>
#include <stdint.h>
#include <wchar.h>

#define GM_NVTX_TEXT 512u		/* bytes of a message that are kept */

enum gm_nvtx_message_type { GM_NVTX_UNKNOWN, GM_NVTX_ASCII, GM_NVTX_UNICODE, GM_NVTX_REGISTERED };

struct gm_nvtx_attributes {		/* nvtxEventAttributes_t, 48 bytes */
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	uint64_t payload;
	int32_t message_type;		/* enum gm_nvtx_message_type */
	const void *message;		/* char *, wchar_t *, or what registering gave */
};

/* A text that the program registered: a string, or the name of a domain. Never changes or goes. */
struct gm_nvtx_text;

/* Register; the same text gives the same. NULL: no room, or no text. */
const struct gm_nvtx_text *gm_nvtx_register(const char *text);
const struct gm_nvtx_text *gm_nvtx_register_wide(const wchar_t *text);

/* Ids of the journal's strings; GM_NONE for NULL and without room. */
uint32_t gm_nvtx_id(const struct gm_nvtx_text *text);
uint32_t gm_nvtx_id_of(const char *text);
uint32_t gm_nvtx_id_of_wide(const wchar_t *text);
uint32_t gm_nvtx_id_of_event(const struct gm_nvtx_attributes *event);

/* A number for a domain, other ones for others; 0 for the common one, NULL. */
uint16_t gm_nvtx_scope(const struct gm_nvtx_text *domain);

#endif
