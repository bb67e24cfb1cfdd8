# timeout: 120
"""The stand-in runtime makes the driver calls that NVIDIA's makes.

RECORDED is what libcudart 13.0 was seen to call on a GPU, for each runtime call. Left out: export
tables, which are private to NVIDIA's runtime; how often attributes are asked at start. The stand-in
makes one public cuCtxSetCurrent where NVIDIA's sets the context by a private table.
"""
import os
import re
import sys

sys.path.insert(0, "test")
from tap import B, Room, check, finish, tell  # noqa: E402

RECORDED = """
cudaGetDeviceCount(&count): cuInit cuDriverGetVersion cuModuleGetLoadingMode cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceTotalMem cuDeviceGetAttribute cuDeviceGetUuid
cudaSetDevice(0): cuCtxSetCurrent cuCtxGetCurrent cuDevicePrimaryCtxRetain cuCtxGetDevice
cudaFree(0): cuMemFree
cudaGetDeviceProperties(&prop, 0):
cudaMemGetInfo(&free_bytes, &total_bytes): cuMemGetInfo
cudaMalloc(&p, 1 << 20): cuMemAlloc
cudaMalloc(&q, 0):
cudaMemset(p, 1, 100): cuMemsetD8
cudaMemcpy(p, b, 100, cudaMemcpyHostToDevice): cuMemcpyHtoD
cudaMemcpy(p, b, 65536, cudaMemcpyHostToDevice): cuMemcpyHtoD
cudaMemcpy(b, p, 100, cudaMemcpyDeviceToHost): cuMemcpyDtoH
cudaMemcpy((char *)p + 4096, p, 100, cudaMemcpyDeviceToDevice): cuMemcpyDtoD
cudaMemcpy(b, p, 100, cudaMemcpyDefault): cuMemcpy
cudaPointerGetAttributes(&attributes, p): cuPointerGetAttributes
cudaPointerGetAttributes(&attributes, b): cuPointerGetAttributes
cudaIpcGetMemHandle(&handle, p): cuIpcGetMemHandle
cudaFree(p): cuMemFree
cudaMallocPitch(&p, &pitch, 1000, 10): cuMemAllocPitch
cudaMemset2D(p, pitch, 1, 1000, 10): cuMemsetD2D8
cudaMalloc3D(&box, make_cudaExtent(100, 4, 4)): cuMemAllocPitch
cudaFree(box.ptr): cuMemFree
cudaMallocArray(&a, &format, 64, 8): cuArray3DCreate
cudaMemcpy2DToArray(a, 0, 0, b, 256, 256, 8, cudaMemcpyHostToDevice): cuArray3DGetDescriptor cuMemcpy3D
cudaFreeArray(a): cuArrayDestroy
cudaMallocHost(&h, 4096): cuMemHostAlloc
cudaFreeHost(h): cuMemFreeHost
cudaHostAlloc(&h, 4096, 0): cuMemHostAlloc
cudaStreamCreate(&s): cuStreamCreate
cudaStreamCreateWithFlags(&s2, cudaStreamNonBlocking): cuStreamCreate
cudaEventCreate(&e): cuEventCreate
cudaEventCreateWithFlags(&e, cudaEventDisableTiming): cuEventCreate
cudaEventRecord(e, s): cuEventRecord
cudaEventQuery(e): cuEventQuery
cudaEventSynchronize(e): cuEventSynchronize
cudaStreamWaitEvent(s2, e, 0): cuStreamWaitEvent
cudaStreamQuery(s): cuStreamQuery
cudaStreamSynchronize(s): cuStreamSynchronize
cudaMallocAsync(&p, 1 << 20, s): cuMemAllocAsync
cudaMemsetAsync(p, 1, 100, s): cuMemsetD8Async
cudaMemcpyAsync(p, b, 100, cudaMemcpyHostToDevice, s): cuMemcpyHtoDAsync
first launch: cuLibraryLoadData cuLibraryGetKernel cuLaunchKernel
second launch: cuLaunchKernel
cudaFreeAsync(p, s): cuMemFreeAsync
cudaDeviceGetDefaultMemPool(&pool, 0): cuDeviceGetDefaultMemPool
cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &u): cuMemPoolSetAttribute
cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &u): cuMemPoolGetAttribute
cudaMemPoolTrimTo(pool, 0): cuMemPoolTrimTo
cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal): cuStreamBeginCapture
cudaStreamIsCapturing(s, &status): cuStreamIsCapturing
captured launch: cuLaunchKernel
cudaStreamEndCapture(s, &graph): cuStreamEndCapture
cudaGraphInstantiate(&exec, graph, 0): cuGraphInstantiateWithFlags
cudaGraphLaunch(exec, s): cuGraphLaunch
cudaGraphExecDestroy(exec): cuGraphExecDestroy
cudaGraphDestroy(graph): cuGraphDestroy
cudaThreadExchangeStreamCaptureMode(&mode): cuThreadExchangeStreamCaptureMode
cudaMallocManaged(&p, 4096): cuMemAllocManaged
cudaEventDestroy(e): cuEventDestroy
cudaStreamDestroy(s): cuStreamDestroy
cudaDeviceSynchronize(): cuCtxGetCurrent cuCtxSynchronize
cudaMalloc(&p, 1ull << 50): cuMemAlloc
cudaDeviceReset(): cuCtxGetCurrent cuCtxGetApiVersion cuDevicePrimaryCtxReset
cudaMalloc(&p, 100): cuCtxGetCurrent cuDevicePrimaryCtxRetain cuCtxGetDevice cuMemAlloc
"""
# Where NVIDIA's runtime uses its private table.
OWN = {"cudaMalloc(&p, 100)": {"cuCtxSetCurrent"}}
FAILS = {"cudaMalloc(&p, 1ull << 50)": 2}


def recorded():
    return {line.split(": ")[0].rstrip(":"): set(line.partition(": ")[2].split())
            for line in RECORDED.strip().splitlines()}


def queries():
    with open("test/fakecuda/cudart/queries.def", encoding="utf-8") as text:
        return re.findall(r"^CUDART_QUERY\((\w+), (\d+), ([02])\)$", text.read(), re.M)


def main():
    expected = recorded()
    check("439 questions at start, each once", len(queries()) == len(set(queries())) == 439, len(queries()))
    for kind in ("static", "shared"):
        with Room() as room:
            run = room.run([os.path.join(B, "test/apps/app_calls." + kind)], preload=False)
        check("app_calls.%s runs" % kind, run.returncode == 0 and run.stdout.endswith("app_calls: done\n"), tell(run))
        seen = set()
        for line in run.stdout.splitlines()[:-1]:
            call, code, made = re.match(r"^(.*) \[(\d+)\]:(.*)$", line).groups()
            made = {name.split("*")[0] for name in made.split()}
            seen.add(call)
            check("%s: %s" % (kind, call),
                  made - OWN.get(call, set()) == expected.get(call) and int(code) == FAILS.get(call, 0),
                  "returned %s, called %s, NVIDIA's calls %s" % (code, sorted(made), sorted(expected.get(call, []))))
        check("%s: every recorded call was made" % kind, seen == set(expected), sorted(set(expected) ^ seen))
    finish()


main()
