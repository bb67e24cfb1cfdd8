/* error.c - names and descriptions of errors. Any thread; touches no driver. */
#include "cudart.h"

const char *cudaGetErrorName(cudaError_t error)
{
	switch (error) {
#define CUDART_ERROR(name, text) case name: return #name;
#include "errors.def"
#undef CUDART_ERROR
	default:
		return "unrecognized error code";
	}
}

const char *cudaGetErrorString(cudaError_t error)
{
	switch (error) {
#define CUDART_ERROR(name, text) case name: return text;
#include "errors.def"
#undef CUDART_ERROR
	default:
		return "unrecognized error code";
	}
}
