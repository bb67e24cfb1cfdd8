/*
 * capture.h - what the tests of captures share: streams, how a capture begins and ends.
 */
#ifndef TEST_CAPTURE_H
#define TEST_CAPTURE_H

#include "work.h"

static CUstream a, b;
static CUdeviceptr p;

UNUSED static void setup(void)
{
	work_setup();
	a = stream();
	b = stream();
	p = alloc(1 << 20);
}

UNUSED static void begin(CUstream s)
{
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
}

UNUSED static CUgraph end(CUstream s)
{
	CUgraph g;

	OK(cuStreamEndCapture(s, &g));
	ck_assert_ptr_nonnull(g);
	return g;
}

UNUSED static void ends_with(CUstream s, CUresult error)
{
	CUgraph g = (CUgraph)&g;

	FAILS(cuStreamEndCapture(s, &g), error);
	ck_assert_ptr_null(g);
}

UNUSED static CUstreamCaptureStatus status(CUstream s)
{
	CUstreamCaptureStatus st;

	OK(cuStreamIsCapturing(s, &st));
	return st;
}

UNUSED static size_t nodes_of(CUgraph g)
{
	size_t n;

	OK(cuGraphGetNodes(g, NULL, &n));
	return n;
}

#endif
