/*
 * image.c - finding the PTX in what a program hands over: the text itself, a fat binary, or the
 * wrapper around one that nvcc leaves in the executable.
 *
 *   wrapper  int magic 0x466243b1, int version, const void *data, void *files
 *   binary   u32 0xba55ed50, u16 version, u16 header size, u64 payload size; then per entry
 *            u16 kind (1: PTX), u16 version, u32 header size, u64 payload size, ...
 *
 * Only text counts: machine code and compressed PTX are as good as code for another GPU (209).
 */
#include "test/fakecuda/code/module.h"

#include <stdlib.h>
#include <string.h>

#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC 0xba55ed50u
#define KIND_PTX 1

struct wrapper {
	uint32_t magic, version;
	const void *data, *files;
};

struct fatbin {
	uint32_t magic;
	uint16_t version, header_size;
	uint64_t size;
};

struct fatbin_entry {
	uint16_t kind, version;
	uint32_t header_size;
	uint64_t size;
};

void fc_kernel_free(struct fc_kernel *k)
{
	if (!k)
		return;
	free(k->name);
	free(k->sizes);
	free(k->offsets);
	free(k);
}

struct fc_image *fc_image_ref(struct fc_image *image)
{
	image->refs++;
	return image;
}

void fc_image_put(struct fc_image *image)
{
	if (!image || --image->refs)
		return;
	for (size_t i = 0; i < image->n_kernels; i++) {
		if (image->kernels[i]->handle)
			fc_handle_drop(image->kernels[i]->handle);
		fc_kernel_free(image->kernels[i]);
	}
	for (size_t i = 0; i < image->n_globals; i++) {
		free(image->globals[i].name);
		free(image->globals[i].init);
	}
	free(image->kernels);
	free(image->globals);
	free(image);
}

struct fc_kernel *fc_image_kernel(const struct fc_image *image, const char *name)
{
	for (size_t i = 0; i < image->n_kernels; i++)
		if (!strcmp(image->kernels[i]->name, name))
			return image->kernels[i];
	return NULL;
}

static bool looks_like_text(const char *p)
{
	while (*p == '\n' || *p == ' ' || *p == '\t' || *p == '\r')
		p++;
	return !strncmp(p, "//", 2) || !strncmp(p, ".version", 8);
}

static int parse_fatbin(struct fc_image *image, const uint8_t *p, bool *ret_found)
{
	struct fatbin head;
	const uint8_t *end;

	memcpy(&head, p, sizeof(head));
	p += head.header_size;
	end = p + head.size;
	while ((size_t)(end - p) >= sizeof(struct fatbin_entry)) {
		struct fatbin_entry e;
		const char *text;
		int r;

		memcpy(&e, p, sizeof(e));
		if (e.header_size < sizeof(e) || e.header_size > (size_t)(end - p) ||
		    e.size > (size_t)(end - p) - e.header_size)
			break;
		text = (const char *)p + e.header_size;
		if (e.kind == KIND_PTX && e.size && looks_like_text(text)) {
			*ret_found = true;
			r = fc_ptx_parse(image, text, e.size);
			if (r)
				return r;
		}
		p += e.header_size + e.size;
	}
	return 0;
}

CUresult fc_image_load(const void *code, struct fc_image **ret_image)
{
	struct fc_image *image;
	bool found = false;
	uint32_t magic;
	int r = 0;

	if (!code)
		return CUDA_ERROR_INVALID_VALUE;
	image = calloc(1, sizeof(*image));
	if (!image)
		return CUDA_ERROR_OUT_OF_MEMORY;
	image->refs = 1;
	memcpy(&magic, code, sizeof(magic));
	if (magic == WRAPPER_MAGIC) {
		struct wrapper w;

		memcpy(&w, code, sizeof(w));
		code = w.data;
		memcpy(&magic, code, sizeof(magic));
	}
	if (magic == FATBIN_MAGIC) {
		r = parse_fatbin(image, code, &found);
	} else if (looks_like_text(code)) {
		found = true;
		r = fc_ptx_parse(image, code, strlen(code));
	} else if (memcmp(code, "\177ELF", 4)) {
		fc_image_put(image);
		return CUDA_ERROR_INVALID_IMAGE;
	}
	if (r || !found) {
		fc_image_put(image);
		return r ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	*ret_image = image;
	return CUDA_SUCCESS;
}
