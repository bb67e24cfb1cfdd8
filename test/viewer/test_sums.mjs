/* Flame graphs and tables: the same numbers as `gpumem flame`, `summary` and `leaks`; and in the browser the same on the page. */
// timeout: 300
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, test } from "node:test";
import { flameOf, weigher } from "../../tools/viewer/src/model/flame.js";
import { brief, bytes, clock, count, duration, moment } from "../../tools/viewer/src/ui/format.js";
import { launch, missing, openPage, settle } from "./browser.mjs";
import { DATA, gpumem, large, pageOf, readPage, runApp } from "./documents.mjs";

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
	assert.deepEqual(["f (/a/b/c.py:7)", "f (c.py:7)", "g(int (*)(x)) (/lib/a.c:9)", "h (libx.so)", "<lambda> (/a b/(c)/d.py:1)", "(no stack)", ""].map(brief),
		["f (c.py:7)", "f (c.py:7)", "g(int (*)(x)) (a.c:9)", "h (libx.so)", "<lambda> (/a b/(c)/d.py:1)", "(no stack)", ""]);
	assert.deepEqual([0, 1023, 1024, -1536, 2 ** 60].map(bytes), ["0 B", "1023 B", "1.00 KiB", "-1.50 KiB", "1.00 EiB"]);
});

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
			const wanted = folded(gpumem("flame", "--format", "folded", "--weigh", word, "--device", "0", path));
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
	assert.deepEqual(await page.evaluate(() => gpumem.state.terms), [{ frame: "load_weights" }]);
	assert.equal(await page.evaluate(() => gpumem.filtered.peakBytes), 84 * 2 ** 20);
	await page.keyboard.press("Escape");
	await page.getByRole("button", { name: "count", exact: true }).click();
	await settle(page);
	assert.equal(await page.evaluate(() => gpumem.view.data.total), await page.evaluate(() => gpumem.source.lives));
}));

test("tables: sorted, searched in all frames, a click filters or pins", { skip }, () => visit(pageOf("page", SNAPSHOTS.training), { hash: "view=tables" }, async (page) => {
	const names = () => page.locator(".table .vlist-row .what").allInnerTexts();
	const summary = JSON.parse(gpumem("summary", "--json", SNAPSHOTS.training)).by_site.filter((row) => row.allocated_bytes);
	await page.locator(".table-head button", { hasText: "never freed" }).click();
	await settle(page);
	const left = await page.evaluate(() => [...gpumem.view.rows.values()].map(({ name, left: bytes }) => [name, bytes]));
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
