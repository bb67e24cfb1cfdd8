/*
 * The views that are not of a moment: the summary says what `gpumem summary` says, and compare what `gpumem diff` says.
 */
// timeout: 300
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { compare } from "../../tools/viewer/src/work/compare.js";
import { openPack } from "../../tools/viewer/src/work/open.js";
import { missing, openPage, settle, withBrowser } from "./browser.mjs";
import { DATA, gpumem, large, packsOf, pageOf, room, runApp } from "./documents.mjs";

const run = runApp(["app_training", "--steps", "20", "--leak", "--oom"]);
const later = runApp(["app_training", "--steps", "60", "--leak"]);
const multi = runApp(["app_multidev.static"]);
const random = large("random", "--events", "20000", "--live", "500", "--frames", "300", "--stacks", "150");
const other = large("other", "--events", "9000", "--live", "900", "--frames", "300", "--stacks", "150");

/* With the source lines that the page has, which diff does not look for. */
let count = 0;
const named = (path) => {
	const to = join(room, `named-${count++}.json`);
	gpumem("symbolize", "-o", to, path);
	return to;
};

test("the difference of two snapshots is that of gpumem diff, by everything it can be made by", async () => {
	let compared = 0;
	for (const [name, a, b] of [["steps", named(run("exit")), named(later("exit"))], ["back", named(later("exit")), named(run("oom-1"))],
		["random", named(random), named(other)], ["foreign", named(join(DATA, "gpumem-snapshot.json")), join(DATA, "torch-snapshot.pickle")], ["same", named(random), named(random)]]) {
		const opened = [];
		for (const text of packsOf(pageOf(name, a, b)))
			opened.push(await openPack({ text }));
		for (const by of ["site", "stack", "module", "kind", "size", "stream"]) {
			const diff = JSON.parse(gpumem("diff", "--json", "--by", by, "--device", "0", a, b));
			const named = { stack: () => "", stream: (stream) => stream.replace("default stream", "0").replace("stream ", "") }[by] ?? ((text) => text);
			const wanted = diff.map((row) => [row.name ?? "", row.bytes_a, row.bytes_b, row.blocks_a, row.blocks_b]);
			const source = opened[0].sources.find(({ device, level }) => device === 0 && level === "driver");
			const { rows, same } = compare({ doc: opened[0].number, source: source.number, other: opened[1].number, by, when: "end" });
			const sorted = (list) => list.filter((row) => row[1] !== row[2] || row[3] !== row[4]).map((row) => row.join("|")).sort();
			assert.deepEqual(sorted(rows.map((row) => [named(row.name), row.a, row.b, row.blocksA, row.blocksB])), sorted(wanted), `${name} by ${by}`);
			for (let i = 1; i < rows.length; i++)
				assert.ok(rows[i - 1].b - rows[i - 1].a >= rows[i].b - rows[i].a, "the largest growth is first");
			assert.ok(name !== "same" || (!rows.length && same > 0));
			compared += rows.length;
		}
		const peak = compare({ doc: opened[0].number, source: 0, other: opened[1].number, by: "kind", when: "peak" });
		assert.equal(peak.a, opened[0].sources[0].peakBytes);
		assert.equal(peak.b, opened[1].sources[peak.source].peakBytes);
	}
	assert.ok(compared > 40, String(compared));
});

test("a device that the other snapshot has not is said to be missing", async () => {
	const [[a], [b]] = [packsOf(pageOf("multi", multi("exit"))), packsOf(pageOf("single", random))];
	const many = await openPack({ text: a }), one = await openPack({ text: b });
	const second = many.sources.find(({ device }) => device === 1);
	assert.equal(compare({ doc: many.number, source: second.number, other: one.number, by: "site", when: "end" }).source, -1);
});

/* ---- in the browser ----------------------------------------------------------------------------- */

const visit = async (browser, path, hash, use, size = {}) => {
	const { page, errors, requests, close } = await openPage(browser, path, { hash, wait: false, ...size });
	await page.waitForFunction(() => globalThis.gpumem?.head);
	await settle(page);
	await use(page);
	assert.deepEqual([errors, requests], [[], []]);
	await close();
};

test("summary and compare in a browser", { skip: missing || false }, async (t) => {
	const oom = run("oom-1"), snapshot = JSON.parse(readFileSync(oom, "utf8")), summary = JSON.parse(gpumem("summary", "--json", oom));
	const before = named(run("exit")), after = named(later("exit"));
	const evil = join(room, "evil.json"), attack = "<img src=x onerror='globalThis.hit=1'><script>globalThis.hit=1</script>";
	const spoilt = JSON.parse(readFileSync(oom, "utf8"));
	for (const module of spoilt.modules)
		module.path += attack;
	for (const one of [...spoilt.devices[0].by_module, ...spoilt.devices[0].by_kind])
		Object.assign(one, { path: attack, kind: attack });
	Object.assign(spoilt.process, { command: attack, directory: attack, host: attack, life: attack });
	spoilt.allocator_settings.gpumem[attack] = { value: attack, source: attack };
	Object.assign(spoilt.failure, { result_name: attack, refused_by: attack });
	spoilt.failures.forEach((one) => { one.result_name = attack; });
	spoilt.devices[0].name = attack;
	writeFileSync(evil, JSON.stringify(spoilt));

	await withBrowser(async (browser) => {
		await t.test("the summary has why memory ran out, the statistics, the options", () => visit(browser, pageOf("oom", oom), "view=summary", async (page) => {
			const text = await page.locator(".sheet").innerText();
			assert.ok(summary.explanation.why.length > 20 && text.includes(summary.explanation.why), summary.explanation.why);
			assert.ok(text.includes(summary.explanation.change));
			assert.ok(text.includes(String(snapshot.process.pid)) && text.includes(snapshot.process.command_line));
			await page.locator("details summary", { hasText: "of memory_stats()" }).first().click();
			const rows = await page.getByRole("table", { name: "all statistics of GPU 0" }).locator("tbody tr").allInnerTexts();
			const stats = snapshot.devices[0].memory_stats;
			assert.deepEqual(Object.fromEntries(rows.map((row) => row.split("\t"))), Object.fromEntries(Object.entries(stats).map(([key, value]) => [key, String(value)])));
			await page.locator("details summary", { hasText: "options of libgpumem" }).click();
			const options = await page.getByRole("table", { name: "options", exact: true }).locator("tbody tr").allInnerTexts();
			assert.deepEqual(options.map((row) => row.split("\t")[0]), Object.keys(snapshot.allocator_settings.gpumem));
			const asked = await page.getByRole("table", { name: "failures" }).locator("tbody tr").count();
			assert.equal(asked, Math.min(12, snapshot.failures.length));
			assert.equal(await page.locator(".strip").isVisible(), false);
		}));
		await t.test("what waits for the GPU is not idle", () => {
			const path = join(room, "waiting.json"), waits = JSON.parse(readFileSync(run("exit"), "utf8"));
			for (const [i, key] of ["allocated", "active", "reserved"].entries())
				waits.devices[0].memory_stats[`${key}_bytes.all.current`] = [1, 4, 20][i] * 2 ** 20;
			writeFileSync(path, JSON.stringify(waits));
			return visit(browser, pageOf("waiting", path), "view=summary", async (page) => {
				assert.match(await page.locator(".card .note").first().innerText(),
					/live 1\.00 MiB\s+waiting for the GPU 3\.00 MiB\s+reserved and idle 16\.00 MiB/);
			});
		});
		await t.test("of PyTorch's snapshot there is what it says", () => visit(browser, pageOf("torch", join(DATA, "torch-snapshot.pickle")), "view=summary", async (page) => {
			const text = await page.locator(".sheet").innerText();
			assert.match(text, /max_split_size/);
			assert.match(text, /Reserved memory/);
			assert.match(text, /asked for 1\.00 TiB/);
			assert.doesNotMatch(text, /undefined|NaN/);
			const stats = JSON.parse(gpumem("summary", "--json", join(DATA, "torch-snapshot.pickle"))).devices[0].memory_stats;
			assert.ok(stats["allocated_bytes.all.peak"] > 0);
			assert.deepEqual(await page.evaluate(() => gpumem.doc.devices[0].memory_stats), stats, "with the peaks that follow from its history");
		}));
		await t.test("nothing of a snapshot is executed there", () => visit(browser, pageOf("evil", evil), "view=summary", async (page) => {
			assert.ok((await page.locator(".sheet").innerText()).includes("<img src=x"));
			assert.equal(await page.locator("img").count(), 0);
			assert.equal(await page.evaluate(() => globalThis.hit), undefined);
		}));
		await t.test("two snapshots side by side", () => visit(browser, pageOf("two", before, after), "view=compare", async (page) => {
			await page.waitForFunction(() => gpumem.view?.data);
			await settle(page);
			const diff = JSON.parse(gpumem("diff", "--json", "--device", "0", before, after)).filter((row) => row.growth);
			const rows = page.locator(".differs.vlist-row");
			assert.equal(await rows.count(), diff.length);
			assert.ok(await rows.first().isVisible() && (await page.locator(".table .vlist").boundingBox()).height > 200);
			assert.ok((await rows.first().innerText()).startsWith(diff[0].name));
			assert.equal(await page.locator(".side-title", { hasText: /named-\d+\.json.*peak/ }).count(), 2);
			const painted = await page.evaluate(() => gpumem.view.sides.map(({ canvas }) => {
				const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height), colors = new Set();
				for (let i = 0; i < data.length; i += 4)
					colors.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
				return colors.size;
			}));
			assert.ok(painted.every((colors) => colors >= 2), String(painted));
			await page.getByRole("button", { name: "at the peak" }).click();
			await settle(page);
			assert.match(await page.locator(".tools").innerText(), /before/);
			await page.getByLabel("difference by").selectOption("module");
			await settle(page);
			assert.match(await page.locator(".tools").innerText(), /rows? differs?/);
		}));
		await t.test("the line at the top fits, with two snapshots of several devices", async () => {
			const path = pageOf("wide", join(DATA, "gpumem-snapshot.json"), random);
			for (const width of [1280, 2560])
				await visit(browser, path, "view=summary", async (page) => {
					for (const button of await page.locator(".head button:visible, .head select:visible, .head input").all()) {
						const box = await button.boundingBox();
						assert.ok(box.x >= 0 && box.x + box.width <= width && box.width > 20, JSON.stringify(box));
					}
				}, { width });
		});
		await t.test("in every view all of it can be reached", async () => {
			const path = pageOf("reached", oom, random);
			for (const [width, height] of [[1280, 500], [2560, 1440]])
				for (const view of ["timeline", "allocator", "flame", "tables", "summary", "compare"])
					await visit(browser, path, `view=${view}`, async (page) => {
						const beyond = await page.evaluate(() => [document.body.scrollWidth - innerWidth, document.body.scrollHeight - innerHeight]);
						assert.deepEqual(beyond, [0, 0], `${view} at ${width} by ${height}`);
						if (view !== "summary")
							return;
						await page.mouse.move(width / 2, height / 2);
						await page.mouse.wheel(0, 1e5);
						await page.waitForFunction(() => [...document.querySelectorAll(".card")].at(-1).getBoundingClientRect().bottom <= innerHeight);
					}, { width, height });
		});
		await t.test("with one snapshot alone it says what to do", () => visit(browser, pageOf("one", run("exit")), "view=compare", async (page) => {
			assert.match(await page.locator(".stage .welcome").innerText(), /Drop a second snapshot here/);
		}));
	});
});
