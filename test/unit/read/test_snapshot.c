/* The snapshot's JSON, section by section, from journals made by hand; parsed back with jansson. */
#include "test/unit/read/parsed_snapshot.h"
#include <elf.h>

#include "test/suite.h"

static void emit(void)
{
	int fd = memfd_create("json", 0);

	settle(UINT64_MAX);
	ck_assert_int_eq(gm_snapshot_emit(&copy, &request, fd), 0);
	parse(fd);
	close(fd);
}

static const char *str(const char *path)
{
	json_t *value = at(path);

	ck_assert_msg(json_is_string(value), "%s is no string", path);
	return json_string_value(value);
}

static size_t count(const char *path)
{
	return json_array_size(at(path));
}

static struct jb_what bytes_at(uint64_t address, uint64_t size, uint64_t op, uint64_t tsc)
{
	return (struct jb_what){ .address = address, .size = size, .op = op, .tsc = tsc };
}

START_TEST(of_an_empty_journal)
{
	static const char *const members[] = {
		"format", "version", "reason", "time_us", "consistent", "recovered", "process",
		"allocator_settings", "history", "refused", "failure", "failures", "devices", "host",
		"segments", "host_segments", "device_traces", "host_trace", "pools", "stacks", "frames",
		"modules", "annotations",
	};

	emit();
	for (unsigned int i = 0; i < sizeof(members) / sizeof(members[0]); i++)
		at(members[i]);
	ck_assert_uint_eq(json_object_size(root), sizeof(members) / sizeof(members[0]));
	ck_assert_str_eq(str("format"), "gpumem-snapshot");
	ck_assert_int_eq(num("version"), 1);
	ck_assert_str_eq(str("reason"), "test");
	ck_assert_int_eq(num("time_us"), 42);
	ck_assert(json_is_true(at("consistent")));
	ck_assert(json_is_null(at("failure")));
	ck_assert_uint_eq(count("devices"), 0);
	ck_assert_uint_eq(count("device_traces"), 0);
	ck_assert_uint_eq(count("stacks"), 1);
	ck_assert_uint_eq(count("stacks/0"), 0);
	ck_assert_uint_eq(count("modules"), 1);
	ck_assert_uint_eq(count("host_trace/action"), 0);
	ck_assert(json_is_null(at("process/rank")));
}
END_TEST

START_TEST(the_process)
{
	struct gm_header *h = jb.h;

	strcpy(h->command, "train\xff.py");
	memset(h->command_line, 'x', sizeof(h->command_line));	/* no NUL */
	strcpy(h->directory, "/home/\x01\"user\"");
	strcpy(h->gpumem_version, "0.1.0");
	strcpy(h->boot_id, "b-o-o-t");
	h->rank = 7;
	h->uid = 1000;
	h->start_time_us = 1700000000123456;
	h->driver_version = 12080;
	h->life = GM_LIFE_EXITING;
	h->pid_namespace = 4026531836;
	emit();
	ck_assert_int_eq(num("process/pid"), 4711);
	ck_assert_str_eq(str("process/command"), "train\xef\xbf\xbd.py");
	ck_assert_uint_eq(strlen(str("process/command_line")), sizeof(h->command_line));
	ck_assert_str_eq(str("process/directory"), "/home/\x01\"user\"");
	ck_assert_str_eq(str("process/host"), "box");
	ck_assert_int_eq(num("process/rank"), 7);
	ck_assert_int_eq(num("process/uid"), 1000);
	ck_assert_int_eq(num("process/start_time_us"), 1700000000123456);
	ck_assert_int_eq(num("process/driver_version"), 12080);
	ck_assert_str_eq(str("process/gpumem_version"), "0.1.0");
	ck_assert_str_eq(str("process/life"), "exiting");
	ck_assert_int_eq(num("process/pid_namespace"), 4026531836);
	ck_assert_str_eq(str("process/boot_id"), "b-o-o-t");
}
END_TEST

/* The keys of torch.cuda.memory_stats(), as PyTorch 2 gives them on a GPU: 12 values for each of
 * nine statistics, four for two more, six numbers. */
START_TEST(memory_stats_has_every_key)
{
	static const char *const three[] = {
		"active", "active_bytes", "allocated_bytes", "allocation", "inactive_split",
		"inactive_split_bytes", "requested_bytes", "reserved_bytes", "segment",
	};
	static const char *const pools[] = { "all", "large_pool", "small_pool" };
	static const char *const values[] = { "allocated", "current", "freed", "peak" };
	static const char *const one[] = { "oversize_allocations", "oversize_segments" };
	static const char *const numbers[] = {
		"max_split_size", "num_alloc_retries", "num_device_alloc", "num_device_free",
		"num_ooms", "num_sync_all_streams",
	};
	unsigned int keys = 0;
	char path[128];

	jb_device(&jb, 0, "A device", 80 * MIB);
	for (size_t i = 0; i < sizeof(struct gm_stats) / 8; i++)	/* each a value of its own */
		((int64_t *)(void *)&jb_domain(&jb, 0)->stats)[i] = (int64_t)(1000 + i);
	emit();
	for (int s = 0; s < 9; s++) {
		for (int p = 0; p < 3; p++) {
			for (int v = 0; v < 4; v++, keys++) {
				snprintf(path, sizeof(path), "devices/0/memory_stats/%s.%s.%s",
					 three[s], pools[p], values[v]);
				num(path);
			}
		}
	}
	for (int s = 0; s < 2; s++) {
		for (int v = 0; v < 4; v++, keys++) {
			snprintf(path, sizeof(path), "devices/0/memory_stats/%s.%s", one[s], values[v]);
			num(path);
		}
	}
	for (int n = 0; n < 6; n++, keys++) {
		snprintf(path, sizeof(path), "devices/0/memory_stats/%s", numbers[n]);
		num(path);
	}
	ck_assert_uint_eq(keys, 122);
	ck_assert_uint_eq(json_object_size(at("devices/0/memory_stats")), 122);
	const struct gm_stats *stats = &jb_domain(&jb, 0)->stats;

	ck_assert_int_eq(num("devices/0/memory_stats/reserved_bytes.small_pool.peak"),
			 stats->stat[GM_STAT_RESERVED_BYTES][GM_POOL_SMALL].peak);
	ck_assert_int_eq(num("devices/0/memory_stats/inactive_split.large_pool.freed"),
			 stats->stat[GM_STAT_INACTIVE_SPLIT][GM_POOL_LARGE].freed);
	ck_assert_int_eq(num("devices/0/memory_stats/oversize_segments.allocated"),
			 stats->oversize_segments.allocated);
	ck_assert_int_eq(num("devices/0/memory_stats/num_sync_all_streams"),
			 stats->num_sync_all_streams);
}
END_TEST

/* Of a heap whose memory comes and goes in pages: each piece without a gap is a segment of its own. */
START_TEST(segments_in_pages)
{
	const uint8_t states[] = { GM_BLOCK_UNMAPPED, GM_BLOCK_ACTIVE, GM_BLOCK_INACTIVE, GM_BLOCK_UNMAPPED,
				   GM_BLOCK_PENDING, GM_BLOCK_UNMAPPED };
	const unsigned int count_of = sizeof(states);
	uint32_t id, before;

	id = before = jb_put(&jb, bytes_at(0x7f0200000000, 2 * MIB, OP(1, 1), 10));
	jb.segments[id].size = count_of * 2 * MIB;
	jb.segments[id].heap = 1;
	jb.segments[id].flags = GM_SEGMENT_EXPANDABLE;
	jb.blocks[id].state = states[0];
	for (unsigned int i = 1; i < count_of; i++) {
		uint32_t next = (uint32_t)(jb_take(&jb, GM_REGION_BLOCKS, 128) / 128);

		jb_take(&jb, GM_REGION_SEGMENTS, 128);	/* as many of them: the ids stay equal */
		jb.blocks[next] = jb.blocks[before];
		jb.blocks[next].address += 2 * MIB;
		jb.blocks[next].state = states[i];
		jb.blocks[next].prev = before;
		jb.blocks[next].next = GM_NONE;
		jb.blocks[before].next = next;
		before = next;
	}
	emit();
	ck_assert_uint_eq(count("segments"), 2);
	ck_assert_int_eq(num("segments/0/address"), 0x7f0200000000 + 2 * (long long)MIB);
	ck_assert_int_eq(num("segments/0/total_size"), 4 * (long long)MIB);
	ck_assert_int_eq(num("segments/0/allocated_size"), 2 * (long long)MIB);
	ck_assert_int_eq(num("segments/0/active_size"), 2 * (long long)MIB);
	ck_assert(json_is_true(at("segments/0/is_expandable")));
	ck_assert_uint_eq(count("segments/0/blocks"), 2);
	ck_assert_str_eq(str("segments/0/blocks/1/state"), "inactive");
	ck_assert_int_eq(num("segments/1/address"), 0x7f0200000000 + 8 * (long long)MIB);
	ck_assert_int_eq(num("segments/1/total_size"), 2 * (long long)MIB);
	ck_assert_int_eq(num("segments/1/allocated_size"), 0);
	ck_assert_int_eq(num("segments/1/active_size"), 2 * (long long)MIB);
	ck_assert_uint_eq(count("segments/1/blocks"), 1);
}
END_TEST

START_TEST(segments_and_blocks)
{
	const uint32_t frames[] = { 2, 1 };
	struct jb_what what;
	uint16_t module = jb_module(&jb, "/usr/lib/libnccl.so.2", 0x7f0000000000);
	uint32_t inner, stack;

	jb_device(&jb, 0, "A device", 80 * MIB);
	jb_frame(&jb, module, 0x44, jb_string(&jb, "ncclCommInit"));
	inner = jb_frame(&jb, module, 0x88, 0);
	jb.frames[inner].filename = jb_string(&jb, "init.cc");
	jb.frames[inner].line = 12;
	jb.frames[inner].flags = 1;
	jb_stack(&jb, frames, 1);		/* nobody refers to it: not written */
	stack = jb_stack(&jb, frames, 2);
	what = bytes_at(0x7f0200000000, 4 * MIB, OP(1, 1), 10);
	what.requested = 4 * MIB - 100;
	what.stream = 0x55aa;
	what.module = module;
	what.stack = stack;
	what.thread = 100;
	jb_alloc(&jb, 1, what);
	jb_alloc(&jb, 2, bytes_at(0x7f0100000000, 512, OP(2, 1), 20));
	what = bytes_at(0x7e0000000000, MIB, OP(2, 2), 30);
	what.domain = GM_DOMAIN_HOST;
	what.kind = GM_KIND_HOST;
	jb_alloc(&jb, 2, what);
	what.address += MIB;
	what.op = OP(2, 3);
	what.flags = GM_SEGMENT_REGISTERED;
	jb_alloc(&jb, 2, what);
	what = bytes_at(0x1234, 2 * MIB, OP(2, 4), 40);
	what.kind = GM_KIND_VMM;
	what.flags = GM_SEGMENT_UNMAPPED | GM_SEGMENT_EXPANDABLE;
	jb_alloc(&jb, 2, what);
	emit();
	ck_assert_uint_eq(count("segments"), 3);
	ck_assert_int_eq(num("segments/0/address"), 0x1234);
	ck_assert_str_eq(str("segments/0/kind"), "vmm");
	ck_assert(json_is_true(at("segments/0/unmapped")));
	ck_assert(json_is_true(at("segments/0/is_expandable")));
	ck_assert_int_eq(num("segments/1/address"), 0x7f0100000000);
	ck_assert_str_eq(str("segments/1/segment_type"), "small");
	ck_assert(json_is_false(at("segments/1/is_expandable")));
	ck_assert_int_eq(num("segments/1/blocks/0/stack"), 0);
	ck_assert_int_eq(num("segments/2/device"), 0);
	ck_assert_int_eq(num("segments/2/total_size"), (long long)(4 * MIB));
	ck_assert_int_eq(num("segments/2/allocated_size"), (long long)(4 * MIB));
	ck_assert_int_eq(num("segments/2/active_size"), (long long)(4 * MIB));
	ck_assert_int_eq(num("segments/2/requested_size"), (long long)(4 * MIB - 100));
	ck_assert_int_eq(num("segments/2/stream"), 0x55aa);
	ck_assert_str_eq(str("segments/2/segment_type"), "large");
	ck_assert_int_eq(num("segments/2/segment_pool_id/1"), 0);
	ck_assert_str_eq(str("segments/2/kind"), "device");
	ck_assert_int_eq(num("segments/2/module"), 1);
	ck_assert_int_eq(num("segments/2/blocks/0/requested_size"), (long long)(4 * MIB - 100));
	ck_assert_str_eq(str("segments/2/blocks/0/state"), "active_allocated");
	ck_assert_int_eq(num("segments/2/blocks/0/time_us"), 1700000000000010);
	ck_assert_int_eq(num("segments/2/blocks/0/thread"), 100);
	ck_assert_str_eq(str("modules/1/path"), "/usr/lib/libnccl.so.2");
	ck_assert_str_eq(str("modules/1/build_id"), "deadbeef");
	ck_assert_int_eq(num("modules/1/base"), 0x7f0000000000);
	/* The stack, by number: innermost first. */
	ck_assert_uint_eq(count("stacks"), 2);
	ck_assert_int_eq(num("segments/2/blocks/0/stack"), 1);
	ck_assert_int_eq(num("stacks/1/0"), 2);
	ck_assert_int_eq(num("stacks/1/1"), 1);
	ck_assert_uint_eq(count("frames"), 3);
	ck_assert_str_eq(str("frames/1/name"), "ncclCommInit");
	ck_assert_int_eq(num("frames/1/offset"), 0x44);
	ck_assert_int_eq(num("frames/1/module"), 1);
	ck_assert(json_is_false(at("frames/1/python")));
	ck_assert_str_eq(str("frames/2/filename"), "init.cc");
	ck_assert_int_eq(num("frames/2/line"), 12);
	ck_assert(json_is_true(at("frames/2/python")));
	ck_assert_uint_eq(count("host_segments"), 2);
	ck_assert(json_is_null(at("host_segments/0/device")));
	ck_assert(json_is_true(at("host_segments/1/registered")));
	ck_assert_int_eq(num("host/memory_stats/allocated_bytes.all.current"), (long long)MIB);
}
END_TEST

/* As a caching allocator leaves them: several blocks in one segment, in every state. */
START_TEST(blocks_tile_a_segment)
{
	static const uint8_t states[] = {
		GM_BLOCK_ACTIVE, GM_BLOCK_INACTIVE, GM_BLOCK_PENDING, GM_BLOCK_FREEING
	};
	static const char *const names[] = {
		"active_allocated", "inactive", "active_pending_free", "active_allocated"
	};
	uint32_t first = jb_put(&jb, bytes_at(0x1000000, 4 * MIB, OP(1, 1), 10));
	char path[64];

	jb.blocks[first].size = MIB;
	jb.blocks[first].requested = MIB - 1;
	for (uint32_t i = 1; i < 4; i++) {
		uint32_t id = (uint32_t)(jb_take(&jb, GM_REGION_BLOCKS, 128) / 128);

		jb.blocks[id] = jb.blocks[first];
		jb.blocks[id].address += i * MIB;
		jb.blocks[id].state = states[i];
		jb.blocks[id - 1].next = id;
		jb.blocks[id].prev = id - 1;
	}
	emit();
	ck_assert_uint_eq(count("segments/0/blocks"), 4);
	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "segments/0/blocks/%d/state", i);
		ck_assert_str_eq(str(path), names[i]);
		snprintf(path, sizeof(path), "segments/0/blocks/%d/address", i);
		ck_assert_int_eq(num(path), 0x1000000 + i * (long long)MIB);
	}
	ck_assert_int_eq(num("segments/0/allocated_size"), (long long)(2 * MIB));
	ck_assert_int_eq(num("segments/0/active_size"), (long long)(3 * MIB));
	ck_assert_int_eq(num("segments/0/requested_size"), (long long)(3 * (MIB - 1)));
	ck_assert(json_is_true(at("segments/0/blocks/3/freeing")));
}
END_TEST

START_TEST(traces_are_columns)
{
	static const char *const columns[] = {
		"action", "addr", "size", "stream", "time_us", "stack", "thread", "kind", "module"
	};
	uint16_t module = jb_module(&jb, "/a.so", 4096);
	struct jb_what what = bytes_at(0x1000000, 2 * MIB, OP(1, 1), 10);
	struct gm_event *event;
	uint32_t id;
	char path[64];

	jb_device(&jb, 0, "A device", 80 * MIB);
	jb_device(&jb, 2, "Another", 80 * MIB);
	what.module = module;
	what.kind = GM_KIND_POOL;
	what.stream = GM_STREAM_OF_THREAD | 5;
	id = jb_alloc(&jb, 1, what);
	event = jb_event(&jb, 2, OP(2, 1), GM_ACTION_OOM, 2, 15, 123, 1 << 30);
	event->kind = GM_KIND_MANAGED;
	jb_free(&jb, 2, id, OP(2, 2), 20);
	event = jb_event(&jb, 1, OP(1, 2), GM_ACTION_ANNOTATE, 0, 25, 0, 0);
	event->stack = jb_string(&jb, "epoch 1");
	event = jb_event(&jb, 1, OP(1, 3), GM_ACTION_SNAPSHOT, 0, 30, 0, 77);
	event = jb_event(&jb, 1, OP(1, 4), GM_ACTION_ALLOC, GM_DOMAIN_HOST, 35, 9, 9);
	event->kind = GM_KIND_HOST;
	emit();
	ck_assert_uint_eq(count("device_traces"), 3);
	for (int d = 0; d < 3; d++) {
		static const size_t lengths[] = { 7, 0, 1 };

		for (int c = 0; c < 9; c++) {
			snprintf(path, sizeof(path), "device_traces/%d/%s", d, columns[c]);
			ck_assert_uint_eq(count(path), lengths[d]);
		}
		snprintf(path, sizeof(path), "device_traces/%d/dropped", d);
		ck_assert_int_eq(num(path), 0);
	}
	ck_assert_str_eq(str("device_traces/0/action/0"), "segment_alloc");
	ck_assert_str_eq(str("device_traces/0/action/1"), "alloc");
	ck_assert_str_eq(str("device_traces/0/action/2"), "free_requested");
	ck_assert_str_eq(str("device_traces/0/action/3"), "free_completed");
	ck_assert_str_eq(str("device_traces/0/action/4"), "segment_free");
	ck_assert_str_eq(str("device_traces/0/action/5"), "annotate");
	ck_assert_str_eq(str("device_traces/0/action/6"), "snapshot");
	ck_assert_int_eq(num("device_traces/0/stack/5"), 0);
	ck_assert_int_eq(num("device_traces/0/addr/1"), 0x1000000);
	ck_assert_int_eq(num("device_traces/0/stream/1"), 2);	/* CU_STREAM_PER_THREAD */
	ck_assert_int_eq(num("device_traces/0/thread/1"), 100);
	ck_assert_int_eq(num("device_traces/0/thread/2"), 200);
	ck_assert_str_eq(str("device_traces/0/kind/1"), "pool");
	ck_assert_int_eq(num("device_traces/0/module/1"), 1);
	ck_assert_int_eq(num("device_traces/0/time_us/2"), 1700000000000020);
	ck_assert_str_eq(str("device_traces/2/action/0"), "oom");
	ck_assert_int_eq(num("device_traces/2/addr/0"), 123);
	ck_assert_str_eq(str("device_traces/2/kind/0"), "managed");
	ck_assert_uint_eq(count("host_trace/addr"), 1);
	ck_assert_uint_eq(count("annotations"), 1);
	ck_assert_str_eq(str("annotations/0/name"), "epoch 1");
	ck_assert_int_eq(num("annotations/0/device"), 0);
	ck_assert_int_eq(num("annotations/0/time_us"), 1700000000000025);
	ck_assert_int_eq(num("history/events"), 9);
	/* Device 1 was never seen; it is listed so that places are numbers of devices. */
	ck_assert_uint_eq(count("devices"), 3);
	ck_assert(json_is_false(at("devices/1/present")));
	ck_assert_str_eq(str("devices/2/name"), "Another");
	ck_assert_str_eq(str("devices/2/uuid"), "20212223-2425-2627-2829-2a2b2c2d2e2f");
}
END_TEST

START_TEST(who_holds_how_much)
{
	uint16_t torch = jb_module(&jb, "/libtorch_cuda.so", 4096);
	uint16_t nccl = jb_module(&jb, "/libnccl.so", 8192);
	struct jb_what what = bytes_at(0x1000000, 2 * MIB, OP(1, 1), 10);

	jb_device(&jb, 0, "A device", 80 * MIB);
	what.module = nccl;
	jb_free(&jb, 1, jb_alloc(&jb, 1, what), OP(1, 2), 20);
	jb_alloc(&jb, 1, what);
	what.address = 0x2000000;
	what.module = torch;
	what.size = 6 * MIB;
	what.kind = GM_KIND_POOL;
	jb_alloc(&jb, 1, what);
	what.address = 0x3000000;
	what.kind = GM_KIND_IPC;
	what.size = MIB;
	jb_alloc(&jb, 1, what);
	emit();
	ck_assert_uint_eq(count("devices/0/by_module"), 2);
	ck_assert_int_eq(num("devices/0/by_module/0/module"), torch);	/* largest first */
	ck_assert_str_eq(str("devices/0/by_module/0/path"), "/libtorch_cuda.so");
	ck_assert_int_eq(num("devices/0/by_module/0/allocated_bytes"), (long long)(6 * MIB));
	ck_assert_int_eq(num("devices/0/by_module/1/allocated_bytes"), (long long)(2 * MIB));
	ck_assert_int_eq(num("devices/0/by_module/1/peak_bytes"), (long long)(2 * MIB));
	ck_assert_int_eq(num("devices/0/by_module/1/total_allocated_bytes"), (long long)(4 * MIB));
	ck_assert_int_eq(num("devices/0/by_module/1/total_freed_bytes"), (long long)(2 * MIB));
	ck_assert_int_eq(num("devices/0/by_module/1/allocations"), 2);
	ck_assert_int_eq(num("devices/0/by_module/1/frees"), 1);
	ck_assert_uint_eq(count("devices/0/by_kind"), 3);
	ck_assert_str_eq(str("devices/0/by_kind/0/kind"), "pool");
	ck_assert_str_eq(str("devices/0/by_kind/2/kind"), "ipc");
	/* Never sampled: it cannot be told what others hold. */
	ck_assert(json_is_null(at("devices/0/free_bytes")));
	ck_assert(json_is_null(at("devices/0/unattributed_bytes")));
	ck_assert(json_is_null(at("devices/0/sampled_us")));
	jb_domain(&jb, 0)->free_bytes = 60 * MIB;
	jb_domain(&jb, 0)->unattributed_bytes = 11 * MIB;
	jb_domain(&jb, 0)->free_stamp = 33;
	emit();
	ck_assert_int_eq(num("devices/0/total_bytes"), (long long)(80 * MIB));
	ck_assert_int_eq(num("devices/0/free_bytes"), (long long)(60 * MIB));
	ck_assert_int_eq(num("devices/0/sampled_us"), 1700000000000033);
	ck_assert_int_eq(num("devices/0/unattributed_bytes"), (long long)(11 * MIB));
	jb_domain(&jb, 0)->unattributed_bytes = -(int64_t)(9 * MIB);	/* managed memory, elsewhere */
	emit();
	ck_assert_int_eq(num("devices/0/unattributed_bytes"), -(long long)(9 * MIB));
}
END_TEST

START_TEST(what_could_not_be_had)
{
	uint16_t torch = jb_module(&jb, "/libtorch_cuda.so", 4096);
	struct jb_what what = bytes_at(0x1000000, 6 * MIB, OP(1, 1), 10);
	struct gm_failure *failure = &jb.failures[3];
	uint32_t idle;

	jb_device(&jb, 0, "A device", 80 * MIB);
	what.module = torch;
	jb_alloc(&jb, 1, what);
	idle = jb_put(&jb, bytes_at(0x2000000, 3 * MIB, OP(1, 2), 11));
	jb.blocks[idle].state = GM_BLOCK_INACTIVE;
	*failure = (struct gm_failure){
		.number = 4, .tsc = 50, .requested_bytes = 1 << 30, .free_bytes = MIB,
		.total_bytes = 80 * MIB, .live_bytes = 6 * MIB, .stream = 5, .result = 2,
		.tid = 100, .module = torch, .kind = GM_KIND_POOL, .entry = "cuMemAllocAsync",
	};
	jb.failures[4] = *failure;
	jb.failures[4].number = 2;
	jb.failures[4].result = 12345;
	request.failure = 4;
	request.reason = "oom";
	emit();
	ck_assert_str_eq(str("failure/type"), "oom");
	ck_assert_int_eq(num("failure/number"), 4);
	ck_assert_int_eq(num("failure/requested_bytes"), 1 << 30);
	ck_assert_int_eq(num("failure/free_bytes"), (long long)MIB);
	ck_assert_int_eq(num("failure/total_bytes"), (long long)(80 * MIB));
	ck_assert_int_eq(num("failure/live_bytes"), (long long)(6 * MIB));
	ck_assert_int_eq(num("failure/largest_idle_block_bytes"), (long long)(3 * MIB));
	ck_assert_str_eq(str("failure/entry"), "cuMemAllocAsync");
	ck_assert_int_eq(num("failure/result"), 2);
	ck_assert_str_eq(str("failure/result_name"), "CUDA_ERROR_OUT_OF_MEMORY");
	ck_assert_int_eq(num("failure/device"), 0);
	ck_assert_str_eq(str("failure/kind"), "pool");
	ck_assert_int_eq(num("failure/time_us"), 1700000000000050);
	ck_assert_int_eq(num("failure/by_module/0/allocated_bytes"), (long long)(6 * MIB));
	ck_assert_uint_eq(count("failures"), 2);
	ck_assert_int_eq(num("failures/0/number"), 2);
	ck_assert_str_eq(str("failures/0/result_name"), "unknown");
	request.failure = 3;		/* gone from the ring meanwhile */
	emit();
	ck_assert(json_is_null(at("failure")));
}
END_TEST

START_TEST(what_it_died_of)
{
	uint16_t module = jb_module(&jb, "/lib/a.so", 0x10000), gone = jb_module(&jb, "/lib/b.so", 0x20000);
	uint32_t frame = jb_frame(&jb, module, 0x11, jb_string(&jb, "broken"));

	jb_device(&jb, 0, "A device", 80 * MIB);
	jb.modules[gone].unload_tsc = 5;
	jb.h->crash_signal = 11;
	jb.h->crash_code = 1;
	jb.h->crash_address = 0xdead;
	jb.h->crash_tid = 12;
	jb.h->crash_machine = EM_X86_64;
	jb.h->crash_registers[16] = 0x10010;
	jb.h->crash_frames = 3;
	jb.h->crash_pcs[0] = 0x10010;
	jb.h->crash_pcs[1] = 0x20010;
	jb.h->crash_stack = jb_stack(&jb, &frame, 1);
	emit();
	ck_assert_str_eq(str("failure/type"), "crash");
	ck_assert_int_eq(num("failure/signal"), 11);
	ck_assert_str_eq(str("failure/signal_name"), "SIGSEGV");
	ck_assert_int_eq(num("failure/address"), 0xdead);
	ck_assert(json_is_null(at("failure/sender_pid")));
	ck_assert_int_eq(num("failure/thread"), 12);
	ck_assert_int_eq(num("failure/registers/rip"), 0x10010);
	ck_assert_uint_eq(count("failure/pcs"), 3);
	ck_assert_int_eq(num("failure/pcs/0/module"), module);
	ck_assert_int_eq(num("failure/pcs/0/offset"), 0x10);
	ck_assert_int_eq(num("failure/pcs/1/module"), 0);	/* that one was unloaded */
	ck_assert_int_eq(num("failure/pcs/1/offset"), 0x20010);
	ck_assert_int_eq(num("failure/stack"), 1);
	ck_assert_str_eq(str("frames/1/name"), "broken");
	ck_assert_int_eq(num("failure/holders/0/device"), 0);
	/* Sent, and on a machine that nobody here knows; more frames than there can be. */
	jb.h->crash_signal = 15;
	jb.h->crash_code = 0;
	jb.h->crash_sender_pid = 77;
	jb.h->crash_machine = 1;
	jb.h->crash_frames = UINT32_MAX;
	emit();
	ck_assert_str_eq(str("failure/signal_name"), "SIGTERM");
	ck_assert(json_is_null(at("failure/address")));
	ck_assert_int_eq(num("failure/sender_pid"), 77);
	ck_assert_uint_eq(json_object_size(at("failure/registers")), 0);
	ck_assert_uint_eq(count("failure/pcs"), 128);
}
END_TEST

START_TEST(what_was_in_flight_dropped_or_refused)
{
	struct gm_thread *thread = &jb.threads[2];

	jb_device(&jb, 0, "A device", 80 * MIB);
	jb_event(&jb, 1, OP(1, 1), GM_ACTION_OOM, 0, 10, 0, 1);
	jb_event(&jb, 1, OP(1, 2), GM_ACTION_OOM, 0, 20, 0, 1);
	jb.h->horizon = 10;
	jb.h->events_lost = 3;
	jb.h->operations_lost = 4;
	jb.h->regions[GM_REGION_BLOCKS].refused = 5;
	thread->flight_op = OP(2, 9);
	thread->flight_action = GM_ACTION_ALLOC;
	thread->flight_kind = GM_KIND_MANAGED;
	thread->flight_size = 4096;
	thread->flight_tsc = 30;
	request.recovered = true;
	request.time_us = 0;
	emit();
	ck_assert(json_is_true(at("recovered/after_death")));
	ck_assert_uint_eq(count("recovered/in_flight"), 1);
	ck_assert_str_eq(str("recovered/in_flight/0/action"), "alloc");
	ck_assert_str_eq(str("recovered/in_flight/0/kind"), "managed");
	ck_assert_int_eq(num("recovered/in_flight/0/size"), 4096);
	ck_assert_int_eq(num("recovered/in_flight/0/thread"), 200);
	ck_assert_int_eq(num("recovered/in_flight/0/time_us"), 1700000000000030);
	ck_assert_int_eq(num("history/events"), 1);
	ck_assert_int_eq(num("history/dropped"), 4);
	ck_assert_int_eq(num("history/events_lost"), 3);
	ck_assert_int_eq(num("history/operations_lost"), 4);
	ck_assert_int_eq(num("device_traces/0/dropped"), 1);
	ck_assert_int_eq(num("refused/blocks"), 5);
	ck_assert_int_eq(num("refused/stacks"), 0);
	/* The moment shown is the last one that anything is known of: the helper's last tick. */
	ck_assert_int_eq(num("time_us"), 1700000001000000);
}
END_TEST

START_TEST(settings_have_pytorchs_types)
{
	static const long long bins[16] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8 };
	char path[80];

	jb_setting(&jb, "history", "1048576", "default");
	jb_setting(&jb, "max_split_size_mb", "128", "PYTORCH");
	jb_setting(&jb, "garbage_collection_threshold", "0.8", "GPUMEM_CONF");
	jb_setting(&jb, "expandable_segments", "True", "GPUMEM_CONF");
	jb_setting(&jb, "roundup_power2_divisions", "[256:1,512:2,1024:4,>:8]", "GPUMEM_CONF");
	jb_setting(&jb, "output", "/tmp/\"q\".json", "GPUMEM_OUTPUT");
	emit();
	ck_assert_int_eq(num("allocator_settings/max_split_size"), 128 << 20);
	ck_assert(json_real_value(at("allocator_settings/garbage_collection_threshold")) == 0.8);
	ck_assert(json_is_true(at("allocator_settings/expandable_segments")));
	ck_assert(json_is_false(at("allocator_settings/release_lock_on_cudamalloc")));
	for (int i = 0; i < 16; i++) {
		snprintf(path, sizeof(path), "allocator_settings/roundup_power2_divisions/%d", 1 << i);
		ck_assert_int_eq(num(path), bins[i]);
	}
	ck_assert_str_eq(str("allocator_settings/gpumem/history/value"), "1048576");
	ck_assert_str_eq(str("allocator_settings/gpumem/history/source"), "default");
	ck_assert_str_eq(str("allocator_settings/gpumem/output/value"), "/tmp/\"q\".json");
}
END_TEST

START_TEST(settings_that_are_nonsense)
{
	static const char *const fractions[] = { "", "x", "1.", ".5", "01.5", "1.5x", "unlimited" };
	char name[32];

	jb_setting(&jb, "garbage_collection_threshold", fractions[_i], "x");
	jb_setting(&jb, "max_split_size_mb", "unlimited", "x");
	jb_setting(&jb, "roundup_power2_divisions", "[:,>:,9999999999999999:3,>:7", "x");
	snprintf(name, sizeof(name), "other%d", _i);
	jb_setting(&jb, name, "", "");
	emit();
	ck_assert(json_is_number(at("allocator_settings/garbage_collection_threshold")));
	ck_assert_int_eq(num("allocator_settings/max_split_size"), -1);
}
END_TEST

START_TEST(strings_of_any_bytes)
{
	unsigned int seed = 20251120;
	char text[300];

	printf("# seed %u\n", seed);
	for (int i = 0; i < 30; i++) {
		size_t length = (size_t)rand_r(&seed) % sizeof(text);

		for (size_t k = 0; k < length; k++)
			text[k] = (char)(rand_r(&seed) >> 5);
		jb.modules[jb_module(&jb, "x", 4096)].path = jb_string_bytes(&jb, text, length);
	}
	emit();
	ck_assert_uint_eq(count("modules"), 31);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("snapshot");
	TCase *tcase = tcase_create("snapshot");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, of_an_empty_journal);
	tcase_add_test(tcase, the_process);
	tcase_add_test(tcase, memory_stats_has_every_key);
	tcase_add_test(tcase, segments_in_pages);
	tcase_add_test(tcase, segments_and_blocks);
	tcase_add_test(tcase, blocks_tile_a_segment);
	tcase_add_test(tcase, traces_are_columns);
	tcase_add_test(tcase, who_holds_how_much);
	tcase_add_test(tcase, what_could_not_be_had);
	tcase_add_test(tcase, what_it_died_of);
	tcase_add_test(tcase, what_was_in_flight_dropped_or_refused);
	tcase_add_test(tcase, settings_have_pytorchs_types);
	tcase_add_loop_test(tcase, settings_that_are_nonsense, 0, 7);
	tcase_add_test(tcase, strings_of_any_bytes);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
