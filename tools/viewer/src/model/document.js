/*
 * document.js - a snapshot in the viewer's form, read by pack.js or, for files that are dropped onto the page, by
 * json.js. Everything else in model/ works on this.
 *
 * A document has sources: a device, the host's pinned memory, or a pool of a framework on a device (level "pool"). Each
 * source has its own events and segments, as columns. A source of a pack also has births(name): that column of
 * allocations alone, without unpacking the other events; only if no allocation has a mate.
 */
import { lazy } from "./values.js";

export const ACTIONS = ["alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map",
	"segment_unmap", "oom", "snapshot", "annotate", "other"];
export const ACT = Object.fromEntries(ACTIONS.map((name, i) => [name, i]));

export const EVENT_COLUMNS = ["mate", "action", "time", "addr", "size", "stream", "kind", "module", "thread", "stack",
	"annotation"];
export const SEGMENT_COLUMNS = ["addr", "size", "stream", "type", "kind", "pool0", "pool1", "flags", "module", "stack",
	"time", "handle", "blocks"];
export const BLOCK_COLUMNS = ["addr", "size", "requested", "state", "kind", "stack", "time", "thread", "module",
	"flags", "event", "name"];
export const SEGMENT_EXPANDABLE = 1, SEGMENT_REGISTERED = 2, SEGMENT_UNMAPPED = 4;

/*
 * Find each event's mate, the event that it ends: for a free its allocation, for a completed free its request, for an
 * allocation an earlier one at its address whose free was lost. mates: how many events back the mate is; 0: none. open:
 * for each address the last event that nothing ended. Packs of `gpumem view` have both already.
 */
export const findMates = (action, addr) => {
	const count = action.length, mates = new Uint32Array(count);
	const blocks = new Map(), segments = new Map();
	for (let i = 0; i < count; i++) {
		const a = action[i];
		const begins = a === ACT.alloc || a === ACT.segment_alloc, waits = a === ACT.free_requested;
		if (!begins && !waits && a !== ACT.free_completed && a !== ACT.segment_free)
			continue;
		const open = a === ACT.segment_alloc || a === ACT.segment_free ? segments : blocks;
		const at = open.get(addr[i]);
		if (at !== undefined)
			mates[i] = i - at;
		if (begins || (waits && at !== undefined))
			open.set(addr[i], i);
		else if (at !== undefined)
			open.delete(addr[i]);
	}
	return { mates, open: blocks };
};

/* Return for each block the event in @open at its address, counted from 1; 0: none. Each event belongs to one block. */
export const findEvents = ({ addr, size, state }, open, inactive) => Int32Array.from(addr, (address, b) => {
	const event = size[b] && state[b] !== inactive ? open.get(address) : undefined;
	if (event === undefined)
		return 0;
	open.delete(address);
	return event + 1;
});

const take = (columns, prefix, names) => {
	const found = {};
	for (const name of names)
		lazy(found, name, () => columns.get(prefix + name) ?? new Int32Array(0));
	return found;
};

export const sourceName = (source) => {
	if (source.name)
		return source.name;
	if (source.level === "pool")
		return `${source.pool?.name || "a pool"} on GPU ${source.device}`;
	return source.device === null ? "host, pinned" : `GPU ${source.device}`;
};

/* Make a document from a pack's header and columns. */
export const documentOf = ({ header, columns }) => {
	const { texts, numbers, root } = header;
	const actions = texts.map((text) => ACT[text] ?? ACT.other), alloc = texts.indexOf("alloc");
	const sources = header.sources.map((source, i) => {
		const events = take(columns, `${i}.`, "at_peak" in source ? [...EVENT_COLUMNS, "pool"] : EVENT_COLUMNS);
		const segments = take(columns, `${i}.segment.`, SEGMENT_COLUMNS);
		const blocks = take(columns, `${i}.block.`, BLOCK_COLUMNS);
		const action = new Uint8Array(events.action.length);
		for (let k = 0; k < action.length; k++)
			action[k] = actions[events.action[k]];
		events.action = action;
		const births = (name) => columns.ofAction(`${i}.`, name, alloc);
		return { ...source, name: sourceName(source), events, segments, blocks, count: events.action.length, births };
	});
	const stacks = take(columns, "", ["node.parent", "node.frame", "stack.node", "frame.name", "frame.file",
		"frame.line", "frame.module", "frame.python"]);
	const parent = stacks["node.parent"];
	for (let i = 0; i < parent.length; i++)
		parent[i] = i - parent[i];
	return {
		name: header.name, root, texts, numbers, sources, explanation: header.explanation ?? null,
		modules: (root.modules ?? []).map((module) => module?.path ?? ""),
		stacks: {
			parent, frame: stacks["node.frame"], tip: stacks["stack.node"],
			frames: {
				name: stacks["frame.name"], file: stacks["frame.file"], line: stacks["frame.line"],
				module: stacks["frame.module"], python: stacks["frame.python"],
			},
		},
	};
};
