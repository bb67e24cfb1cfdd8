/*
 * torch.js - turn a snapshot of PyTorch's into one of ours (docs/snapshot.md), by the rules of
 * tools/read/snapshot_read.c and tools/torch/torch_read.c: equal stacks get one number, events become columns, and
 * memory_stats has only current values. Unknown values are written as our snapshots write unknown values.
 */
import { isObject, list, number, text } from "./values.js";

const TRACES = 1024;

class Interning {
	constructor() {
		this.frames = [{ name: "", filename: "", line: 0, module: 0, offset: 0, python: false }];
		this.stacks = [[]];
		this.frameIds = new Map();
		this.stackIds = new Map();
		/* Lists and frames by identity, because a pickle refers to one several times. */
		this.known = new Map();
	}

	frame(from) {
		if (this.known.has(from))
			return this.known.get(from);
		const name = text(from?.name), filename = text(from?.filename), line = number(from?.line);
		const key = `${line} ${name.length} ${name}${filename}`;
		let id = this.frameIds.get(key);
		if (id === undefined) {
			this.frameIds.set(key, id = this.frames.length);
			this.frames.push({ name, filename, line, module: 0, offset: 0, python: /..*\.py$/s.test(filename) });
		}
		if (from && typeof from === "object")
			this.known.set(from, id);
		return id;
	}

	stack(of) {
		let frames = list(of?.frames);
		if (!frames.length)
			frames = list(list(of?.history)[0]?.frames);
		if (!frames.length)
			return 0;
		if (this.known.has(frames))
			return this.known.get(frames);
		const ids = frames.map((frame) => this.frame(frame)), key = ids.join();
		let id = this.stackIds.get(key);
		if (id === undefined) {
			this.stackIds.set(key, id = this.stacks.length);
			this.stacks.push(ids);
		}
		this.known.set(frames, id);
		return id;
	}
}

const segmentOf = (from, interning) => {
	let next = number(from?.address);
	const blocks = list(from?.blocks).map((block) => {
		const size = number(block?.size), address = block?.address === undefined ? next : number(block.address);
		next = address + size;
		return {
			address, size, requested_size: block?.requested_size === undefined ? size : number(block.requested_size),
			state: text(block?.state), stack: interning.stack(block), time_us: number(block?.time_us), thread: 0,
			kind: "device", module: 0,
		};
	});
	return {
		device: from?.device === null ? null : number(from?.device), address: number(from?.address), total_size: number(from?.total_size),
		allocated_size: number(from?.allocated_size), active_size: number(from?.active_size),
		requested_size: number(from?.requested_size), stream: number(from?.stream), segment_type: text(from?.segment_type),
		segment_pool_id: list(from?.segment_pool_id).map(number), is_expandable: number(from?.is_expandable) !== 0,
		kind: "device", module: 0, stack: interning.stack(from), time_us: number(from?.time_us), blocks,
	};
};

const COLUMNS = ["action", "addr", "size", "stream", "time_us", "stack", "thread", "kind", "module"];

const traceOf = (events, device, interning, annotations) => {
	const trace = Object.fromEntries(COLUMNS.map((name) => [name, []]));
	for (const event of list(events)) {
		const action = text(event?.action);
		trace.action.push(action);
		trace.addr.push(number(action === "oom" ? event.device_free : event?.addr));
		trace.size.push(number(event?.size));
		trace.stream.push(number(event?.stream));
		trace.time_us.push(number(event?.time_us));
		trace.stack.push(interning.stack(event));
		trace.thread.push(0);
		trace.kind.push("device");
		trace.module.push(0);
		if (action === "annotate")
			annotations.push({ name: text(event.user_metadata), stage: "MARK", device, time_us: number(event.time_us), thread: 0 });
	}
	return { dropped: 0, ...trace };
};

const statsOf = (segments) => {
	const stats = {};
	const add = (name, pool, value) => {
		for (const one of ["all", pool])
			stats[`${name}.${one}.current`] = (stats[`${name}.${one}.current`] ?? 0) + value;
	};
	for (const name of ["allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
		"inactive_split_bytes", "requested_bytes"])
		for (const pool of ["small_pool", "large_pool"])
			add(name, pool, 0);
	for (const segment of segments) {
		const pool = segment.segment_type === "small" ? "small_pool" : "large_pool", { blocks } = segment;
		add("allocated_bytes", pool, segment.allocated_size);
		add("active_bytes", pool, segment.active_size);
		add("requested_bytes", pool, segment.requested_size);
		add("reserved_bytes", pool, segment.total_size);
		add("segment", pool, segment.is_expandable ? 0 : 1);
		for (const { state, size } of blocks) {
			const idle = state === "inactive";
			add("allocation", pool, state === "active_allocated" ? 1 : 0);
			add("active", pool, idle ? 0 : 1);
			if (idle && blocks.length > 1 && !segment.is_expandable) {
				add("inactive_split", pool, 1);
				add("inactive_split_bytes", pool, size);
			}
		}
	}
	return stats;
};

export const isTorch = (root) => isObject(root) && root.format === undefined &&
	(Array.isArray(root.segments) || Array.isArray(root.device_traces));

/* Make a snapshot of ours from @root, the dict of PyTorch's. */
export const torchSnapshot = (root) => {
	const interning = new Interning(), annotations = [];
	const segments = list(root.segments).map((one) => segmentOf(one, interning));
	const traces = list(root.device_traces).slice(0, TRACES).map((one, device) => traceOf(one, device, interning, annotations));
	for (const one of list(root.external_annotations))
		annotations.push({ name: text(one?.name), stage: text(one?.stage), device: number(one?.device), time_us: number(one?.time_us), thread: 0 });
	const most = segments.reduce((sum, { device }) => device !== null && device < TRACES ? Math.max(sum, device + 1) : sum, traces.length);
	while (traces.length < most)
		traces.push(traceOf([], traces.length, interning, annotations));
	const time = traces.reduce((last, { time_us: times }) => Math.max(last, times.at(-1) ?? 0), 0);
	return {
		format: "gpumem-snapshot", version: 1, reason: "pytorch", time_us: time, consistent: true, process: {},
		allocator_settings: isObject(root.allocator_settings) ? root.allocator_settings : {},
		devices: traces.map((_, device) => ({
			device, present: true, name: "", total_bytes: null, by_module: [], by_kind: [], unattributed_bytes: null,
			memory_stats: statsOf(segments.filter((segment) => segment.device === device)),
		})),
		segments, host_segments: [], device_traces: traces, stacks: interning.stacks, frames: interning.frames,
		modules: [{ path: "", build_id: "" }], annotations,
	};
};
