/*
 * hook_launch.c - launches that need more than the body of GM_WORK: with a configuration, or on several
 * devices.
 *
 * A launch may permit its kernel to overlap the previous kernel of the stream (programmatic serialisation).
 * If memory that the previous kernel may still be using has been handed out again, the launch loses this
 * permission, so that its kernel waits.
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "allocator/rules.h"
#include "preload/cache/cache.h"
#include "preload/hooks/hook.h"
#include "preload/order/host.h"

/* ---- launches with a configuration ---- */

#define ATTRIBUTES 32u			/* more than CUDA has kinds of attributes */

struct copied {
	CUlaunchConfig config;
	CUlaunchAttribute attributes[ATTRIBUTES];
	void *more;			/* memory for attributes that did not fit */
	size_t more_bytes;
};

static bool may_overlap(const CUlaunchConfig *config)
{
	for (unsigned int i = 0; config->attrs && i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
		    config->attrs[i].value.programmaticStreamSerializationAllowed)
			return true;
	return false;
}

/* Return a copy of @config without the permission to overlap, in @copy; @config itself when there is no memory. */
static const CUlaunchConfig *without_overlap(const CUlaunchConfig *config, struct copied *copy)
{
	size_t bytes = config->numAttrs * sizeof(CUlaunchAttribute);
	CUlaunchAttribute *attributes = copy->attributes;

	if (config->numAttrs > ATTRIBUTES) {
		copy->more = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				  -1, 0);
		copy->more_bytes = bytes;
		if (copy->more == MAP_FAILED) {
			copy->more = NULL;
			return config;
		}
		attributes = copy->more;
	}
	memcpy(attributes, config->attrs, bytes);
	for (unsigned int i = 0; i < config->numAttrs; i++)
		if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
			attributes[i].value.programmaticStreamSerializationAllowed = 0;
	copy->config = *config;
	copy->config.attrs = attributes;
	return &copy->config;
}

/* Forget the events that a launch records by its attributes, because the driver records them without a call that
 * we hook. */
static void forget_events(const CUlaunchConfig *config)
{
	for (unsigned int i = 0; config->attrs && i < config->numAttrs; i++) {
		const CUlaunchAttribute *a = &config->attrs[i];

		if (a->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
			gm_host_event_forget(a->value.programmaticEvent.event);
		else if (a->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
			gm_host_event_forget(a->value.launchCompletionEvent.event);
	}
}

typedef __typeof__(cuLaunchKernelEx) launch_fn;

static CUresult launch(launch_fn *real, const CUlaunchConfig *config, CUfunction f, void **params,
		       void **extra, bool per_thread)
{
	const CUlaunchConfig *used = config;
	unsigned int tries = 0;
	struct copied copy;
	uint32_t early, seen;
	CUresult result;

	if (!gm_order_on || !config)
		return real(config, f, params, extra);
	copy.more = NULL;
	seen = gm_work(config->hStream, per_thread, GM_WORK_LAUNCH | GM_WORK_KERNEL);
	early = gm_order_early_now();
	if (early && gm_rule(GM_RULE_PROGRAMMATIC) && may_overlap(config) &&
	    gm_order_is_early(config->hStream, per_thread))
		used = without_overlap(config, &copy);
	forget_events(config);
	result = real(used, f, params, extra);
	while (result && gm_retry(result, &tries))
		result = real(used, f, params, extra);
	gm_work_over(config->hStream, per_thread, seen);
	if (result) {
		gm_cache_fault(result);
	} else {
		gm_host_submitted(config->hStream, per_thread, GM_WORK_LAUNCH);
		if (early && (used != config || !may_overlap(config)))
			gm_order_early_over(config->hStream, per_thread, early);
	}
	if (copy.more)
		munmap(copy.more, copy.more_bytes);
	return result;
}

#define LAUNCH(name, per_thread) \
	CUresult name(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) \
	{ \
		GM_ENTER(name, config, f, kernelParams, extra); \
		return gm_leave(launch(GM_REAL(name), config, f, kernelParams, extra, per_thread)); \
	}
LAUNCH(cuLaunchKernelEx, false)
LAUNCH(cuLaunchKernelEx_ptsz, true)

/* ---- launches on several devices ---- */

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList,
					      unsigned int numDevices, unsigned int flags)
{
	uint32_t seen = gm_order_generation;
	unsigned int tries = 0;
	CUresult result;

	GM_ENTER(cuLaunchCooperativeKernelMultiDevice, launchParamsList, numDevices, flags);
	for (unsigned int i = 0; launchParamsList && i < numDevices; i++)
		gm_work(launchParamsList[i].hStream, false, GM_WORK_LAUNCH | GM_WORK_KERNEL);
	result = GM_REAL(cuLaunchCooperativeKernelMultiDevice)(launchParamsList, numDevices, flags);
	while (result && gm_retry(result, &tries))
		result = GM_REAL(cuLaunchCooperativeKernelMultiDevice)(launchParamsList, numDevices,
								       flags);
	for (unsigned int i = 0; launchParamsList && i < numDevices; i++)
		gm_work_over(launchParamsList[i].hStream, false, seen);
	for (unsigned int i = 0; !result && gm_order_on && i < numDevices; i++)
		gm_host_submitted(launchParamsList[i].hStream, false, GM_WORK_LAUNCH);
	return gm_leave(result);
}
