/*
 * What the viewer computes: the packed snapshot is the snapshot, lives and sums are those of the command, and the
 * picture is, pixel by pixel, what a model says that only adds up.
 */
// timeout: 300
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Axis } from "../../tools/viewer/src/model/axis.js";
import { Asker } from "../../tools/viewer/src/ask.js";
import { ACT, ACTIONS, findEvents, findMates } from "../../tools/viewer/src/model/document.js";
import { isLeft } from "../../tools/viewer/src/model/lives.js";
import { NOBODY, edgeOf, paleOf } from "../../tools/viewer/src/model/raster.js";
import { rangesOf, stateAt, sumsOf } from "../../tools/viewer/src/model/segments.js";
import { DATA, gpumem, large, pageOf, randomOf, readPage, room, runApp } from "./documents.mjs";

const random = large("random", "--events", "30000", "--live", "700", "--frames", "400", "--stacks", "200");
const training = runApp(["app_training", "--steps", "30", "--leak", "--oom"]);
const SNAPSHOTS = {
	random, training: training("exit"), oom: training("oom-1"), data: join(DATA, "gpumem-snapshot.json"),
	pickle: join(DATA, "torch-snapshot.pickle"), kinds: runApp(["app_random", "3", "3000"])("exit"),
};
const below = JSON.parse(readFileSync(SNAPSHOTS.data, "utf8"));		// run in the directory of its script
below.process.directory = "/opt/demo";
SNAPSHOTS.below = join(room, "below.json");
writeFileSync(SNAPSHOTS.below, JSON.stringify(below));
const opened = {};
for (const [name, path] of Object.entries(SNAPSHOTS))
	[opened[name]] = await readPage(pageOf(name, path));

test("the packed events and blocks are those of the snapshot", () => {
	for (const name of ["random", "training", "data"]) {
		const snapshot = JSON.parse(readFileSync(SNAPSHOTS[name], "utf8")), { doc } = opened[name];
		for (const source of doc.sources) {
			const trace = source.device === null ? snapshot.host_trace : snapshot.device_traces[source.device];
			const { events } = source;
			/* An annotation without an event got one. */
			const rows = Array.from(events.action.keys()).filter((row) => ACTIONS[events.action[row]] !== "annotate" || trace.action.includes("annotate"));
			const column = (name, say = (value) => value) => rows.map((row) => say(events[name][row]));
			assert.ok(rows.length > 1 && source.count - rows.length <= snapshot.annotations.length);
			assert.deepEqual(column("action", (a) => ACTIONS[a]), trace.action);
			assert.deepEqual(column("addr"), trace.addr);
			assert.deepEqual(column("size"), trace.size);
			assert.deepEqual(column("time"), trace.time_us);
			assert.deepEqual(column("stack"), trace.stack);
			assert.deepEqual(column("module"), trace.module);
			assert.deepEqual(column("kind", (id) => doc.texts[id]), trace.kind);
			assert.deepEqual(column("stream", (id) => doc.numbers[id]), trace.stream);
			assert.deepEqual(column("thread", (id) => doc.numbers[id]), trace.thread);
			const segments = source.device === null ? snapshot.host_segments :
				snapshot.segments.filter(({ device }) => device === source.device);
			assert.deepEqual(Array.from(source.segments.addr), segments.map(({ address }) => address));
			const blocks = segments.flatMap((segment) => segment.blocks);
			assert.deepEqual(Array.from(source.blocks.addr), blocks.map(({ address }) => address));
			assert.deepEqual(Array.from(source.blocks.requested), blocks.map((block) => block.requested_size));
			assert.deepEqual(Array.from(source.blocks.state, (id) => doc.texts[id]), blocks.map(({ state }) => state));
		}
	}
});

test("stacks are those of the snapshot, frame by frame", () => {
	const snapshot = JSON.parse(readFileSync(random, "utf8")), { stacks } = opened.random;
	assert.equal(stacks.count, snapshot.stacks.length);
	snapshot.stacks.forEach((frames, id) => assert.deepEqual(stacks.list(id), frames));
});

test("an event's mate in the pack, and the last event of a block, are what the page finds by itself", () => {
	for (const { doc } of Object.values(opened))
		for (const { events, blocks } of doc.sources) {
			const { mates, open } = findMates(events.action, events.addr);
			assert.deepEqual(Array.from(mates), Array.from(events.mate));
			assert.deepEqual(Array.from(findEvents(blocks, open, doc.texts.indexOf("inactive"))), Array.from(blocks.event));
		}
	assert.ok(opened.random.doc.sources[0].blocks.event.some((event) => event > 0));
});

test("streams that no number of the browser's can tell apart are told apart", async () => {
	const snapshot = JSON.parse(readFileSync(SNAPSHOTS.training, "utf8")), path = join(room, "streams.json");
	const streams = ["4611686018427387905", "4611686018427387906", "-9223372036854775807", "0", "94000000000001"];
	snapshot.device_traces[0].stream = snapshot.device_traces[0].stream.map((_, i) => `@${streams[i % streams.length]}@`);
	writeFileSync(path, JSON.stringify(snapshot).replace(/"@(-?\d+)@"/g, "$1"));
	const [{ models: [model] }] = await readPage(pageOf("streams", path)), { names } = model.grouped("stream");
	assert.deepEqual([...new Set(names)].sort(),
		["default stream", "stream 0x4000000000000001", "stream 0x4000000000000002", "stream 0x557e149be001", "stream 0x8000000000000001"].sort());
});

/* ---- against the command ------------------------------------------------------------------------ */

test("call sites, and what they hold at the end, are those of gpumem summary", () => {
	let compared = 0;
	for (const [name, { models }] of Object.entries(opened)) {
		for (const by of ["site", "module", "kind", "size", "stream"]) {
			const summary = JSON.parse(gpumem("summary", "--json", "--by", by, SNAPSHOTS[name]));
			const listed = Object.fromEntries(Object.values(summary[`by_${by}`] ?? summary.groups ?? []).filter((row) => row.blocks)
				.map((row) => [row.site ?? row.key ?? row.name ?? row[by], row.allocated_bytes]));
			const found = new Map();
			for (const model of models.filter(({ source }) => source.device !== null)) {
				const { group, names } = model.grouped(by);
				for (let l = 0; l < model.lives.count; l++) {
					if (!isLeft(model.lives, l, model.count) || model.doc.texts[model.lives.kind[l]] === "ipc")
						continue;
					let key = names[group[l]];
					if (by === "stream")
						key = `0x${BigInt.asUintN(64, BigInt(model.doc.numbers[model.lives.stream[l]])).toString(16)}`.replace(/^0x0$/, "0");
					found.set(key, (found.get(key) ?? 0) + model.lives.size[l]);
				}
			}
			assert.deepEqual(Object.fromEntries([...found].sort()), Object.fromEntries(Object.entries(listed).sort()), `${name} by ${by}`);
			if (name === "below" && by === "site")
				assert.ok([...found.keys()].some((site) => / \(train\.py:\d+\)$/.test(site)), String([...found.keys()]));
			compared += found.size;
		}
	}
	assert.ok(compared > 50, String(compared));
});

test("what was never freed is what gpumem leaks says", () => {
	const leaks = JSON.parse(gpumem("leaks", "--json", SNAPSHOTS.training));
	const [model] = opened.training.models;
	let bytes = 0, blocks = 0;
	for (let l = 0; l < model.lives.count; l++)
		if (isLeft(model.lives, l, model.count)) {
			bytes += model.lives.size[l];
			blocks++;
		}
	const total = (leaks.stacks ?? leaks.leaks ?? leaks).reduce((sum, row) => [sum[0] + row.bytes, sum[1] + row.blocks], [0, 0]);
	assert.deepEqual([bytes, blocks], total);
	assert.ok(blocks > 20);
});

test("the total at every event is the sum of what is live, and the snapshot's counters at the end and the peak", () => {
	for (const { models, doc } of Object.values(opened))
		for (const model of models) {
			const { action, addr, size, kind } = model.source.events, { values } = model.curve;
			/* Undo the events, from what is live at the end. */
			let live = values[model.count];
			const open = new Map();
			for (let l = 0; l < model.lives.count; l++)
				if (model.lives.died[l] >= model.count)
					open.set(model.lives.addr[l], model.lives.weight[l]);
			for (let i = model.count - 1; i >= 0; i--) {
				const name = ACTIONS[action[i]];
				if (name === "alloc") {
					live -= open.get(addr[i]) ?? 0;
					open.delete(addr[i]);
				} else if (name === "free_completed") {
					const bytes = doc.texts[kind[i]] === "ipc" ? 0 : size[i];
					live += bytes;
					open.set(addr[i], bytes);
				}
				assert.equal(values[i], live, `${doc.name}, event ${i}`);
			}
		}
	const [model] = opened.training.models, stats = opened.training.doc.root.devices[0].memory_stats;
	assert.equal(model.curve.values[model.count], stats["requested_bytes.all.current"]);
	assert.equal(model.curve.values[model.curve.peak], stats["requested_bytes.all.peak"]);
	assert.equal(model.reserved.values[model.count], stats["reserved_bytes.all.current"]);
	assert.equal(Math.max(...model.reserved.values), stats["reserved_bytes.all.peak"]);
});

test("lives have what their events have, also where the beginning of the history and some of the frees are lost", async () => {
	const path = large("torn", "--events", "4000", "--live", "150", "--frames", "200", "--stacks", "100");
	const snapshot = JSON.parse(readFileSync(path, "utf8")), [trace] = snapshot.device_traces, next = randomOf(77);
	const kept = trace.action.map((action, i) => i >= 300 && !(action.startsWith("free") && next() < 0.1));
	for (const [name, column] of Object.entries(trace))
		if (Array.isArray(column))
			trace[name] = column.filter((_, i) => kept[i]);
	writeFileSync(path, JSON.stringify(snapshot));
	const [torn] = await readPage(pageOf("torn", path)), [{ lives, source, curve }] = torn.models;
	assert.ok(lives.early > 20 && lives.freed.subarray(0, lives.early).some((row) => row < source.count));
	assert.ok(source.events.mate.some((mate, i) => mate && source.events.action[i] === ACT.alloc));
	const live = new Float64Array(source.count + 2);
	for (let l = 0; l < lives.count; l++) {
		live[lives.born[l] + 1] += lives.weight[l];
		live[Math.min(source.count, lives.died[l]) + 1] -= lives.weight[l];
	}
	assert.deepEqual(Array.from(curve.values), Array.from(curve.values, (_, s) => (live[s] += s ? live[s - 1] : 0)));
	samePictures("torn", torn.models[0], 4, next);

	for (const { models } of [...Object.values(opened), torn])
		for (const { lives: all, source: { events } } of models)
			for (const name of ["addr", "size", "stack", "module", "kind", "stream", "thread"])
				assert.deepEqual(Array.from(all[name].subarray(all.early)), Array.from(all.born.subarray(all.early), (row) => events[name][row]));
	for (let i = 0; i < source.count; i++) {
		const l = lives.about[i], { action, addr } = source.events;
		assert.equal(l >= 0 && lives.addr[l], action[i] <= ACT.free_completed && (action[i] !== ACT.free_requested || source.events.mate[i] > 0) && addr[i]);
	}
});

/* ---- the allocator ------------------------------------------------------------------------------ */

test("at the end the allocator's state is the tables of the snapshot", () => {
	for (const { models } of Object.values(opened))
		for (const model of models) {
			const { segments, blocks } = model.source, state = stateAt(model, rangesOf(model), model.count);
			const inactive = model.doc.texts.indexOf("inactive"), wanted = new Map();
			for (let s = 0, b = 0; s < segments.addr.length; s++)
				for (let end = b + segments.blocks[s]; b < end; b++)
					if (blocks.state[b] !== inactive && !(segments.flags[s] & 2))
						wanted.set(blocks.addr[b], blocks.size[b]);
			const found = new Map(state.flatMap((segment) => segment.blocks).map(({ addr, size, life }) => [addr, [size, life]]));
			for (const [addr, size] of wanted)
				if (size && model.doc.texts[model.lives.kind[found.get(addr)?.[1] ?? 0]] !== "ipc")
					assert.equal(found.get(addr)?.[0], size, `${model.doc.name}: ${addr}`);
			if (![...segments.flags].some(Boolean))
				assert.deepEqual(state.filter(({ stray }) => !stray).map(({ addr, size }) => [addr, size]),
					Array.from(segments.addr, (addr, i) => [addr, segments.size[i]]));
		}
});

test("in every state that was tried, segments and blocks are those that the events lead to", () => {
	let compared = 0;
	for (const name of ["training", "oom", "random", "kinds"]) {
		const [model] = opened[name].models, ranges = rangesOf(model), { events } = model.source;
		const segments = new Map(), blocks = new Map();
		for (let s = 0; s <= model.count; s++) {
			if (s % Math.ceil(model.count / 60) === 0) {
				const state = stateAt(model, ranges, s), sums = sumsOf(state);
				assert.deepEqual(state.filter(({ stray }) => !stray).map(({ addr, size }) => [addr, size]), [...segments].sort((a, b) => a[0] - b[0]));
				assert.deepEqual(state.flatMap((one) => one.blocks.map(({ addr, requested }) => [addr, requested])).sort((a, b) => a[0] - b[0]),
					[...blocks].sort((a, b) => a[0] - b[0]));
				assert.equal(sums.live + sums.waiting, model.curve.values[s]);
				assert.equal(sums.reserved, model.reserved.values[s]);
				assert.equal(sums.live + sums.waiting + sums.rounding + sums.free, sums.reserved);
				compared += state.length;
			}
			if (s === model.count)
				break;
			const action = ACTIONS[events.action[s]], addr = events.addr[s], size = events.size[s];
			if (action === "alloc")
				blocks.set(addr, size);
			else if (action === "free_completed")
				blocks.delete(addr);
			else if (action === "segment_alloc" || action === "segment_map")
				segments.set(addr, size);
			else if (action === "segment_free" || action === "segment_unmap")
				segments.delete(addr);
		}
	}
	assert.ok(compared > 1000, String(compared));
});

test("what is mapped and unmapped in parts is cut and joined", () => {
	const source = {
		count: 5, segments: { addr: [], size: [], stream: [], kind: [], flags: [] },
		events: {
			action: [ACT.segment_map, ACT.segment_map, ACT.segment_unmap, ACT.segment_unmap, ACT.segment_free],
			addr: [1000, 1400, 1200, 900, 5000], size: [400, 200, 300, 150, 100], stream: [1, 1, 1, 1, 1], kind: [0, 0, 0, 0, 0],
		},
	};
	const ranges = rangesOf({ doc: { texts: [] }, source }), at = (s) => ranges.filter(({ born, died }) => born < s && s <= died).map(({ addr, size }) => [addr, size]);
	assert.deepEqual(at(0), [[900, 100], [5000, 100]]);
	assert.deepEqual(at(2), [[900, 100], [1000, 400], [1400, 200], [5000, 100]]);
	assert.deepEqual(at(3), [[900, 100], [1000, 200], [1500, 100], [5000, 100]]);
	assert.deepEqual(at(4), [[1050, 150], [1500, 100], [5000, 100]]);
	assert.deepEqual(at(5), [[1050, 150], [1500, 100]]);
});

/* ---- the picture -------------------------------------------------------------------------------- */

/* What is live in each state of @model, by adding up all lives for each. */
const totalsOf = ({ lives: { born, died, count }, weight, count: states }) => Float64Array.from({ length: states + 1 }, (_, s) => {
	let sum = 0;
	for (let l = 0; l < count; l++)
		sum += born[l] < s && s <= died[l] ? weight[l] : 0;
	return sum;
});

/* The same picture, by looking at all states and lives for each column. */
const naive = (model, view, color, totals) => {
	const { lives, axis, weight } = model, { width, height, low, high, background } = view;
	const ids = new Uint32Array(width * height).fill(NOBODY), pixels = new Uint32Array(width * height).fill(background);
	const begins = [];
	for (let s = 0; s <= model.count; s++)
		begins.push(view.mode === "order" ? s : s ? axis.time[s - 1] - axis.begin : -Infinity);
	for (let x = 0; x < width; x++) {
		const left = view.from + ((view.to - view.from) * x) / width, right = view.from + ((view.to - view.from) * (x + 1)) / width;
		let chosen = -1;
		for (let s = 0; s <= model.count; s++) {
			const end = s < model.count ? begins[s + 1] : Infinity;
			/* Is a part of the state in the column? One without any length is in where it begins. */
			const within = begins[s] < right && (end > left || (begins[s] >= left && begins[s] < right));
			if (within && (chosen < 0 || totals[s] > totals[chosen]))
				chosen = s;
		}
		let sum = 0, row = 0;
		for (let l = 0; l < lives.count; l++) {
			if (!(lives.born[l] < chosen && chosen <= lives.died[l]))
				continue;
			sum += weight[l];
			const first = row;
			let paint = color[l];
			if (lives.freed[l] < chosen)
				paint = paleOf(background)(paint);
			for (; row < height && low + ((row + 0.5) * (high - low)) / height < sum; row++) {
				ids[(height - 1 - row) * width + x] = l;
				pixels[(height - 1 - row) * width + x] = paint;
			}
			if (row - first >= 3)
				pixels[(height - row) * width + x] = edgeOf(paint);
		}
	}
	return { ids, pixels };
};

/* Parts of @model's picture are the naive ones in so many @rounds; how many pixels have an allocation. */
const samePictures = (name, model, rounds, next) => {
	const color = Uint32Array.from({ length: model.lives.count }, (_, l) => (0xff000000 | Math.imul(l + 1, 2654435761)) >>> 0);
	let painted = 0, totals = totalsOf(model);
	for (let round = 0; round < rounds; round++) {
		/* At last a column is a microsecond, and begins where one does. */
		const exact = round >= 8 && model.count;
		const mode = round % 2 || exact ? "time" : "order", span = model.axis.span(mode), most = model.curve.values[model.curve.peak];
		if (round === 6) {
			model.setFilter(Uint8Array.from({ length: model.lives.count }, () => next() < 0.4 ? 1 : 0));
			totals = totalsOf(model);
		}
		const from = exact ? model.axis.place("time", 1 + Math.floor(next() * model.count)) : round < 2 ? 0 : next() * span * 0.8;
		const to = exact ? from + 40 : round < 2 ? span : from + next() * (span - from);
		const low = round < 4 ? 0 : Math.floor(next() * most * 0.5), high = round < 4 ? most * 1.06 + 1 : low + 1 + next() * most;
		const view = { mode, from, to, low, high, width: 40, height: 60, background: 0xffeeeeee, mark: -1 };
		const drawn = model.draw(view, color), wanted = naive(model, view, color, totals);
		assert.deepEqual(drawn.ids, wanted.ids, `${name} ${model.source.name} round ${round}`);
		assert.deepEqual(drawn.pixels, wanted.pixels, `${name} ${model.source.name} round ${round}, colours`);
		painted += drawn.ids.filter((id) => id !== NOBODY).length;
	}
	model.setFilter(null);
	return painted;
};

test("the picture is what a model says that adds up all allocations for each column, pixel by pixel", () => {
	const next = randomOf(20261122);
	let painted = 0;
	for (const [name, { models }] of Object.entries(opened))
		for (const model of models)
			painted += samePictures(name, model, 12, next);
	assert.ok(painted > 40000, String(painted));
});

test("a place between two events is in the state of the first, however large their times are", () => {
	const time = Float64Array.from([0, 615, 616, 616, 617], (at) => 1.79e15 + at);
	const axis = new Axis({ events: { time }, count: 5 }, 0);
	assert.deepEqual([614.99, 615, 615.9, 616, 616.01].map((x) => axis.state("time", x)), [1, 2, 2, 4, 4]);
	assert.deepEqual([615, 615.1, 616, 616.2].map((x) => axis.stateBefore("time", x)), [1, 2, 2, 4]);
});

test("the edges of a pinned allocation are where the picture has it", () => {
	const [model] = opened.random.models, color = new Uint32Array(model.lives.count).fill(0xff0000ff);
	const high = model.curve.values[model.curve.peak];
	const view = { mode: "order", from: 0, to: model.axis.span("order"), low: 0, high, width: 200, height: 400, background: 0, mark: -1 };
	const { ids } = model.draw(view, color);
	const life = ids[200 * 200 + 100];
	const { edges } = model.draw({ ...view, mark: life }, color);
	let seen = 0;
	for (let x = 0; x < view.width; x++)
		for (let row = 0; row < view.height; row++) {
			const at = ((row + 0.5) * high) / view.height, inside = edges[2 * x] <= at && at < edges[2 * x + 1];
			assert.equal(ids[(view.height - 1 - row) * view.width + x] === life, inside);
			seen += inside;
		}
	assert.ok(seen > 0);
});

test("of questions that change quickly the last is asked, each once; an answer of no use may be asked for again", async () => {
	const asked = [];
	globalThis.Worker = class {
		postMessage(question) { asked.push(question); }
	};
	const asker = new Asker("");
	delete globalThis.Worker;
	const useless = new Set(), failures = [];
	const want = asker.latest("size", (answer, args) => !useless.has(args.n), (error) => failures.push(error.message));
	const answer = async (at, error) => {
		asker.worker.onmessage({ data: { id: asked[at].id, result: {}, error } });
		await new Promise(setImmediate);
	};
	const numbers = () => asked.map((question) => question.args.n);

	want({ n: 1 });
	want({ n: 1 });
	want({ n: 2 });
	want({ n: 3 });
	assert.deepEqual(numbers(), [1]);
	useless.add(1);
	await answer(0);
	assert.deepEqual(numbers(), [1, 3]);
	want({ n: 3 });			/* is asked already: the useless answer was another question's */
	await answer(1);
	want({ n: 3 });
	assert.deepEqual(numbers(), [1, 3]);
	want({ n: 1 });
	await answer(2);
	want({ n: 1 });
	assert.deepEqual(numbers(), [1, 3, 1, 1]);
	await answer(3, "gone");
	assert.deepEqual(failures, ["gone"]);
	want({ n: 1 });
	assert.deepEqual(numbers(), [1, 3, 1, 1, 1]);
});
