/*
 * The page in a real browser: the timeline, its keys and its mouse, what is in the address bar; that nothing of a
 * snapshot is executed, nothing is asked of a network, and nothing is said on the console.
 */
// timeout: 600
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { after, test } from "node:test";
import { launch, missing, numbersOf, openPage, settle } from "./browser.mjs";
import { fileDocument } from "../../tools/viewer/src/model/file.js";
import { DATA, large, pageOf, readPage, room, runApp } from "./documents.mjs";

const skip = missing || false;
const state = (page) => page.evaluate(() => ({ ...gpumem.state }));
const side = (page) => page.locator(".side").innerText();

/* A page of one browser, for @use; it may not complain. */
const visit = async (path, options, use) => {
	const opened = await openPage(browser, path, options);
	await settle(opened.page);
	await use(opened.page);
	assert.deepEqual(opened.errors, [], "errors on the console");
	assert.deepEqual(opened.requests, [], "requests that leave the page");
	await opened.close();
};

const browser = missing ? null : await launch();
after(() => browser?.close());
const run = runApp(["app_training", "--steps", "40", "--leak", "--oom"]);
const training = pageOf("training", run("exit"));
const [{ models: [model] }] = await readPage(training);

test("the first picture is the timeline, with the peak and who holds it", { skip }, () => visit(training, {}, async (page) => {
	assert.match(await page.title(), /app_training/);
	const text = await side(page);
	assert.match(text, /At the peak/);
	assert.match(text, /make_moments/);
	const ids = await numbersOf(page, () => gpumem.view.picture.ids), view = await page.evaluate(() => gpumem.view.picture.view);
	const wanted = model.draw({ ...view, mark: -1 }, new Uint32Array(model.lives.count));
	assert.equal(ids.length, view.width * view.height);
	assert.deepEqual(Uint32Array.from(ids), wanted.ids);
}));

test("pointing shows, a click pins, Escape lets go", { skip }, () => visit(training, {}, async (page) => {
	const box = await page.locator(".canvas .top").boundingBox();
	const at = [box.x + box.width * 0.5, box.y + box.height - 60];
	await page.mouse.move(...at);
	await page.locator(".tip").waitFor({ state: "visible" });
	await page.mouse.click(...at);
	await settle(page);
	const { life } = await state(page);
	assert.ok(life >= 0);
	const text = await side(page);
	for (const word of ["address", "requested", "stream", "thread", "Allocated by", "freed"])
		assert.ok(text.includes(word), `${word} in ${text}`);
	const address = `0x${model.lives.addr[life].toString(16)}`;
	assert.ok(text.includes(address), `${address} in ${text}`);
	await page.waitForFunction((l) => location.hash.includes(`life=${l}`), life);
	await page.keyboard.press("Escape");
	await settle(page);
	assert.equal((await state(page)).life, -1);
}));

test("pointing names a range and a failure; lists tell lines apart, and take the keyboard", { skip }, () => {
	const path = join(room, "torch-oom.json");
	writeFileSync(path, gunzipSync(readFileSync(join(DATA, "torch-oom.json.gz"))));
	return visit(pageOf("torch-oom", path), {}, async (page) => {
		const canvas = await page.locator(".canvas .top").boundingBox(), tip = page.locator(".tip");
		const [x, y, name] = await page.evaluate(() => {
			const { view } = gpumem, range = view.marks.ranges.findLast(({ depth }) => depth === 0);
			return [(view.x(gpumem.place(range.from)) + view.x(gpumem.place(range.to))) / 2, view.box.top - 10, range.name];
		});
		await page.mouse.move(canvas.x + x, canvas.y + y);
		await tip.waitFor({ state: "visible" });
		assert.match(await tip.innerText(), new RegExp(`^${name}\\s+[0-9.]+ m?s, from [0-9.]+ s$`));
		const [at, bottom] = await page.evaluate(() => {
			const { view } = gpumem;
			return [view.x(gpumem.place(view.marks.points.at(-1).state)), view.box.top + view.box.height + 5];
		});
		await page.mouse.move(canvas.x + at, canvas.y + bottom);
		await tip.getByText("Memory ran out").waitFor();
		assert.match(await tip.innerText(), /^Memory ran out\s+31\.25 GiB asked for, at 4\.644 s$/);
		const over = await tip.boundingBox(), whole = page.viewportSize();
		assert.ok(over.x >= 0 && over.y >= 0 && over.x + over.width <= whole.width && over.y + over.height <= whole.height, "it is on the page");
		await page.mouse.move(canvas.x + 5, canvas.y + bottom);
		await tip.waitFor({ state: "hidden" });
		const rows = page.locator(".bars li"), names = await rows.locator(".what").allInnerTexts();
		assert.equal(new Set(names).size, names.length);
		assert.ok(names.includes("Block.forward (train.py:9)"), names.join());
		assert.match(await rows.first().getAttribute("title"), /^Block\.forward \(train\.py:9\)/);
		assert.equal(await page.locator(".key.limit").isVisible(), true, "what was refused reaches above the limit");
		await rows.first().focus();
		await page.keyboard.press("Enter");
		await settle(page);
		assert.deepEqual((await state(page)).terms, ["site=Block.forward (train.py:9)"]);
	});
});

test("wheel, drag and keys move the window; the strip chooses it", { skip }, () => visit(training, { hash: "mode=time" }, async (page) => {
	const box = await page.locator(".canvas .top").boundingBox(), span = await page.evaluate(() => gpumem.span);
	await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
	for (let i = 0; i < 5; i++)
		await page.mouse.wheel(0, -200);
	await settle(page);
	const zoomed = await page.evaluate(() => gpumem.window);
	assert.ok(zoomed.to - zoomed.from < span / 2, JSON.stringify(zoomed));
	await page.mouse.down();
	await page.mouse.move(box.x + box.width / 2 - 150, box.y + box.height / 2, { steps: 4 });
	await page.mouse.up();
	await settle(page);
	const moved = await page.evaluate(() => gpumem.window);
	assert.ok(moved.from > zoomed.from);
	assert.ok(Math.abs((moved.to - moved.from) - (zoomed.to - zoomed.from)) < 1e-6 * span);
	assert.equal((await state(page)).life, -1, "a drag pins nothing");
	const view = await page.evaluate(() => gpumem.view.picture.view);
	assert.deepEqual([view.from, view.to], [moved.from, moved.to], "the sharp picture is of the window");
	await page.keyboard.press("0");
	await page.keyboard.press("+");
	await settle(page);
	assert.ok(Math.abs((await page.evaluate(() => gpumem.window.to - gpumem.window.from)) - span * 0.7) < span * 1e-6);
	const strip = await page.locator(".strip").boundingBox();
	await page.keyboard.press("0");
	await page.mouse.move(strip.x + strip.width * 0.25, strip.y + 30);
	await page.mouse.down();
	await page.mouse.move(strip.x + strip.width * 0.5, strip.y + 30, { steps: 3 });
	await page.mouse.up();
	const chosen = await page.evaluate(() => gpumem.window);
	assert.ok(Math.abs(chosen.from / span - 0.25) < 0.02 && Math.abs(chosen.to / span - 0.5) < 0.02, JSON.stringify(chosen));
	await page.keyboard.press("t");
	await settle(page);
	assert.equal((await state(page)).mode, "order");
	assert.equal((await state(page)).from, null);
	await page.keyboard.press("]");
	assert.equal((await state(page)).at, model.curve.peak + 1);
	await page.keyboard.press("p");
	assert.equal((await state(page)).at, "peak");
}));

test("a movement does not ask the browser again and again where things lie", { skip }, () => visit(training, {}, async (page) => {
	const { reads, paintings } = await page.evaluate(async () => {
		const { view } = gpumem, found = { reads: 0, paintings: 0 }, width = view.canvas.clientWidth, paintNow = view.paintNow.bind(view);
		Object.defineProperty(view.canvas, "clientWidth", { get: () => { found.reads++; return width; } });
		view.paintNow = () => { found.paintings++; paintNow(); };
		for (let i = 0; i < 10; i++) {
			gpumem.zoom(i, gpumem.span - i);
			await new Promise(requestAnimationFrame);
		}
		return found;
	});
	assert.ok(paintings > 2, String(paintings));
	assert.ok(reads <= 40 + 4 * paintings, `${reads} in ${paintings} paintings`);
}));

test("a filter leaves what it names, in every number", { skip }, () => visit(training, {}, async (page) => {
	await page.keyboard.press("/");
	await page.keyboard.type("make_moments");
	await page.keyboard.press("Enter");
	await settle(page);
	const { peakBytes, lives } = await page.evaluate(() => gpumem.filtered);
	assert.equal(lives, 12);
	assert.equal(peakBytes, 168 * 2 ** 20);
	assert.match(await side(page), /168\.00 MiB/);
	await page.locator(".term button").click();
	await settle(page);
	assert.equal(await page.evaluate(() => gpumem.filtered), null);
	await page.keyboard.press("/");
	await page.keyboard.type("/load_w[a-z]+s/");
	await page.keyboard.press("Enter");
	await settle(page);
	assert.equal((await page.evaluate(() => gpumem.filtered)).lives, 12);
	await page.keyboard.press("Escape");	/* out of the field */
	await page.keyboard.press("Escape");
	await page.keyboard.press("/");
	await page.keyboard.type("nowhere at all");
	await page.keyboard.press("Enter");
	await settle(page);
	assert.match(await side(page), /0 B\s+nothing passes the filter/);
	await page.keyboard.press("Escape");
	await page.keyboard.press("Escape");
	await page.keyboard.press("/");
	await page.keyboard.type("/((/");
	await page.keyboard.press("Enter");
	await page.getByRole("alert").waitFor();
	assert.match(await page.getByRole("alert").innerText(), /regular expression/i);
}));

test("lines say what the driver gave and how much of it is idle, whatever a filter leaves", { skip }, () => visit(training, { hash: "mode=order&from=900&to=960" }, async (page) => {
	const { view, lines } = await page.evaluate(() => {
		const { picture } = gpumem.view;
		return { view: picture.view, lines: { reserved: Array.from(picture.lines.reserved), all: Array.from(picture.lines.all) } };
	});
	const wanted = model.strip(view.mode, view.from, view.to, view.width), idle = wanted.reserved.map((given, x) => given - wanted.all[x]);
	assert.deepEqual([lines.reserved, lines.all], [Array.from(wanted.reserved), Array.from(wanted.all)]);
	assert.ok(Math.max(...idle) > 2 ** 28 && Math.min(...idle) >= 0);
	/* Where it is level for some pixels, how many of them the canvas has at its height; and ten pixels from all lines. The
	 * canvas is copied, because it is read only once at full speed. */
	const painted = () => page.evaluate((values) => {
		const { view: at, view: { picture, top } } = gpumem, copy = document.createElement("canvas");
		[copy.width, copy.height] = [top.width, top.height];
		const c = copy.getContext("2d", { willReadFrequently: true });
		c.drawImage(top, 0, 0);
		const { data } = c.getImageData(0, 0, copy.width, copy.height), { from, to, width } = picture.view;
		const has = (x, y) => [-1, 0, 1].some((by) => data[4 * ((y + by) * copy.width + x) + 3] > 40);
		const found = { level: 0, line: 0, below: 0, keys: [] };
		for (let x = 4; x < width - 4; x++) {
			const y = Math.round(at.y(values[x])), px = Math.round(at.x(from + ((to - from) * x) / width));
			if (y < at.box.top + 30 || y > at.box.top + at.box.height - 30 || [-4, -2, 0, 2, 4].some((by) => values[x + by] !== values[x]))
				continue;
			found.level++;
			found.line += has(px, y) ? 1 : 0;
			found.below += has(px, y + 10) ? 1 : 0;
		}
		found.keys = [...document.querySelectorAll(".key")].filter((key) => !key.hidden).map((key) => key.textContent);
		return found;
	}, Array.from(idle));
	const { level, line, below, keys } = await painted();
	assert.ok(level > 200 && line > level * 0.4 && below < level * 0.1, `${line} of ${level}, ${below} below`);
	assert.deepEqual(keys, ["from the driver", "idle of it"]);
	await page.evaluate(() => gpumem.addTerm("/forward|moments/"));
	await settle(page);
	const now = await painted();
	assert.ok(now.level > 200 && now.line > now.level * 0.4 && now.below < now.level * 0.1, `with a filter ${now.line} of ${now.level}, ${now.below} below`);
	assert.deepEqual(now.keys, ["from the driver", "idle of it", "all that is live"]);
}));

test("the allocator: blocks where they lie, events that step, and why a request did not fit", { skip }, () => visit(pageOf("oom", run("oom-1")), { hash: "view=allocator" }, async (page) => {
	const { sums, moment } = await page.evaluate(() => ({ sums: gpumem.view.data.sums, moment: gpumem.moment }));
	assert.equal(moment, await page.evaluate(() => gpumem.source.focus), "it is the refused call");
	const [{ models: [refused] }] = await readPage(pageOf("oom", run("oom-1")));
	assert.equal(sums.live, refused.curve.values[moment]);
	await page.getByRole("button", { name: "‹ event" }).click();
	await settle(page);
	assert.equal((await state(page)).at, moment - 1);
	const box = await page.locator(".canvas .top").boundingBox();
	const [x, y, wanted] = await page.evaluate(() => {
		const { data, pieces } = gpumem.view;
		const one = pieces.find(({ segment, from }) => from === 0 && data.first[segment] < data.first[segment + 1] &&
			data.blockAddr[data.first[segment]] === data.addr[segment]);
		return [one.x + 1, one.y + 5, data.life[data.first[one.segment]]];
	});
	await page.mouse.click(box.x + x, box.y + y);
	await settle(page);
	assert.equal((await state(page)).life, wanted);
	await page.keyboard.press("Escape");
	await page.getByLabel("which events").selectOption("refused");
	await settle(page);
	await page.locator(".event.oom").first().click();
	await settle(page);
	const text = await page.locator(".refusal").innerText();
	assert.match(text, /was refused/);
	assert.match(text, /largest of/);
	assert.ok(await page.locator(".event.chosen").count() === 1);
}));

test("a list of a million rows reaches its end, and shows what the cursor is at", { skip }, () => visit(pageOf("list", large("list", "--events", "400000", "--frames", "500", "--stacks", "90")), { hash: "view=allocator&mode=order&at=399990" }, async (page) => {
	await page.locator(".event.chosen").waitFor();
	await page.locator(".events .vlist").press("End");
	await settle(page);
	await page.waitForFunction(() => gpumem.view.events.list.first > gpumem.view.events.list.count - 100);
	const last = await page.evaluate(() => gpumem.view.events.list.count);
	assert.ok(last > 250000, String(last));
	await page.locator(".event").last().waitFor();
}));

test("the address bar brings the same back", { skip }, () => visit(training, { hash: "mode=order&from=100&to=300&by=size&theme=dark&f=forward" }, async (page) => {
	const now = await state(page);
	assert.deepEqual([now.mode, now.from, now.to, now.by, now.terms], ["order", 100, 300, "size", ["forward"]]);
	assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
	assert.equal(await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme), "dark", "bars and menus, too");
	const { view } = await page.evaluate(() => ({ view: gpumem.view.picture.view }));
	assert.deepEqual([view.from, view.to, view.mode], [100, 300, "order"]);
}));

const NONSENSE = "mode=x&from=1e99&to=-5&at=1e9&life=99999999&by=nothing&doc=7&source=9&other=5&view=nope&f=zz&f=%3Cb%3E:x";

test("an address bar of nonsense shows the page all the same", { skip }, () => visit(training, { hash: NONSENSE }, async (page) => {
	assert.match(await side(page), /At the/);
}));

test("nor does nonsense that comes into it later", { skip }, () => visit(training, {}, async (page) => {
	for (const nonsense of ["view=unknown", "life=99999999", "by=nothing", "mode=x", "at=1e9", "source=9", "doc=7", "from=5&to=1", NONSENSE]) {
		await page.evaluate((hash) => { location.hash = hash; }, nonsense);
		await settle(page);
		assert.match(await side(page), /At the/, nonsense);
		const now = await state(page);
		assert.deepEqual([now.view, now.life, now.by, now.at, now.from, now.to], ["timeline", -1, "site", null, null, null], nonsense);
		assert.ok(["time", "order"].includes(now.mode), nonsense);
	}
	for (const tab of await page.locator(".tabs button").all()) {
		await tab.click();
		await settle(page);
	}
}));

test("a snapshot without a history shows what is live, and says so", { skip }, async () => {
	const still = runApp(["app_training", "--steps", "5", "--leak"], { GPUMEM_HISTORY: "0" })("exit"), { segments, devices: [{ memory_stats: stats }] } = JSON.parse(readFileSync(still, "utf8"));
	const live = stats["requested_bytes.all.current"], peak = stats["requested_bytes.all.peak"];
	assert.ok(live > 0 && peak > live);
	await visit(pageOf("still", still), {}, async (page) => {
		const says = (where, text) => page.locator(where).innerText().then((found) => assert.match(found, text));
		const open = async (hash) => {
			await page.evaluate((to) => { location.hash = to; }, hash);
			await settle(page);
			await says(".terms", /No history was recorded \(history=0\): .*when the snapshot was made.*At the peak/);
		};
		const note = () => page.evaluate(() => gpumem.view.note.textContent);
		assert.equal(await page.evaluate(() => gpumem.source.endBytes), live);
		await says(".side", /At the end\s+5\.00 MiB\s+live when the snapshot was made/);
		await open("view=allocator");
		await says(".events", /No history was recorded/);
		assert.equal(await page.evaluate(() => gpumem.view.data.sums.live), live);
		assert.equal(await page.evaluate(() => gpumem.view.data.sums.segments), segments.length);
		await open("view=flame");
		await says(".tools >> nth=0", /5\.00 MiB/);
		await open("view=tables");
		assert.match(await note(), /5\.00 MiB at the cursor, 398\.49 MiB at the peak/);
		await open("view=tables&table=leaks");
		assert.match(await note(), /5 allocations, 5\.00 MiB/);
		await open("view=tables&table=segments");
		assert.match(await note(), new RegExp(`${segments.length} segments at the cursor`));
		await open("view=summary");
		await says(".stage >> nth=0", /5\.00 MiB/);
		await open("view=timeline&at=peak");
		await says(".side", /At the peak\s+398\.49 MiB\s+live at a moment that the history does not show/);
	});
});

test("without history, segments and allocations, a device is known by its peak; a snapshot of nothing is refused", { skip }, async () => {
	const gone = runApp(["app_training", "--steps", "5"], { GPUMEM_HISTORY: "0", GPUMEM_ALLOCATOR: "native" })("exit"), snapshot = JSON.parse(readFileSync(gone, "utf8"));
	assert.deepEqual([snapshot.segments, snapshot.device_traces[0].action], [[], []]);
	assert.deepEqual(fileDocument(readFileSync(gone), "gone").sources.map(({ name }) => name), ["GPU 0"]);
	await visit(pageOf("gone", gone), {}, async (page) => {
		assert.match(await side(page), /At the peak\s+395\.49 MiB[^]*make_moments/);
		assert.match(await page.locator(".terms").innerText(), /No history was recorded \(history=0\), and nothing was live when the snapshot was made/);
		for (const view of await page.locator(".tabs button").all()) {
			await view.click();
			await settle(page);
		}
		await page.evaluate(() => { location.hash = "view=tables&table=segments"; });
		await settle(page);
		assert.match(await page.locator(".table").innerText(), /Nothing was live or reserved/);
	});
	const empty = join(room, "empty.json");
	for (const one of [...snapshot.devices, snapshot.host])
		one.memory_stats = {};
	writeFileSync(empty, JSON.stringify(snapshot));
	const { page, errors, close } = await openPage(browser, pageOf("empty", empty), { wait: false });
	await page.getByRole("alert").waitFor();
	assert.match(await page.getByRole("alert").innerText(), /empty\.json: nothing is in it/);
	assert.match(await page.locator("body").innerText(), /Drop a snapshot here/);
	assert.deepEqual(errors, []);
	await close();
});

test("both snapshots of a page can be chosen", { skip }, () => visit(pageOf("two", run("exit"), join(DATA, "torch-snapshot.pickle")), {}, async (page) => {
	await page.waitForFunction(() => gpumem.docs.filter(Boolean).length === 2);
	await page.getByLabel("snapshot").selectOption("1");
	await settle(page);
	assert.equal((await state(page)).doc, 1);
	await page.keyboard.press("p");
	await settle(page);
	assert.match(await side(page), /122\.03 MiB/);
}));

test("nothing of a snapshot is executed or asked for", { skip }, async () => {
	const evil = "</script><script>globalThis.hit=1</script><img src=x onerror='globalThis.hit=1'><!--<script>";
	const snapshot = JSON.parse(readFileSync(run("exit"), "utf8"));
	for (const frame of snapshot.frames)
		Object.assign(frame, { name: `${frame.name}${evil}`, filename: `https://example.org/${evil}`, line: 3 });
	for (const module of snapshot.modules)
		module.path = `/lib/${evil}`;
	snapshot.process.command = snapshot.process.command_line = snapshot.process.host = snapshot.reason = evil;
	snapshot.annotations = [{ name: evil, stage: "START", domain: evil, range: 0, device: 0,
		time_us: snapshot.device_traces[0].time_us[5], thread: snapshot.device_traces[0].thread[5] }];
	const path = join(room, "evil.json");
	writeFileSync(path, JSON.stringify(snapshot));
	await visit(pageOf("evil", path), {}, async (page) => {
		const box = await page.locator(".canvas .top").boundingBox();
		for (const by of ["site", "module", "phase", "stack"]) {
			await page.evaluate((way) => gpumem.set({ by: way }), by);
			await settle(page);
		}
		await page.mouse.click(box.x + box.width * 0.5, box.y + box.height - 60);
		await settle(page);
		await page.locator(".stack li").first().click();
		await settle(page);
		assert.ok((await side(page)).includes("<img src=x"), "the text is shown as text");
		assert.equal(await page.evaluate(() => globalThis.hit), undefined);
		assert.equal(await page.locator("img").count(), 0);
	});
});

test("a policy in the page forbids every request", { skip }, () => visit(training, {}, async (page) => {
	/* The browser reports each refusal as an error on the console, which is what is looked for here alone. */
	const refused = await page.evaluate(async () => {
		const found = [];
		const told = new Promise((done) => {
			document.addEventListener("securitypolicyviolation", (event) => done(found.push(event.effectiveDirective)));
			setTimeout(done, 60000);
		});
		const script = document.createElement("script");
		script.textContent = "globalThis.hit = 1";
		document.body.append(script);
		await told;
		return { found, hit: globalThis.hit, policy: document.querySelector("meta[http-equiv]").content };
	});
	assert.equal(refused.hit, undefined);
	assert.ok(refused.found.length > 0);
	assert.match(refused.policy, /default-src 'none'/);
	assert.doesNotMatch(refused.policy, /connect-src|https?:|(?<!'wasm-)unsafe/);
}).catch((error) => { if (!/errors on the console/.test(error.message)) throw error; }));

test("many events: the picture is there, and it moves", { skip }, () => {
	const path = pageOf("many", large("many", "--events", "200000", "--frames", "2000", "--stacks", "800"));
	return visit(path, {}, async (page) => {
		console.log("# " + `first picture after ${Math.round(await page.evaluate(() => gpumem.firstPicture))} ms`);
		for (const key of ["+", "+", "ArrowRight", "-", "p"])
			await page.keyboard.press(key);
		await settle(page);
		const [view, window] = await page.evaluate(() => [gpumem.view.picture.view, gpumem.window]);
		assert.deepEqual([view.from, view.to], [window.from, window.to]);
	});
});
