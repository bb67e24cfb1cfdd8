/*
 * misc.c - texts of errors. They are constant and need no lock.
 */
#include "test/fakecuda/state.h"

#include <string.h>
#include <unistd.h>

struct text {
	CUresult code;
	const char *name, *text;
};

static const struct text texts[] = {
#define X(code, text) { code, #code, text },
#include "test/fakecuda/errors.def"
#undef X
};

static const struct text *find(CUresult code)
{
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].code == code)
			return &texts[i];
	return NULL;
}

CUresult fc_cuGetErrorName(CUresult error, const char **pStr)
{
	const struct text *t = find(error);

	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = t ? t->name : NULL;
	return t ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fc_cuGetErrorString(CUresult error, const char **pStr)
{
	const struct text *t = find(error);

	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = t ? t->text : NULL;
	return t ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
