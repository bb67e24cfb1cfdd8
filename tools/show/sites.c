/*
 * sites.c - which frames of a stack do not tell who asked: see sites.h.
 */
#include "tools/show/sites.h"

#include <string.h>

bool gm_stack_plumbing(const char *name, const char *module)
{
	static const char *const names[] = { "torch::unwind::",
					     "torch::CapturedTraceback::",
					     "torch::cuda::(anonymous namespace)::gather",
					     "c10::cuda::CUDACachingAllocator",
					     "_ZN3c104cuda20CUDACachingAllocator",
					     "_ZNK3c104cuda20CUDACachingAllocator" };
	static const char *const modules[] = { "libcudart", "libcuda.", "libgpumem",
					       "libc10_cuda." };

	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
		if (!strncmp(module, modules[i], strlen(modules[i])))
			return true;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(name, names[i], strlen(names[i])))
			return true;
	return !strncmp(name, "cuda", 4) && name[4] >= 'A' && name[4] <= 'Z';
}

bool gm_stack_installed(const char *file)
{
	return strstr(file, "-packages/") || strstr(file, "/lib/python3.") || file[0] == '<';
}
