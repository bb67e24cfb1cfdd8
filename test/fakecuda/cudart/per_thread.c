/* per_thread.c - the _ptds and _ptsz names: every call on a stream, for programs compiled with
 * -default-stream per-thread.
 *
 * NVIDIA's headers rename those calls when this macro is set, and cudart.h then takes the driver's
 * per-thread entry points. So this file is the same code once more under the other names.
 */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM

#include "async.c"
#include "copy.c"
#include "copy_array.c"
#include "entry_point.c"
#include "event.c"
#include "graph.c"
#include "launch.c"
#include "stream.c"
