/* app_multidev.cu - memory and streams on every device, copies between them, peer access.
 *
 * With one device it says so and succeeds: nothing to test.
 */
#include "test/apps/app.h"

#define BYTES (3u << 20)

struct device {
	cudaStream_t stream;
	unsigned char *linear, *async;
};

static int count;
static struct device devices[16];

static void take(void)
{
	for (int i = 0; i < count; i++) {
		CHECK(cudaSetDevice(i));
		CHECK(cudaStreamCreate(&devices[i].stream));
		CHECK(cudaMalloc(&devices[i].linear, BYTES));
		CHECK(cudaMemset(devices[i].linear, 0x10 + i, BYTES));
		CHECK(cudaMallocAsync(&devices[i].async, BYTES + 512u * (i + 1),
				      devices[i].stream));
		CHECK(cudaMemsetAsync(devices[i].async, 0x40 + i, BYTES, devices[i].stream));
		CHECK(cudaStreamSynchronize(devices[i].stream));
	}
	checkpoint_as("", count, "memory on each device");
}

static void copy_between(int from, int to)
{
	CHECK(cudaSetDevice(to));
	CHECK(cudaMemcpyPeer(devices[to].linear, to, devices[from].linear, from, BYTES));
	expect(holds_byte(devices[to].linear, (unsigned char)(0x10 + from), BYTES),
	       "cudaMemcpyPeer");
	CHECK(cudaMemcpyPeerAsync(devices[to].linear, to, devices[from].async, from, BYTES,
				  devices[to].stream));
	CHECK(cudaStreamSynchronize(devices[to].stream));
	expect(holds_byte(devices[to].linear, (unsigned char)(0x40 + from), BYTES),
	       "cudaMemcpyPeerAsync");
	CHECK(cudaMemset(devices[to].linear, 0x10 + to, BYTES));
	CHECK(cudaDeviceSynchronize());	/* another device reads it next */
}

/* A pointer tells its device; a free works from any device. */
static void whose(void)
{
	for (int i = 0; i < count; i++) {
		struct cudaPointerAttributes attributes;

		CHECK(cudaSetDevice((i + 1) % count));
		CHECK(cudaPointerGetAttributes(&attributes, devices[i].linear));
		if (attributes.device != i || attributes.type != cudaMemoryTypeDevice)
			DIE("memory of device %d is said to be of %d", i, attributes.device);
		CHECK(cudaPointerGetAttributes(&attributes, devices[i].async));
		if (attributes.device != i)
			DIE("async memory of device %d is said to be of %d", i, attributes.device);
	}
	say("pointers tell their device: ok");
}

static void peer_access(void)
{
	int can = 0;

	CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
	if (!can) {
		say("no peer access here");
		return;
	}
	CHECK(cudaSetDevice(0));
	CHECK(cudaDeviceEnablePeerAccess(1, 0));
	expect(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessAlreadyEnabled,
	       "peer access twice");
	expect(cudaGetLastError() == cudaErrorPeerAccessAlreadyEnabled, "and its last error");
	CHECK(cudaMemcpy(devices[0].linear, devices[1].linear, BYTES, cudaMemcpyDefault));
	expect(holds_byte(devices[0].linear, 0x11, BYTES), "a copy with peer access");
	CHECK(cudaDeviceDisablePeerAccess(1));
	expect(cudaDeviceDisablePeerAccess(1) == cudaErrorPeerAccessNotEnabled,
	       "peer access ended twice");
	cudaGetLastError();
}

int main(void)
{
	CHECK(cudaGetDeviceCount(&count));
	if (count < 2) {
		say("skip: one device");
		return 0;
	}
	if (count > 16)
		count = 16;
	take();
	copy_between(0, 1);
	copy_between(1, 0);
	if (count > 2)
		copy_between(1, 2);
	whose();
	peer_access();
	for (int i = 0; i < count; i++) {
		CHECK(cudaSetDevice((i + 1) % count));	/* from another device */
		CHECK(cudaFree(devices[i].linear));
		CHECK(cudaSetDevice(i));
		CHECK(cudaFreeAsync(devices[i].async, devices[i].stream));
		CHECK(cudaStreamSynchronize(devices[i].stream));
	}
	checkpoint_as("", count, "all freed");
	CHECK(cudaSetDevice(1));
	CHECK(cudaMalloc(&devices[1].linear, BYTES));
	CHECK(cudaDeviceReset());	/* takes device 1's memory along, no other's */
	CHECK(cudaSetDevice(0));
	CHECK(cudaMalloc(&devices[0].linear, BYTES));
	checkpoint_as("", count, "device 1 reset with live memory");
	CHECK(cudaFree(devices[0].linear));
	say("app_multidev: done");
	return 0;
}
