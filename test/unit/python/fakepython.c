/*
 * fakepython.c - what looks like a CPython from outside, for test_python: the names that an
 * interpreter exports, and in them whatever the test puts there.
 */
#include <stddef.h>

#define API __attribute__((visibility("default")))

API char PyCode_Type[64], PyUnicode_Type[64], PyBytes_Type[64];
API const char *fake_version = "3.12.1 (main) [fake]";
API void *fake_state;
API int fake_finalizing;

const char *Py_GetVersion(void);
void *PyGILState_GetThisThreadState(void);
int _Py_IsFinalizing(void);
int _PyEval_EvalFrameDefault(int (*inner)(void *shim), void *argument);

API const char *Py_GetVersion(void)
{
	return fake_version;
}

API void *PyGILState_GetThisThreadState(void)
{
	return fake_state;
}

API int _Py_IsFinalizing(void)
{
	return fake_finalizing;
}

/* The loop: @inner gets a place in its frame on the C stack, or @argument if there is one. */
API __attribute__((noinline)) int _PyEval_EvalFrameDefault(int (*inner)(void *), void *argument)
{
	void *volatile shim[10] = { NULL };
	int result = inner(argument ? argument : (void *)shim);

	return result + (shim[9] != NULL);
}
