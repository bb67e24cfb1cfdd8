/* Flame graphs and tables: the same numbers as `gpumem flame`, `summary`, `leaks` and `events`; and in the browser the same on the page. */
// timeout: 300
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { gunzipSync } from "node:zlib";
import { flameOf, weigher } from "../../tools/viewer/src/model/flame.js";
import { groupLives, phasesOf } from "../../tools/viewer/src/model/groups.js";
import { isLeft } from "../../tools/viewer/src/model/lives.js";
import { modelsOf, wholesOf } from "../../tools/viewer/src/model/model.js";
import { fileDocument } from "../../tools/viewer/src/model/file.js";
import { matchOf } from "../../tools/viewer/src/model/filter.js";
import { rangesOf, stateAt, sumsOf } from "../../tools/viewer/src/model/segments.js";
import { events } from "../../tools/viewer/src/work/state.js";
import { modelOf, openPack } from "../../tools/viewer/src/work/open.js";
import { table } from "../../tools/viewer/src/work/tables.js";
import { brief, bytes, clock, count, duration, moment, plural } from "../../tools/viewer/src/ui/format.js";
import { launch, missing, openPage, settle } from "./browser.mjs";
import { DATA, gpumem, large, lateOf, packsOf, pageOf, randomOf, readPage, room, runApp, runPools } from "./documents.mjs";

const skip = missing || false;
const training = runApp(["app_training", "--steps", "30", "--leak"]);
const SNAPSHOTS = {
	training: training("exit"), pickle: join(DATA, "torch-snapshot.pickle"),
	random: large("random", "--events", "20000", "--live", "500", "--frames", "300", "--stacks", "150"),
};

test("numbers as people read them", () => {
	assert.deepEqual([0, 999, 1000, 1234567, -1234567].map(count), ["0", "999", "1,000", "1,234,567", "-1,234,567"]);
	assert.deepEqual([0, 999.4, 999.6, 1500, 999960, 59.9e6, 179.7e6, -61e6, 7199.8e6, 10799e6].map(duration),
		["0 µs", "999 µs", "1 ms", "1.5 ms", "1 s", "59.9 s", "3 min 0 s", "-61 s", "2 h 0 min", "3 h 0 min"]);
	assert.deepEqual([moment(1234.5678, 0.01), moment(999999, 1), moment(90e6, 60e6)], ["1,234.568 µs", "999,999 µs", "2 min"]);
	assert.deepEqual([0, 1e300, -5, 1795202645596220].map(clock), ["", "", "", "2026-11-20 19:24:05 UTC"]);
	assert.deepEqual(["f (/a/b/c.py:7)", "f (c.py:7)", "g(int (*)(x)) (/lib/a.c:9)", "h (libx.so)", "<lambda> (/a b/(c)/d.py:1)", "(no stack)", "", "f (/a/c.py:7) #00c0ffee", "f (/a/c.py:7) #12"].map(brief),
		["f (c.py:7)", "f (c.py:7)", "g(int (*)(x)) (a.c:9)", "h (libx.so)", "<lambda> (/a b/(c)/d.py:1)", "(no stack)", "", "f (c.py:7) #00c0ffee", "f (/a/c.py:7) #12"]);
	const reduce = "at::native::gpu_reduce_kernel<float, (anonymous namespace)::F<int>>(at::TensorIterator&, double)";
	assert.deepEqual([`${reduce} (/a/Reduce.cuh:12)`, `${reduce} (libtorch_cuda.so) ← f (a.py:1)`, "ScaledDotProductEfficientAttentionBackward0 (libtorch_cpu.so)", `${reduce} #00c0ffee`].map(brief),
		["at::native::gpu_reduce_kernel<…>(…) (Reduce.cuh:12)", "at::native::gpu_reduce_kernel<…>(…) (libtorch_cuda.so) ← f (a.py:1)", "ScaledDotProductEfficientAttentionBackward0 (libtorch_cpu.so)",
			"at::native::gpu_reduce_kernel<…>(…) #00c0ffee"]);
	assert.deepEqual([plural(0, "row"), plural(1, "row"), plural(1000, "row")], ["0 rows", "1 row", "1,000 rows"]);
	assert.deepEqual([0, 1023, 1024, -1536, 2 ** 60, 1152, 1408, 1664, 1920, 1153].map(bytes),
		["0 B", "1023 B", "1.00 KiB", "-1.50 KiB", "1.00 EiB", "1.12 KiB", "1.38 KiB", "1.62 KiB", "1.88 KiB", "1.13 KiB"]);
});

/* ---- tables and events against the command ------------------------------------------------------ */

/* The snapshot at @path with names in it that its program had no reason to choose. */
const ODD = ["", "__proto__", "constructor", "a\nb", "a\tb\u0007c", "\u202eevil", "\u007f\u0085\u2028", "</script><b>", "'\"`;--", "é漢\ud83d\ude00",
	"f (/a/b.py:7)", "g #0123abcd", "%s%n", "${1}", "..", " lead", "trail ", "a;b"];
const spoilt = (path, seed) => {
	const snapshot = JSON.parse(readFileSync(path, "utf8")), next = randomOf(seed), to = join(room, `spoilt-${seed}.json`);
	const odd = () => ODD[Math.floor(next() * ODD.length)];
	for (const frame of snapshot.frames) {
		frame.name = next() < 0.5 ? odd() + (next() < 0.5 ? frame.name : "") : frame.name;
		frame.filename = next() < 0.3 ? odd() : frame.filename;
		frame.line = next() < 0.3 ? Math.floor(next() * 9) : frame.line;
	}
	for (const module of snapshot.modules)
		module.path = next() < 0.5 ? odd() : module.path;
	for (const pool of snapshot.pools ?? [])
		pool.name = `\u202e${odd()}`;
	writeFileSync(to, JSON.stringify(snapshot));
	return to;
};

const ranOut = `
torch = Torch(limit=1 << 30)
torch.storm(3, 300, 3)
kept = [torch.alloc(3 << 20), torch.alloc(3 << 20)]
torch.free(kept[0])
mine = pool("mine")
base = malloc(1 << 20)
for at in range(4):
    given(mine, base + at * 65536, 40000, 77)
taken(mine, base + 65536)
torch.alloc(1 << 30)
`;

test("tables and events are those of the command: random programs, odd names, and an out-of-memory with pools", async () => {
	const paths = [];
	for (const seed of [11, 12, 13]) {
		const path = runApp(["app_random", String(seed), "3000"])("exit");
		paths.push(path, spoilt(path, seed), spoilt(large(`odd-${seed}`, "--events", `${5000 + seed}`, "--live", "300", "--frames", "200", "--stacks", "150"), 100 + seed));
	}
	const pools = runPools(ranOut)("oom-1");
	paths.push(pools, spoilt(pools, 14));
	let compared = 0;
	for (const [i, path] of paths.entries())
		for (const level of pools === path || i === paths.length - 1 ? ["pool", "driver"] : ["driver"]) {
			const { number: doc, sources } = await openPack({ text: packsOf(pageOf("odd", "--level", level, path))[0] });
			const asked = { doc, at: 0, window: { mode: "order", from: null, to: null }, first: 0, count: 1e9, search: "", up: false };
			const tables = (more) => sources.filter(({ device }) => device !== null).map(({ number: source }) => table({ ...asked, source, ...more }));
			const said = (...words) => gpumem(...words, "--level", level, path);
			for (const by of ["site", "module", "kind", "size", "stream", "stack"]) {
				const found = new Map();
				for (const { name, left, leftBlocks } of tables({ what: "groups", by, sort: "left" }).flatMap(({ rows }) => rows)) {
					const row = found.get(name) ?? [0, 0];
					found.set(name, [row[0] + left, row[1] + leftBlocks]);
				}
				const nameOf = { stack: () => "", stream: (name) => name === "default stream" ? "0" : name.replace("stream ", "") }[by] ?? ((name) => name);
				const wanted = JSON.parse(said("summary", "--json", "--by", by))[`by_${by}`].filter(({ blocks }) => blocks);
				assert.deepEqual([...found].filter(([, [, blocks]]) => blocks).map(([name, sums]) => [nameOf(name), ...sums].join()).sort(),
					wanted.map((row) => [by === "stack" ? "" : row[by], row.allocated_bytes, row.blocks].join()).sort(), `${path} ${level} by ${by}`);
				compared += wanted.length;
			}
			const { leaks } = JSON.parse(said("leaks", "--json")), lives = tables({ what: "leaks", by: "site", sort: "size" });
			assert.deepEqual([lives.reduce((sum, { sums }) => sum + (sums.size ?? 0), 0), lives.reduce((sum, { all }) => sum + all, 0)],
				leaks.reduce(([sum, number], { bytes: size, blocks }) => [sum + size, number + blocks], [0, 0]));
			const listed = said("events", "--jsonl").split("\n").filter(Boolean).map((line) => JSON.parse(line))
				.map(({ action, addr, size, time_us: time, device }) => [action, addr, size, time, device].join());
			assert.deepEqual(sources.flatMap(({ number: source, device }) => events({ doc, source, which: "raw", first: 0, count: 1e9, at: 0 }).rows
				.map(({ action, addr, size, time }) => [action, addr, size, time + modelOf({ doc, source }).axis.begin, device].join())).sort(), listed.sort());
			compared += listed.length;
		}
	assert.ok(compared > 20000, String(compared));
	const { sources } = await openPack({ text: packsOf(pageOf("odd", paths.at(-1)))[0] });
	const names = sources.filter(({ level }) => level === "pool").map(({ name }) => name);
	assert.ok(names.length === 2 && names.every((name) => /^\?\?\?[^\0-\x1f\u202e]* on GPU 0$/.test(name)), JSON.stringify(names));
});

/* What makes two stacks one row, and who asked: a rule of tools/show/ and of the page. */
test("stacks are one row where the command has one: inlined functions and lines of C do not count, files of Python do", async () => {
	const path = large("rows", "--events", "400", "--live", "50", "--frames", "12", "--stacks", "8"), snapshot = JSON.parse(readFileSync(path, "utf8"));
	const native = (name, offset, more) => ({ filename: "", line: 0, name, module: 1, offset, python: false, ...more });
	const python = (filename, line) => ({ filename, line, name: "forward", module: 0, offset: 0, python: true });
	snapshot.process.directory = "/home/me";
	snapshot.frames = [native("", 0), native("f", 64), native("f", 80), native("g", 96),
		native("small", 64, { inlined: true, filename: "/home/me/a.c", line: 3 }), native("smaller", 80, { inlined: true, filename: "/home/me/a.c", line: 5 }),
		python("/home/me/a.py", 30), python("/home/me/b.py", 30), python("/home/me/a.py", 31)];
	for (const [stacks, sites] of [
		[[[4, 1, 3], [5, 2, 3], [1, 3], [2, 3], [4, 4, 1, 3], [1, 3], [1, 3], [1, 3]], ["f (libpart1.so)"]],
		[[[4, 1, 3], [2, 3], [3], [3, 3], [3], [3], [3], [3]], ["f (libpart1.so)", "g (libpart1.so)"]],
		[[[1, 6], [1, 7], [4, 1, 8], [1, 8], [1, 6], [2, 6], [5, 2, 6], [1, 6]], ["forward (a.py:30)", "forward (a.py:31)", "forward (b.py:30)"]],
	]) {
		writeFileSync(path, JSON.stringify({ ...snapshot, stacks: [[], ...stacks] }));
		const sums = new Map(), [{ models }] = await readPage(pageOf("rows", path));
		for (const model of models.filter(({ source }) => source.device !== null)) {
			const { lives, count } = model, { group, names } = groupLives(model, "stack");
			for (let l = 0; l < lives.count; l++)
				if (isLeft(lives, l, count)) {
					const [size, number] = sums.get(names[group[l]]) ?? [0, 0];
					sums.set(names[group[l]], [size + lives.size[l], number + 1]);
				}
		}
		const wanted = JSON.parse(gpumem("summary", "--json", "--by", "stack", path)).by_stack.filter(({ blocks }) => blocks);
		assert.deepEqual([...sums.values()].map(String).sort(), wanted.map((row) => `${row.allocated_bytes},${row.blocks}`).sort(), JSON.stringify(stacks));
		assert.deepEqual([...new Set([...sums.keys()].map((name) => name.replace(/ #.*/, "")))].sort(), sites);
	}
});

/* ---- flame graphs ------------------------------------------------------------------------------- */

/* Folded stacks, as a map: outermost frame first. */
const folded = (text) => {
	const found = new Map();
	for (const line of text.split("\n").filter(Boolean)) {
		const at = line.lastIndexOf(" ");
		found.set(line.slice(0, at), (found.get(line.slice(0, at)) ?? 0) + Number(line.slice(at + 1)));
	}
	return found;
};

const foldedOf = ({ nodes }) => {
	const found = new Map();
	nodes.forEach((node, n) => {
		if (!node.self || n === 0)
			return;
		const path = [];
		for (let at = n; at > 0; at = nodes[at].parent)
			path.unshift(nodes[at].label.slice(0, 511).replaceAll(";", ":"));	/* the command cuts templates */
		const key = path.join(";");
		found.set(key, (found.get(key) ?? 0) + node.self);
	});
	return found;
};

test("flame graphs are those of gpumem flame, stack by stack", async () => {
	let compared = 0;
	for (const [name, path] of Object.entries(SNAPSHOTS)) {
		const [{ models }] = await readPage(pageOf(name, path));
		const [model] = models.filter(({ source }) => source.device === 0);
		for (const [weigh, word] of [["end", "live"], ["peak", "peak"], ["count", "count"], ["bytes", "bytes"], ["churn", "churn"]]) {
			/* The command counts also what was there before the history. */
			if (["count", "bytes"].includes(weigh) && model.lives.early)
				continue;
			const wanted = folded(gpumem("flame", "--all-frames", "--format", "folded", "--weigh", word, "--device", "0", path));
			const found = foldedOf(flameOf(model, weigher(model, weigh, { at: 0, from: 0, to: model.count })));
			if (weigh === "end" && model.lives.pending.some(Boolean))
				continue;
			assert.deepEqual(new Map([...found].sort()), new Map([...wanted].sort()), `${name}, ${weigh}`);
			compared += wanted.size;
		}
	}
	assert.ok(compared > 100, String(compared));
});

test("a flame graph of a moment sums up to what is live in it, with a filter or without", async () => {
	const [{ models: [model] }] = await readPage(pageOf("random", SNAPSHOTS.random));
	for (const match of [null, Uint8Array.from({ length: model.lives.count }, (_, l) => l % 3 ? 1 : 0)]) {
		model.setFilter(match);
		for (const at of [0, 100, 5000, model.count]) {
			const { total, nodes } = flameOf(model, weigher(model, "live", { at, from: 0, to: 0 }));
			assert.equal(total, model.curve.values[at]);
			assert.equal(nodes.slice(1).reduce((sum, { self }) => sum + self, 0), total);
		}
	}
});

const browser = missing ? null : await launch();
after(() => browser?.close());
const visit = async (path, options, use) => {
	const opened = await openPage(browser, path, options);
	await settle(opened.page);
	await use(opened.page);
	assert.deepEqual([opened.errors, opened.requests], [[], []]);
	await opened.close();
};

test("the flame graph: a click comes closer, a search marks, a double click filters every view", { skip }, () => visit(pageOf("page", SNAPSHOTS.training), { hash: "view=flame" }, async (page) => {
	const box = await page.locator(".flames").boundingBox();
	const place = (label) => page.evaluate((wanted) => {
		const { view } = gpumem, n = view.data.labels.indexOf(wanted);
		return [view.x(view.data.begin[n] + view.data.weight[n] / 2), view.data.depth[n] * 20 + 12, n];
	}, label);
	let [x, y, n] = await place("make_moments");
	await page.mouse.move(box.x + x, box.y + y);
	await page.locator(".tip").waitFor({ state: "visible" });
	assert.match(await page.locator(".tip").innerText(), /168\.00 MiB[^]*make_moments/);
	await page.mouse.click(box.x + x, box.y + y);
	await settle(page);
	assert.equal(await page.evaluate(() => gpumem.view.root), n);
	await page.getByRole("button", { name: "All", exact: true }).click();
	await page.getByLabel("search in the flame graph").fill("/^load_w/");
	await settle(page);
	assert.match(await page.locator(".tools .soft").innerText(), /84\.00 MiB of /);
	await page.getByLabel("search in the flame graph").fill("/((/");
	await page.getByLabel("search in the flame graph").fill("");
	[x, y] = await place("load_weights");
	await page.mouse.dblclick(box.x + x, box.y + y);
	await settle(page);
	assert.deepEqual(await page.evaluate(() => gpumem.state.terms), ["frame=load_weights"]);
	assert.equal(await page.evaluate(() => gpumem.filtered.peakBytes), 84 * 2 ** 20);
	await page.keyboard.press("Escape");
	await page.getByRole("button", { name: "count", exact: true }).click();
	await settle(page);
	assert.equal(await page.evaluate(() => gpumem.view.data.total), await page.evaluate(() => gpumem.source.lives));
}));

test("a flame graph of thousands of narrow stacks is not empty", { skip }, () => visit(pageOf("narrow", large("narrow", "--events", "60000", "--live", "5000")), { hash: "view=flame" }, async (page) => {
	const [narrow, roots, share, shown] = await page.evaluate(() => {
		const { surface, data, x } = gpumem.view, top = [...data.depth.keys()].filter((n) => data.depth[n] === 1), copy = document.createElement("canvas");
		[copy.width, copy.height] = [surface.width, surface.height];
		const c = copy.getContext("2d");
		c.drawImage(surface, 0, 0);
		const pixels = c.getImageData(16, 32, gpumem.view.wide, 1).data.filter((_, i) => i % 4 === 3);
		const at = (n) => x.call(gpumem.view, data.begin[n] + data.weight[n]) - x.call(gpumem.view, data.begin[n]);
		return [top.filter((n) => at(n) < 0.6).length, top.length, pixels.filter((alpha) => alpha > 0).length / pixels.length,
			top.reduce((sum, n) => sum + data.weight[n], 0) / data.total];
	});
	assert.ok(narrow > roots * 0.9 && roots > 1000, `${narrow} of ${roots}`);
	assert.ok(shown > 0.3 && shown < 0.95 && share > shown * 0.9, `${share} of ${shown}`);
	assert.match(await page.locator(".tools .soft").innerText(), /^4\.9\d GiB; the smallest [0-9,]+ functions left out$/);
}));

test("no number of a table is cut off, beside an allocation that is pinned", { skip }, () => {
	const path = join(room, "torch-oom.json");
	writeFileSync(path, gunzipSync(readFileSync(join(DATA, "torch-oom.json.gz"))));
	return visit(pageOf("torch-oom", path), { hash: "view=tables&life=5" }, async (page) => {
		for (const table of ["Never freed", "Longest-lived", "Call sites"]) {
			await page.locator(".subtabs button", { hasText: table }).click();
			await settle(page);
			const cells = await page.locator(".table .much").evaluateAll((list) => list.map((cell) => [cell.textContent, cell.scrollWidth - cell.clientWidth]));
			assert.ok(cells.length > 50, `${table}: ${cells.length}`);
			assert.deepEqual(cells.filter(([, more]) => more > 0), [], table);
		}
		assert.deepEqual(await page.locator(".side h2").allInnerTexts(), ["Allocation\n✕"]);
	});
});

test("tables: sorted, searched in all frames, a click filters or pins", { skip }, () => visit(pageOf("page", SNAPSHOTS.training), { hash: "view=tables" }, async (page) => {
	const names = () => page.locator(".table .vlist-row .what").allInnerTexts();
	const summary = JSON.parse(gpumem("summary", "--json", SNAPSHOTS.training)).by_site.filter((row) => row.allocated_bytes);
	await page.locator(".table-head button", { hasText: "never freed" }).click();
	await settle(page);
	const left = await page.evaluate(() => [...gpumem.view.list.rows.values()].map(({ name, left: bytes }) => [name, bytes]));
	assert.deepEqual(new Map(left.filter(([, bytes]) => bytes)), new Map(summary.map((row) => [row.site, row.allocated_bytes])));
	await page.locator(".table-head button", { hasText: "name" }).click();
	await settle(page);
	const byName = await names();
	assert.deepEqual(byName, [...byName].sort());
	await page.getByLabel("search in the table").fill("main");	/* no site's name, but in every stack */
	await settle(page);
	assert.equal((await names()).length, byName.length);
	await page.getByLabel("search in the table").fill("/nowhere|moments$/");
	await settle(page);
	assert.equal((await names()).length, 1);
	await page.getByLabel("search in the table").fill("/((/");
	await settle(page);
	assert.match(await page.locator(".tools .soft").innerText(), /regular expression/i);
	await page.getByLabel("search in the table").fill("");
	for (const table of ["Stacks", "Modules", "Streams", "Sizes", "Kinds", "Threads", "Phases", "Longest-lived", "Churn"]) {
		await page.locator(".subtabs button", { hasText: table }).click();
		await settle(page);
		assert.ok((await names()).length > 0, table);
	}
	await page.locator(".subtabs button", { hasText: "Never freed" }).click();
	await settle(page);
	const leaks = JSON.parse(gpumem("leaks", "--json", SNAPSHOTS.training));
	assert.equal(await page.evaluate(() => gpumem.view.list.count), leaks.leaks.reduce((sum, { blocks }) => sum + blocks, 0));
	await page.locator(".table .vlist-row").first().click();
	await settle(page);
	assert.ok((await page.evaluate(() => gpumem.state.life)) >= 0);
	assert.match(await page.locator(".side").innerText(), /Allocated by/);
}));

/* ---- sources that add up ------------------------------------------------------------------------ */

const pooled = runPools("kept = both_levels(1, 300)\nsnapshot()")("api-1");

test("a whole GPU is what the command sums: pools' blocks in the place of their pieces, everything else beside", async () => {
	const paths = [pooled, runPools("kept = both_levels(0, 300)\nsnapshot()")("api-1"), runPools(ranOut)("oom-1"), join(room, "gpumem-training.json")];
	writeFileSync(paths.at(-1), gunzipSync(readFileSync(join(DATA, "gpumem-training.json.gz"))));
	for (const path of paths) {
		const [{ doc, models }] = await readPage(pageOf("whole", path)), [whole] = wholesOf(doc, models);
		const [driver] = models, [{ models: wanted }] = await readPage(pageOf("wanted", "--level", "pool", path)), of = wanted.find(({ source }) => source.device === 0);
		for (const name of ["action", "addr", "size", "time"])
			assert.deepEqual(Array.from(whole.source.events[name]), Array.from(of.source.events[name]), `${path} ${name}`);
		assert.deepEqual(whole.curve.values, of.curve.values);
		assert.deepEqual(whole.reserved.values.at(-1), driver.reserved.values.at(-1), "from the driver is what the driver gave, once");
		const summary = JSON.parse(gpumem("summary", "--json", path)), found = {};
		const { group, names } = whole.grouped("site");
		for (let l = 0; l < whole.lives.count; l++)
			if (whole.lives.died[l] === whole.count + 1 && !whole.lives.pending[l] && whole.lives.weight[l])
				found[names[group[l]]] = (found[names[group[l]]] ?? 0) + whole.lives.weight[l];
		assert.deepEqual(found, Object.fromEntries(summary.by_site.filter((row) => row.allocated_bytes).map((row) => [row.site, row.allocated_bytes])), path);
		const peak = [...folded(gpumem("flame", "--all-frames", "--format", "folded", "--weigh", "peak", "--device", "0", path)).values()].reduce((sum, value) => sum + value, 0);
		assert.equal(whole.curve.values[whole.curve.peak], peak);
		const state = stateAt(whole, rangesOf(whole), whole.count), live = sumsOf(state);
		assert.equal(live.live + live.waiting, whole.curve.values[whole.count]);
	}
});

/* Most is live at the beginning, at both levels. */
const early = `
torch, old = Torch(), []
big, much = [torch.alloc(30 << 20) for _ in range(9)], malloc(1 << 30)
for one in big:
    torch.free(one)
free(much)
for i in range(100):
    old += [torch.alloc(3000 + i), malloc(1 << 20)]
torch.storm(3, 100, 3)
for i in range(0, 200, 4):
    torch.free(old[i])
    free(old[i + 1])
snapshot()
`;
const LATE = { random: runApp(["app_random", "11", "3000"])("exit"), training: SNAPSHOTS.training, pools: runPools(early)("api-1") };

test("at the peak, which came before the history, a page says what the command says: at each level, by each way, in flame graphs", async () => {
	let compared = 0;
	for (const [name, whole] of Object.entries(LATE)) {
		const path = lateOf(whole, `late-${name}`), dropped = fileDocument(readFileSync(path), "late.json");
		for (const level of ["driver", "pool"]) {
			const said = (...words) => gpumem(...words, "--level", level, path), { number: doc, sources } = await openPack({ text: packsOf(pageOf("late", "--level", level, path))[0] });
			const args = { doc, at: "peak", window: { mode: "order", from: null, to: null }, first: 0, count: 1e9, search: "", up: false, what: "groups", sort: "peak", terms: [] };
			for (const by of ["site", "module", "kind", "stack"]) {
				const found = new Map();
				for (const { number: source } of sources.filter(({ device }) => device !== null))
					for (const { name: of, peak, live, blocks } of table({ ...args, source, by }).rows) {
						found.set(of, (found.get(of) ?? 0) + peak);
						assert.ok(!modelOf({ doc, source }).held || (live === peak && blocks === null), "the cursor is there, and nobody counted blocks");
					}
				const wanted = JSON.parse(said("summary", "--json", "--by", by))[`by_${by}`].filter(({ peak_bytes: bytesThen }) => bytesThen);
				const key = (of) => by === "stack" ? "" : of;
				assert.deepEqual([...found].filter(([, size]) => size).map(([of, size]) => `${key(of)} ${size}`).sort(), wanted.map((row) => `${key(row[by])} ${row.peak_bytes}`).sort(), `${name} ${level} by ${by}`);
				compared += wanted.length;
			}
			const model = modelOf({ doc, source: sources.find(({ device }) => device === 0).number, terms: [] });
			assert.ok(model.held && model.curve.values[model.curve.peak] < model.held.bytes, "the history does not show it");
			const flame = folded(said("flame", "--all-frames", "--format", "folded", "--weigh", "peak", "--device", "0")), { held } = model;
			assert.deepEqual(new Map([...foldedOf(flameOf(held, (l) => held.weight[l]))].sort()), new Map([...flame].sort()), `${name} ${level}`);
		}
		/* The same of a file that was dropped; a whole GPU, and that blocks keep their stacks. */
		const [{ doc, models }] = await readPage(pageOf("late", path)), files = modelsOf(dropped), sum = (list) => list.map(({ source, peakBytes, held }) => `${source.name} ${peakBytes} ${held?.bytes}`);
		assert.deepEqual(sum(files), sum(models));
		const [gpu] = wholesOf(doc, models), [{ models: [merged] }] = await readPage(pageOf("late", "--level", "pool", path));
		assert.equal(gpu !== undefined, name === "pools");
		if (!gpu)
			continue;
		const rowsOf = ({ held }) => Array.from(held.lives.size, (size, l) => [size, ...held.stacks.lines(held.lives.stack[l]).map((line) => line.name)].join()).sort();
		assert.deepEqual(rowsOf(gpu), rowsOf(merged));
		assert.deepEqual(Array.from(gpu.lives.stack), Array.from(merged.lives.stack), "--level pool has the stacks of blocks from before the history");
		assert.ok(gpu.lives.early > 10 && Array.from(gpu.lives.stack.subarray(0, gpu.lives.early)).filter((id) => id > 0).length > 10, String(gpu.lives.early));
	}
	assert.ok(compared > 30, String(compared));
});

test("a peak that the history does not show is a moment of its own: alive@peak, the filter, and peaks that were reset", async () => {
	const [{ models: [model] }] = await readPage(pageOf("late", lateOf(LATE.training))), [{ models: [whole] }] = await readPage(pageOf("whole", LATE.training));
	const { held } = model, [site] = held.grouped("site").names, share = held.lives.size.filter((_, l) => held.grouped("site").group[l] === 0).reduce((sum, size) => sum + size, 0);
	assert.equal(whole.held, null);
	assert.equal(whole.counted.bytes, whole.curve.values[whole.curve.peak]);
	for (const [terms, wanted] of [[[], held.bytes], [["alive@peak"], held.bytes], [[`site=${site}`], share], [[`-site=${site}`, "kind=device"], held.bytes - share], [[`site=${site}`, "kind=host"], 0]]) {
		model.filter(terms);
		assert.equal(model.peakBytes, wanted, terms.join());
		assert.ok(model.isHeld("peak") && model.isHeld(null));
	}
	for (const terms of [["size>1MiB"], ["alive@end"], ["stream=default stream"], ["thread:1"], ["b7f_0"], [`site=${site}`, "phase:x"]]) {
		model.filter(terms);
		assert.ok(model.held && model.atPeak === null && model.peakBytes === model.curve.values[model.curve.peak], `of ${terms} rows know nothing`);
	}
	/* What is still there and older was there. */
	const early = Array.from({ length: model.lives.early }, (_, l) => l), then = matchOf(model, ["alive@peak"]), { blocks } = model.source;
	assert.deepEqual(early.filter((l) => then[l]), early.filter((l) => model.lives.block[l] >= 0 && blocks.time[model.lives.block[l]] <= held.timeUs));
	assert.ok(then.some(Boolean) && !then.subarray(model.lives.early).some(Boolean), String(then));
	/* Peaks that were reset at state 300: the highest moment since is the peak. */
	const reset = JSON.parse(readFileSync(LATE.training, "utf8")), after = whole.all.highest(300, whole.count), [device] = reset.devices, path = join(room, "reset.json");
	device.at_peak = { time_us: whole.source.events.time[after] + 1, sites: [{ bytes: whole.all.values[after], stack: 1, module: 1, kind: "device" }] };
	writeFileSync(path, JSON.stringify(reset));
	const [{ models: [since] }] = await readPage(pageOf("reset", path));
	assert.equal(since.held, null);
	assert.equal(since.curve.values[since.curve.peak], whole.all.values[after]);
});

test("all sources, at three cursors, under three filters, have one sum in every view after every other", { skip }, async () => {
	const path = pageOf("sums", pooled), [{ doc, models }] = await readPage(path), all = [...models, ...wholesOf(doc, models)];
	await visit(path, {}, async (page) => {
		const names = await page.getByLabel("device or pool").locator("option").allInnerTexts();
		assert.equal(names.length, all.length);
		assert.ok(names.some((name) => /^GPU 0, whole/.test(name)), names.join());
		const VIEWS = ["timeline", "allocator", "flame", "tables"];
		let compared = 0;
		for (const [number, model] of all.entries()) {
			if (model.source.device === null)
				continue;
			await page.getByLabel("device or pool").selectOption(String(number));
			await settle(page);
			assert.equal(await page.evaluate(() => gpumem.source.name), model.source.name);
			const site = model.grouped("site").names[0];
			for (const terms of [[], ["size>8KiB"], [`-site=${site}`]]) {
				model.filter(terms);
				for (const at of [model.count >> 1, "peak", model.count]) {
					const wanted = model.curve.values[model.state(at)];
					await page.evaluate((changes) => gpumem.set(changes), { terms, at, weigh: "live" });
					for (let k = 0; k < VIEWS.length; k++) {
						const view = VIEWS[(k + compared) % VIEWS.length];
						await page.locator(`[data-view=${view}]`).click();
						await settle(page);
						const sum = await page.evaluate(() => {
							const { view: shown, filtered, state, source } = gpumem;
							if (state.view === "timeline")
								return document.querySelector(".side .big").textContent + (state.at === "peak" ? ` ${(filtered ?? source).peakBytes}` : "");
							return state.view === "flame" ? shown.data.total : state.view === "tables" ? shown.sums.live ?? 0 :
								Array.from(shown.data.requested).reduce((total, size, b) => total + (shown.data.match[b] ? size : 0), 0);
						});
						assert.equal(sum, view === "timeline" ? `${bytes(wanted)}${at === "peak" ? ` ${wanted}` : ""}` : wanted, `${model.source.name} ${terms} ${at} ${view}`);
						compared++;
					}
				}
			}
		}
		assert.ok(compared >= 4 * 9 * 4 - 36, String(compared));
	});
});

test("what threads without ranges allocate is in the range of the leading thread, as backward is", () => {
	const note = (stage, name, time_us, thread) => ({ stage, name, time_us, thread, device: 0, domain: null, range: 0 });
	const root = { process: { pid: 7 }, annotations: [note("START", "loader", 1, 9), note("START", "step", 5, 7), note("START", "backward", 10, 7), note("END", "", 20, 7), note("END", "", 30, 9)] };
	const time = [2, 6, 12, 12, 25], thread = [0, 0, 1, 2, 1], none = time.map(() => 0);
	const { phase, names } = phasesOf({ numbers: [7, 8, 9], root }, { level: "pool", device: 0, count: time.length, events: { action: none, annotation: none, thread, time } });
	assert.deepEqual(Array.from(phase, (id) => names[id]), ["(no phase)", "step", "backward", "loader", "step"]);
});
