/*
 * libnvtxtool.c - another tool that takes a program's NVTX, as profilers do: it says so, once.
 */
#include <stdio.h>

int InitializeInjectionNvtx2(const void *(*export_table)(unsigned int id));

__attribute__((visibility("default")))
int InitializeInjectionNvtx2(const void *(*export_table)(unsigned int id))
{
	printf("the other tool: %s\n", export_table ? "attached" : "nothing to attach to");
	return 1;
}
