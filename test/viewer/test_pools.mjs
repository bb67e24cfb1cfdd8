/* What a program hands out of its memory a second time: PyTorch's pool, and others, as sources of their own. */
// timeout: 300
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { ACT, ACTIONS } from "../../tools/viewer/src/model/document.js";
import { fileDocument } from "../../tools/viewer/src/model/file.js";
import { modelsOf, wholesOf } from "../../tools/viewer/src/model/model.js";
import { phasesOf } from "../../tools/viewer/src/model/groups.js";
import { isLeft } from "../../tools/viewer/src/model/lives.js";
import { rangesOf, stateAt } from "../../tools/viewer/src/model/segments.js";
import { life } from "../../tools/viewer/src/work/details.js";
import { modelOf, openPack } from "../../tools/viewer/src/work/open.js";
import { bytes, count } from "../../tools/viewer/src/ui/format.js";
import { launch, missing, openPage, settle } from "./browser.mjs";
import { gpumem, packsOf, pageOf, readPage, room, runApp, runPools } from "./documents.mjs";

/* A snapshot of the program under the library, whose pools are a stand-in's of PyTorch and its own. */
const snapshotOf = (expandable) => runPools(`kept = both_levels(${expandable}, 400)\nsnapshot()`)("api-1");

test("classes are the labels that the program gave, as gpumem summary --by class has them", async () => {
	const path = runPools("kept = both_levels(0, 100)\nbase = kept[2]\nlabel = lambda text, *at: this.gpumem_pool_label(kept[1], (u64 * len(at))(*at), len(at), text)\n" +
		"assert label(b'gradient', base, base + 131072, base + 1) == 2 and label(b'parameter', base + 196608) == 1 and label(None, base) == 1\n" +
		"assert label(b'x', base + 65536) == 0 and this.gpumem_pool_label(99, None, 0, b'x') == -22 and this.gpumem_pool_label(kept[1], None, -1, b'x') == -22 and this.gpumem_pool_label(kept[1], None, 1, b'x') == -22\nsnapshot()")("api-1");
	const [{ doc, models }] = await readPage(pageOf("classes", path)), [whole] = wholesOf(doc, models);
	for (const [model, words] of [[whole, []], [modelsOf(fileDocument(readFileSync(path), "dropped")).find(({ source }) => source.name.startsWith("mine")), null]]) {
		const { group, names } = model.grouped("class"), found = {}, { lives, weight, count } = model;
		for (let l = 0; l < lives.count; l++)
			if (lives.died[l] === count + 1 && !lives.pending[l])
				found[names[group[l]]] = (found[names[group[l]]] ?? 0) + weight[l];
		const wanted = words ? Object.fromEntries(JSON.parse(gpumem("summary", "--json", "--by", "class", path)).by_class.filter(({ blocks }) => blocks).map((row) => [row.class, row.allocated_bytes])) :
			{ gradient: 40000, parameter: 40000, other: 40000 };
		assert.deepEqual(found, wanted);
		assert.ok(found.gradient === 40000 && found.parameter === 40000 && found.other);
	}
});

test("a pool has its own events, segments, blocks and sums", async () => {
	for (const expandable of [0, 1]) {
		const path = snapshotOf(expandable), snapshot = JSON.parse(readFileSync(path, "utf8"));
		const [{ models }] = await readPage(pageOf("pools", path));
		const pools = models.filter(({ source }) => source.level === "pool");
		assert.deepEqual(pools.map(({ source }) => source.name), ["pytorch on GPU 0", "mine on GPU 0"]);
		pools.forEach((model, i) => {
			const wanted = snapshot.pools[i], { events, segments } = model.source;
			assert.deepEqual(Array.from(events.action, (a) => ACTIONS[a]), wanted.trace.action);
			assert.deepEqual(Array.from(events.addr), wanted.trace.addr);
			assert.deepEqual(Array.from(segments.addr), wanted.segments.map(({ address }) => address));
			assert.equal(model.curve.values[model.count], wanted.memory_stats["allocated_bytes.all.current"]);
			assert.equal(model.reserved.values[model.count], wanted.memory_stats["reserved_bytes.all.current"]);
			const state = stateAt(model, rangesOf(model), model.count), listed = wanted.segments.flatMap(({ blocks }) => blocks);
			assert.deepEqual(state.flatMap(({ blocks }) => blocks.map(({ addr }) => addr)),
				listed.filter((block) => block.state === "active_allocated").map(({ address }) => address));
		});
		const dropped = modelsOf(fileDocument(readFileSync(path), "dropped"));
		assert.deepEqual(dropped.map(({ source, curve }) => [source.name, source.level, curve.values]),
			models.map(({ source, curve }) => [source.name, source.level, curve.values]));
		const [driver] = models;
		assert.equal(driver.source.level, "driver");
		assert.equal(driver.curve.values[driver.count], snapshot.devices[0].memory_stats["requested_bytes.all.current"]);
	}
});

/* Bytes that are live at the end by call site, of all @models. */
const sitesOf = (models) => {
	const found = new Map();
	for (const model of models) {
		const { group, names } = model.grouped("site"), { lives } = model;
		for (let l = 0; l < lives.count; l++)
			if (isLeft(lives, l, model.count) && lives.weight[l])
				found.set(names[group[l]], (found.get(names[group[l]]) ?? 0) + lives.weight[l]);
	}
	return Object.fromEntries([...found].sort());
};

/* Allocations and frees of @models, as gpumem events prints them. */
const eventsOf = (models) => models.flatMap(({ source: { events, count } }) => [...Array(count).keys()]
	.filter((i) => events.action[i] <= ACT.free_completed)
	.map((i) => [ACTIONS[events.action[i]], events.addr[i], events.size[i], events.time[i]]));

const listed = (...words) => gpumem("events", "--jsonl", "--action", "alloc,free", ...words).split("\n").filter(Boolean)
	.map((line) => JSON.parse(line)).map(({ action, addr, size, time_us: time }) => [action, addr, size, time]);

test("a free in a pool has the stack of its allocation: of one from before the history it says who asked", async () => {
	const path = join(room, "torn.json"), snapshot = JSON.parse(readFileSync(snapshotOf(0), "utf8")), { trace } = snapshot.pools[0];
	const kept = trace.action.map((_, i) => i > trace.action.length * 0.4);
	for (const [name, column] of Object.entries(trace))
		if (Array.isArray(column))
			trace[name] = column.filter((_, i) => kept[i]);
	writeFileSync(path, JSON.stringify(snapshot));
	const { number: doc, sources } = await openPack({ text: packsOf(pageOf("torn", path))[0] });
	const { number: source } = sources.find(({ level }) => level === "pool"), { lives, source: { events } } = modelOf({ doc, source });
	const early = [...Array(lives.early).keys()].filter((l) => lives.died[l] < events.action.length);
	assert.ok(early.length > 2 && early.every((l) => lives.stack[l] > 0 && lives.stack[l] === events.stack[lives.died[l]]), String(early));
	assert.equal(life({ doc, source, life: early[0] }).ended.hasOwnStack, false);
	const [host] = (await readPage(pageOf("plain", runApp(["app_training", "--steps", "20"])("exit"))));
	assert.ok(host.models[0].lives.stack.every((stack, l) => stack !== host.models[0].source.events.stack[host.models[0].lives.died[l]]), "the driver's say who freed");
});

test("gpumem view --level and the filters: the page has what gpumem summary and events say with the same", async () => {
	const pools = snapshotOf(0), plain = runApp(["app_training", "--steps", "20", "--leak"])("exit");
	const counts = new Set();
	for (const [name, path] of [["pools", pools], ["plain", plain]]) {
		const { time_us: time } = JSON.parse(readFileSync(path, "utf8")).device_traces[0];
		const middle = String(time[time.length >> 1]), last = String((time.at(-1) - time[time.length - 40]) / 1e6);
		for (const level of ["pool", "driver"]) {
			const [{ models }] = await readPage(pageOf(`${name}-${level}`, "--level", level, path));
			assert.deepEqual(models.filter(({ source }) => source.level === "pool"), []);
			const summary = JSON.parse(gpumem("summary", "--json", "--level", level, path)).by_site;
			const wanted = Object.fromEntries(summary.filter((row) => row.allocated_bytes).map((row) => [row.site, row.allocated_bytes]).sort());
			assert.deepEqual(sitesOf(models.filter(({ source }) => source.device !== null)), wanted, `${name}, ${level}`);
			assert.ok(Object.values(wanted).some((bytes) => bytes > 0));
			for (const filters of [[], ["--since", middle], ["--min-size", "64KiB"], ["--device", "0"], ["--since", middle, "--min-size", "4KiB", "--device", "0"]]) {
				const [part] = await readPage(pageOf("part", "--level", level, ...filters, path));
				const events = eventsOf(part.models);
				assert.deepEqual(events, listed("--level", level, ...filters, path), `${name} ${level} ${filters}`);
				counts.add(events.length);
			}
		}
		/* Of both levels at once, too; and the newest. */
		const [both] = await readPage(pageOf("both", "--since", middle, "--min-size", "64KiB", path));
		assert.equal(both.models.some(({ source }) => source.level === "pool"), name === "pools");
		assert.deepEqual(eventsOf(both.models.filter(({ source }) => source.level !== "pool")), listed("--level", "driver", "--since", middle, "--min-size", "64KiB", path));
		if (name === "plain") {
			const [newest] = await readPage(pageOf("newest", "--last", last, path));
			assert.deepEqual(eventsOf(newest.models), listed("--since", `-${last}`, path));
			assert.ok(newest.models[0].source.dropped > 0, "what is left out counts as dropped");
		}
	}
	assert.ok(counts.size > 6, [...counts].join());
});

test("a pool's events are in the ranges of its device's annotations, by time and thread", () => {
	const note = (stage, name, time_us, thread) => ({ stage, name, time_us, thread, device: 0, domain: null, range: 0 });
	const doc = { numbers: [7, 8], root: { annotations: [
		note("START", "outer", 10, 7), note("START", "inner", 20, 7), note("START", "other's", 21, 8), note("END", "", 30, 7), note("END", "", 40, 7),
		{ ...note("START", "elsewhere", 1, 7), device: 1 },
	] } };
	const time = [5, 10, 15, 25, 25, 30, 35, 45], thread = [0, 0, 0, 0, 1, 0, 0, 0], none = time.map(() => 0);
	const { phase, names } = phasesOf(doc, { level: "pool", device: 0, count: time.length, events: { action: none, annotation: none, thread, time } });
	assert.deepEqual(Array.from(phase, (id) => names[id]),
		["(no phase)", "outer", "outer", "inner", "other's", "outer", "outer", "(no phase)"]);
});

const browser = missing ? null : await launch();
after(() => browser?.close());

test("a segment of a private pool and of a stream says so in Allocator, in the table of segments and beside its blocks", { skip: missing || false }, async () => {
	const path = join(room, "private.json"), snapshot = JSON.parse(readFileSync(runApp(["app_training", "--steps", "20", "--leak"])("exit"), "utf8"));
	const segment = snapshot.segments.find(({ device, blocks }) => device === 0 && blocks.some(({ state }) => state !== "inactive")), [{ addr, action, stream }] = snapshot.device_traces;
	Object.assign(segment, { segment_pool_id: [0, 7], stream: 0x55d0c0de });
	action.forEach((what, i) => { stream[i] = addr[i] === segment.address && /^segment/.test(what) ? 0x55d0c0de : stream[i]; });
	const idle = snapshot.segments.find(({ device, blocks }) => device === 0 && blocks.every(({ state }) => state === "inactive"));		/* as if it was given back */
	snapshot.segments.splice(snapshot.segments.indexOf(idle), 1);
	writeFileSync(path, JSON.stringify(snapshot));
	const { page, errors, close } = await openPage(browser, pageOf("private", path)), name = `s${segment.address.toString(16)}`, live = [...snapshot.segments.filter(({ device }) => device === 0), idle];
	for (const dropped of [false, true]) {
		if (dropped)
			await page.evaluate(async (text) => {
				const doc = await gpumem.asker.ask("openFile", { name: "dropped.json", file: new Blob([text]) });
				await gpumem.add(doc);
				gpumem.set({ doc: doc.number, source: 0 });
			}, JSON.stringify(snapshot));
		await page.evaluate(() => gpumem.set({ view: "allocator", at: gpumem.source.events, life: -1, find: "" }));
		await settle(page);
		const [text, x, y] = await page.evaluate((address) => {
			const { view } = gpumem, piece = view.pieces.find(({ segment: s, from }) => view.data.addr[s] === address && from === 0);
			return [view.segmentText(piece.segment), piece.x + 1, piece.y + 6];
		}, segment.address);
		assert.deepEqual(text.split(" · "), [name, bytes(segment.total_size), "stream 0x55d0c0de", segment.kind, "private pool 0, 7"]);
		const box = await page.locator(".canvas .top").boundingBox();
		await page.mouse.move(box.x + x, box.y + y);
		await page.mouse.move(box.x + x + 1, box.y + y);
		await settle(page);
		assert.match(await page.locator(".tip").filter({ visible: true }).innerText(), new RegExp(`${name}.*stream 0x55d0c0de, .*private pool 0, 7`));
		await page.evaluate(() => gpumem.set({ view: "tables", table: "segments" }));
		await settle(page);
		const rows = await page.evaluate(() => [...gpumem.view.list.rows.values()].map(({ label, size, live: used, free, blocks, stream: on, pool }) => [label, size, used, free, blocks, on, pool]));
		assert.deepEqual(rows.sort(), live.map((one) => {
			const used = one.blocks.filter(({ state }) => state !== "inactive"), sum = (list, of) => list.reduce((all, block) => all + of(block), 0);
			return [`s${one.address.toString(16)}`, one.total_size, sum(used, (block) => block.requested_size), one.total_size - sum(used, ({ size }) => size), used.length,
				one.stream ? `stream 0x${one.stream.toString(16)}` : "default stream", one === segment ? "0, 7" : one === idle ? "unknown" : ""];
		}).sort());
		assert.ok(rows.length > 1);
		await page.getByLabel("search in the table").fill("private pool");
		await settle(page);
		assert.deepEqual((await page.locator(".table .vlist-row").allInnerTexts()).map((row) => row.split("\n").filter((_, i) => [0, 6, 7].includes(i))), [[name, "0x55d0c0de", "0, 7"]]);
		await page.locator(".table .vlist-row").click();
		await settle(page);
		const wanted = segment.blocks.filter(({ state }) => state !== "inactive").map(({ address }) => address).sort();
		assert.deepEqual(await page.evaluate(() => [gpumem.state.terms, gpumem.state.life]), [[`segment=${name}`], -1], "a segment is selected, and no block");
		assert.equal(await page.locator(".table .vlist-row.chosen").count(), 1, "and its row stands");
		await page.evaluate(() => gpumem.set({ find: "", table: "leaks" }));
		await settle(page);
		assert.deepEqual(await page.evaluate(async () => (await gpumem.ask("table", { what: "leaks", sort: "size", search: "", first: 0, count: 99, window: gpumem.part })).rows.map(({ addr }) => Number(`0x${addr.slice(1).split("_")[0]}`)).sort()), wanted);
		await page.locator(".table .vlist-row").first().click();
		await settle(page);
		const side = await page.locator(".side").innerText();
		assert.match(side, new RegExp(`segment\\s+${name}\\s+private pool\\s+0, 7`));
		await page.evaluate(() => gpumem.set({ terms: [] }));
	}
	assert.deepEqual(errors, []);
	await close();
});

test("of a segment that was given back the private pool is unknown, and pieces of one are one", async () => {
	const path = runApp(["app_training", "--steps", "20", "--leak"], { GPUMEM_EXPANDABLE_SEGMENTS: "True" })("exit"), [{ models: [model] }] = await readPage(pageOf("pieces", path));
	const ranges = rangesOf(model), pieces = ranges.filter(({ expandable }) => expandable), { texts } = model.doc;
	assert.ok(pieces.length > 2);
	for (const one of pieces) {
		const below = pieces.filter(({ addr, size, stream, born, died }) => addr + size === one.addr && stream === one.stream && Math.max(born, one.born) < Math.min(died, one.died));
		for (const { base } of below)
			assert.equal(one.base, base);
		assert.ok(one.base <= one.addr);
	}
	assert.ok(pieces.some(({ base, addr }) => base < addr));
	assert.ok(ranges.some(({ kept }) => kept) && ranges.every(({ kept, priv }) => !kept || priv === ""));
	const device = texts.indexOf("device"), action = Uint8Array.of(ACT.segment_alloc, ACT.segment_free), none = Int32Array.of(0, 0), empty = { addr: [] };
	const events = { action, addr: Float64Array.of(4096, 4096), size: Float64Array.of(512, 512), stream: none, kind: none.map(() => device) };
	assert.equal(rangesOf({ doc: model.doc, source: { events, segments: empty, count: 2 } })[0].priv, undefined, "no table says it");
	const { lives, count } = model;
	for (let s = 1; s <= count; s += Math.ceil(count / 40))
		for (const { name, stray, blocks } of stateAt(model, ranges, s))
			for (const { life } of blocks)
				assert.equal(model.grouped("segment").names[model.grouped("segment").group[life]], stray ? "(no segment)" : name);
	assert.ok(lives.count > 0);
});

test("a pool is shown first, and the driver's level can be chosen", { skip: missing || false }, async () => {
	const path = snapshotOf(0), { page, errors, requests } = await openPage(browser, pageOf("pools", path));
	await settle(page);
	assert.equal(await page.evaluate(() => gpumem.source.name), "pytorch on GPU 0");
	const options = await page.getByLabel("device or pool").locator("option").allInnerTexts();
	assert.match(options.join("\n"), /GPU 0, driver/);
	await page.getByLabel("device or pool").selectOption("0");
	await settle(page);
	assert.equal(await page.evaluate(() => gpumem.source.level), "driver");
	await page.getByRole("tab", { name: "Summary" }).click();
	const { by_pool: idle } = JSON.parse(gpumem("summary", "--json", path)), { pools } = JSON.parse(readFileSync(path, "utf8"));
	assert.deepEqual(await page.getByRole("table", { name: "pools" }).locator("tbody tr").allInnerTexts(), pools.map(({ name, memory_stats: stats }, i) =>
		[`${name} on GPU 0`, ...["allocated_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.current"].map((key) => bytes(stats[key])),
			bytes(idle[i].idle_bytes), count(stats["allocation.all.allocated"])].join("\t")));
	assert.match(await page.locator(".sheet").innerText(), /from pool_user import \* context\(\) kept = /, "what has lines is on one");
	assert.deepEqual([errors, requests], [[], []]);
});
