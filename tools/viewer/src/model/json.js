/*
 * json.js - make a document (document.js) from a snapshot of ours (docs/snapshot.md), for files that are dropped onto
 * the page. `gpumem view` does the same in C (tools/read/snapshot_read.c, tools/write/view_pack.c). Only the command
 * looks for names and lines in debug information and explains why memory ran out; here names and lines are the file's.
 */
import { BadInput } from "./bad_input.js";
import { ACT, BLOCK_COLUMNS, EVENT_COLUMNS, SEGMENT_COLUMNS, SEGMENT_EXPANDABLE, SEGMENT_REGISTERED,
	SEGMENT_UNMAPPED, findEvents, findMates, sourceName } from "./document.js";
import { demangle } from "./demangle.js";
import { baseName } from "./stacks.js";
import { index, isObject, list, number, text } from "./values.js";

const WIDE = new Set(["time", "addr", "size", "requested", "handle"]);
const HEAVY = new Set(["segments", "host_segments", "device_traces", "host_trace", "stacks", "frames", "external_annotations", "pools"]);

/* Give values numbers, in the order in which they first appear. */
class Numbering {
	constructor() {
		this.list = [];
		this.ids = new Map();
	}

	of(value) {
		let id = this.ids.get(value);
		if (id === undefined) {
			this.ids.set(value, id = this.list.length);
			this.list.push(value);
		}
		return id;
	}
}

const columnsOf = (names, count) => Object.fromEntries(names.map((name) =>
	[name, name === "action" ? new Uint8Array(count) : new (WIDE.has(name) ? Float64Array : Int32Array)(count)]));

class Reading {
	constructor(root) {
		this.root = root;
		this.texts = new Numbering();
		this.numbers = new Numbering();
		this.stackCount = Math.max(1, list(root.stacks).length);
	}

	/* ---- stacks ---- */

	frames(modules) {
		const from = list(this.root.frames), count = Math.max(1, from.length);
		const frames = columnsOf(["name", "file", "line", "module", "python"], count);
		for (let f = 0; f < count; f++) {
			const frame = from[f] ?? {}, module = baseName(modules[index(frame.module)] ?? "");
			const made = module ? `${module}+0x${Math.max(0, number(frame.offset)).toString(16)}` : "??";
			frames.name[f] = this.texts.of(demangle(text(frame.name)) || made);
			frames.file[f] = this.texts.of(text(frame.filename) || module);
			frames.line[f] = number(frame.line);
			frames.module[f] = this.texts.of(module);
			frames.python[f] = frame.python === true ? 1 : 0;
		}
		return frames;
	}

	/* Make the tree of stacks: see stacks.js. */
	tree(frameCount) {
		const parent = [0], frame = [0], tip = new Int32Array(this.stackCount), known = new Map();
		list(this.root.stacks).forEach((ids, s) => {
			let node = 0;
			for (let i = list(ids).length; i--;) {
				const f = index(ids[i]) < frameCount ? index(ids[i]) : 0, key = node * frameCount + f;
				let next = known.get(key);
				if (next === undefined) {
					known.set(key, next = parent.length);
					parent.push(node);
					frame.push(f);
				}
				node = next;
			}
			tip[s] = node;
		});
		return { parent: Int32Array.from(parent), frame: Int32Array.from(frame), tip };
	}

	/* ---- events ---- */

	/* Return { found, added }. found: the annotation of each event of @trace, counted from 1; 0: none. added: the
	 * annotations without an event, { id, time, note, row: the event that follows }. Annotations of a device are in
	 * the order of its events. */
	annotate(trace, count, device) {
		const found = new Int32Array(count), notes = [], added = [];
		list(this.root.annotations).forEach((note, i) => {
			if (isObject(note) && (Number.isInteger(note.device) ? note.device : null) === device)
				notes.push({ id: i + 1, time: number(note.time_us), note });
		});
		let next = 0;
		const used = new Set();
		for (let i = 0; i < count && next < notes.length; i++) {
			if (trace.action[i] !== "annotate")
				continue;
			const time = number(trace.time_us[i]);
			while (next < notes.length && notes[next].time < time)
				next++;
			if (next < notes.length && notes[next].time === time) {
				used.add(notes[next].id);
				found[i] = notes[next++].id;
			}
		}
		let row = 0;
		for (const one of notes) {
			if (used.has(one.id))
				continue;
			while (row < count && number(trace.time_us[row]) <= one.time)
				row++;
			added.push({ ...one, row });
		}
		return { found, added };
	}

	events(trace, device) {
		const names = ["action", "addr", "size", "stream", "time_us", "stack", "thread", "kind", "module"];
		const has = Object.fromEntries(names.map((name) => [name, list(trace?.[name])]));
		const count = Math.min(...names.map((name) => has[name].length));
		const { found, added } = this.annotate(has, count, device), events = columnsOf(EVENT_COLUMNS, count + added.length);
		const put = (at, one) => {
			events.action[at] = ACT[one.action] ?? ACT.other;
			events.time[at] = number(one.time_us);
			events.addr[at] = number(one.addr);
			events.size[at] = number(one.size);
			events.stream[at] = this.numbers.of(number(one.stream));
			events.thread[at] = this.numbers.of(number(one.thread));
			events.kind[at] = this.texts.of(text(one.kind));
			events.module[at] = index(one.module);
			events.stack[at] = index(one.stack);
			events.annotation[at] = one.annotation;
		};
		for (let i = 0, at = 0, next = 0; at < count + added.length; at++) {
			const one = added[next];
			if (one && (i === count || one.row <= i)) {
				put(at, { action: "annotate", time_us: one.time, size: one.note.range, thread: one.note.thread, annotation: one.id });
				next++;
			} else {
				put(at, {
					action: has.action[i], time_us: has.time_us[i], addr: has.addr[i], size: has.size[i], stream: has.stream[i],
					thread: has.thread[i], kind: has.kind[i], module: has.module[i], stack: has.stack[i], annotation: found[i],
				});
				i++;
			}
		}
		return events;
	}

	/* ---- segments ---- */

	segments(from) {
		const all = from.flatMap((segment) => list(segment.blocks)), segments = columnsOf(SEGMENT_COLUMNS, from.length);
		const blocks = columnsOf(BLOCK_COLUMNS, all.length);
		from.forEach((one, i) => {
			segments.addr[i] = number(one.address);
			segments.size[i] = number(one.total_size);
			segments.stream[i] = this.numbers.of(number(one.stream));
			segments.type[i] = this.texts.of(text(one.segment_type));
			segments.kind[i] = this.texts.of(text(one.kind) || "device");
			segments.pool0[i] = number(list(one.segment_pool_id)[0]);
			segments.pool1[i] = number(list(one.segment_pool_id)[1]);
			segments.flags[i] = (number(one.is_expandable) && SEGMENT_EXPANDABLE) | (number(one.registered) && SEGMENT_REGISTERED) |
				(number(one.unmapped) && SEGMENT_UNMAPPED);
			segments.module[i] = index(one.module);
			segments.stack[i] = index(one.stack);
			segments.time[i] = number(one.time_us);
			segments.handle[i] = number(one.handle);
			segments.blocks[i] = list(one.blocks).length;
		});
		all.forEach((one, i) => {
			blocks.addr[i] = number(one?.address);
			blocks.size[i] = number(one?.size);
			blocks.requested[i] = one?.requested_size === undefined ? blocks.size[i] : number(one.requested_size);
			blocks.state[i] = this.texts.of(text(one?.state));
			blocks.kind[i] = this.texts.of(text(one?.kind) || "device");
			blocks.name[i] = this.texts.of(text(one?.name));
			blocks.stack[i] = index(one?.stack);
			blocks.time[i] = number(one?.time_us);
			blocks.thread[i] = this.numbers.of(number(one?.thread));
			blocks.module[i] = index(one?.module);
			blocks.flags[i] = number(one?.freeing) | number(one?.untraced) << 1;
		});
		return { segments, blocks };
	}

	/* @noted: the device whose annotations are events of this source; NaN: no annotations. */
	source(device, trace, from, noted = device) {
		const events = this.events(trace, noted), count = events.action.length, { segments, blocks } = this.segments(from);
		const { mates, open } = findMates(events.action, events.addr);
		events.mate = mates;
		blocks.event = findEvents(blocks, open, this.texts.of("inactive"));
		return { device, level: "driver", dropped: number(trace?.dropped), name: sourceName({ device }), events, count, segments, blocks };
	}

	/* Return the sources that have events, segments or a peak. A peak alone is enough, because a history may be
	 * empty and all memory given back. */
	sources() {
		const { root } = this, all = list(root.segments).filter(isObject), found = [];
		const add = (source, about) => {
			if (source.count || source.segments.addr.length || number(about?.memory_stats?.["allocated_bytes.all.peak"]) > 0)
				found.push(source);
		};
		list(root.device_traces).forEach((trace, device) =>
			add(this.source(device, trace, all.filter((one) => one.device === device)), list(root.devices).find((one) => one?.device === device)));
		add(this.source(null, root.host_trace, [...all.filter(({ device }) => device === null), ...list(root.host_segments).filter(isObject)]), root.host);
		for (const pool of list(root.pools).filter(isObject)) {
			const device = number(pool.device), about = { name: text(pool.name), source: text(pool.source), at_peak: pool.at_peak };
			add({
				...this.source(device, pool.trace, list(pool.segments).filter(isObject), NaN), level: "pool", pool: about,
				name: sourceName({ device, level: "pool", pool: about }),
			}, pool);
		}
		return found;
	}
}

const checkVersion = (root) => {
	if (!isObject(root) || root.format !== "gpumem-snapshot")
		throw new BadInput("JSON, but not a snapshot of gpumem or PyTorch");
	if (root.version === undefined)
		throw new BadInput("a snapshot that does not say its version");
	if (typeof root.version !== "number")
		throw new BadInput("a snapshot whose version is no number");
	if (root.version !== 1)
		throw new BadInput(`a snapshot of version ${root.version}; this page reads version 1`);
};

/* Return the members that are not in columns, each of the type that the page expects. */
const restOf = (root) => {
	const rest = Object.fromEntries(Object.entries(root).filter(([key]) => !HEAVY.has(key)));
	for (const key of ["devices", "failures", "modules"])
		rest[key] = list(root[key]).filter(isObject);
	rest.annotations = list(root.annotations).map((note) => isObject(note) ? { ...note, name: text(note.name) } : {});
	for (const key of ["process", "host", "history", "refused", "failure", "recovered", "allocator_settings"])
		rest[key] = isObject(root[key]) ? root[key] : null;
	rest.reason = text(root.reason);
	rest.time_us = number(root.time_us);
	return rest;
};

/* Make a document from @root, the value of the file @name. Throws BadInput. */
export const snapshotDocument = (root, name) => {
	checkVersion(root);
	const reading = new Reading(root), modules = list(root.modules).map((module) => text(module?.path));
	const frames = reading.frames(modules), stacks = { ...reading.tree(frames.name.length), frames };
	const sources = reading.sources();
	return {
		name, root: restOf(root), sources, explanation: null, texts: reading.texts.list,
		numbers: reading.numbers.list, modules, stacks,
	};
};

