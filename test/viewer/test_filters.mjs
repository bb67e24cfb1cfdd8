/*
 * What the user looks for: filters that can be seen and taken away, against a model that only looks at every allocation;
 * what a page opens with; the list of events.
 */
// timeout: 600
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { gunzipSync } from "node:zlib";
import { matchOf, parseTerm } from "../../tools/viewer/src/model/filter.js";
import { bytes } from "../../tools/viewer/src/ui/format.js";
import { launch, missing, openPage, settle } from "./browser.mjs";
import { DATA, gpumem, lateOf, pageOf, readPage, room, runApp, runPools } from "./documents.mjs";

const skip = missing || false;
const browser = missing ? null : await launch();
after(() => browser?.close());
const VIEWS = ["timeline", "allocator", "flame", "tables", "summary", "compare"];
const unpacked = (name) => {
	const path = join(room, `${name}.json`);
	writeFileSync(path, gunzipSync(readFileSync(join(DATA, `${name}.json.gz`))));
	return path;
};
const run = runApp(["app_training", "--steps", "30", "--leak", "--oom"]);
const training = pageOf("training", run("exit"));
const [{ models: [model] }] = await readPage(training);

const visit = async (path, options, use) => {
	const opened = await openPage(browser, path, { wait: false, ...options });
	await opened.page.waitForFunction(() => globalThis.gpumem?.head);
	await settle(opened.page);
	await use(opened.page);
	assert.deepEqual([opened.errors, opened.requests], [[], []]);
	await opened.close();
};
const add = async (page, term) => {
	await page.getByLabel("filter", { exact: true }).fill(term);
	await page.getByLabel("filter", { exact: true }).press("Enter");
	await page.getByLabel("filter", { exact: true }).blur();
	await settle(page);
};

test("each kind of term leaves what it says", () => {
	const { lives, count, all, stacks, doc } = model, site = (l) => stacks.siteText(lives.stack[l]), alive = (l, s) => lives.born[l] < s && s <= lives.died[l];
	const addr = lives.addr[7], generation = (l) => [...Array(l).keys()].filter((k) => lives.addr[k] === lives.addr[l]).length;
	const late = [...Array(lives.count).keys()].find((l) => generation(l) === 2), hex = (value) => value.toString(16);
	const middle = model.axis.place("time", count >> 1);
	const wanted = {
		"size>1MiB": (l) => lives.size[l] > 2 ** 20, "size<=3MiB": (l) => lives.size[l] <= 3 * 2 ** 20, [`size=${lives.size[0]}`]: (l) => lives.size[l] === lives.size[0],
		"-size>1MiB": (l) => lives.size[l] <= 2 ** 20, "alive@peak": (l) => alive(l, all.peak), "-alive@peak": (l) => !alive(l, all.peak), "alive@end": (l) => alive(l, count),
		"alive@#100..#200": (l) => alive(l, 100) && alive(l, 200), [`alive@${middle}us`]: (l) => alive(l, model.axis.state("time", middle)),
		"site:moments": (l) => /moments/.test(site(l)), "-site:/load|moments/": (l) => !/load|moments/.test(site(l)), "kind=device": (l) => doc.texts[lives.kind[l]] === "device",
		"stream:0": () => true, "stream:nowhere": () => false, "frame=forward": (l) => stacks.list(lives.stack[l]).some((f) => stacks.name(f) === "forward"),
		'"forward"': (l) => stacks.list(lives.stack[l]).some((f) => stacks.label(f).includes("forward")),
		[`0x${hex(addr)}`]: (l) => lives.addr[l] <= addr && addr < lives.addr[l] + lives.size[l], [hex(addr)]: (l) => lives.addr[l] <= addr && addr < lives.addr[l] + lives.size[l],
		[`b${hex(lives.addr[late])}_2`]: (l) => l === late,
	};
	for (const [term, passes] of Object.entries(wanted)) {
		const found = Array.from(matchOf(model, [term])), right = found.map((_, l) => passes(l) ? 1 : 0);
		assert.deepEqual(found, right, term);
		assert.ok(term === "stream:nowhere" || right.includes(1), `${term} leaves something`);
	}
	const [one, two] = [...new Set(Array.from(lives.stack, (id) => stacks.siteText(id)))];
	assert.deepEqual(matchOf(model, [`site=${one}`, `site=${two}`, "size>4KiB"]), Uint8Array.from(lives.size, (size, l) => [one, two].includes(site(l)) && size > 4096 ? 1 : 0));
	for (const bad of ["size>much", "alive@never", "/((/", ""])
		assert.throws(() => parseTerm(bad), bad);
});

test("filters are at the head of every view, and each can be taken away", { skip }, () => visit(training, {}, async (page) => {
	for (const term of ["-site:moments", "size>1MiB", "alive@peak"])
		await add(page, term);
	for (const view of VIEWS) {
		await page.locator(`[data-view=${view}]`).click();
		await settle(page);
		assert.deepEqual(await page.locator(".term > span").allInnerTexts(), ["-site:moments", "size>1MiB", "alive@peak"], view);
	}
	const match = matchOf(model, ["-site:moments", "size>1MiB", "alive@peak"]);
	assert.equal(await page.evaluate(() => gpumem.filtered.lives), match.reduce((sum, one) => sum + one));
	await page.locator(".term", { hasText: "size>1MiB" }).getByRole("button").click();
	await settle(page);
	assert.deepEqual(await page.evaluate(() => gpumem.state.terms), ["-site:moments", "alive@peak"]);
	await page.evaluate(() => gpumem.zoom(gpumem.span * 0.2, gpumem.span * 0.4));
	await settle(page);
	assert.equal(await page.locator(".term").count(), 3, "the window is one, too");
	await page.locator(".term").last().getByRole("button").click();
	assert.equal(await page.evaluate(() => gpumem.state.from), null);
}));

test("a click on a row never empties the table that it stands in", { skip }, () => visit(training, { hash: "view=tables" }, async (page) => {
	for (const name of ["Call sites", "Stacks", "Modules", "Streams", "Sizes", "Kinds", "Threads", "Phases", "Churn"]) {
		await page.evaluate(() => gpumem.set({ terms: [], life: -1 }));
		await page.locator(".subtabs button", { hasText: name }).click();
		await settle(page);
		const title = await page.locator(".table .vlist-row").last().getAttribute("title");
		await page.locator(".table .vlist-row").last().click();
		await settle(page);
		assert.deepEqual([await page.locator(".table .vlist-row").count(), await page.locator(".table .vlist-row").first().getAttribute("title"), await page.locator(".term").count()], [1, title, 1], name);
	}
	/* The legend has all groups of the window: a second one is shown beside the first. */
	await page.evaluate(() => gpumem.set({ terms: [], by: "site", view: "timeline", life: -1 }));
	await settle(page);
	const sites = await page.evaluate(() => gpumem.source.lives);
	for (const at of [0, 1]) {
		await page.locator(".bars li").nth(0).click();
		await settle(page);
		await page.evaluate((k) => k === 0 && gpumem.addTerm(`site=${[...document.querySelectorAll(".bars li")].length ? "main (app_training.c:119)" : ""}`), at);
		await settle(page);
	}
	const left = await page.evaluate(() => gpumem.filtered.lives);
	assert.ok(left > 0 && left < sites, `${left} of ${sites}`);
}));

test("what is no filter is said so, until the next success", { skip }, () => visit(training, {}, async (page) => {
	for (const bad of ["/((/", "size>much", "alive@yesterday", "device:7"]) {
		await add(page, bad);
		assert.equal(await page.getByRole("alert").count(), 1, bad);
		assert.equal(await page.getByLabel("filter", { exact: true }).inputValue(), bad, "it can be put right");
	}
	await add(page, "forward");
	assert.equal(await page.getByRole("alert").count(), 0);
	await page.evaluate(() => gpumem.set({ terms: [] }));
	for (const [label, view] of [["search in the table", "tables"], ["search in the flame graph", "flame"]]) {
		await page.locator(`[data-view=${view}]`).click();
		await page.getByLabel(label).fill("/((/");
		await settle(page);
		assert.match(await page.locator(".tools .soft").last().innerText(), /regular expression/i);
		await page.getByLabel(label).fill("main");
		await settle(page);
		assert.doesNotMatch(await page.locator(".tools .soft").last().innerText(), /regular expression/i);
	}
}));

test("device:1 goes to that device", { skip }, () => visit(pageOf("multi", runApp(["app_multidev.static"])("exit")), { hash: "source=0" }, async (page) => {
	await add(page, "device:1");
	assert.equal(await page.evaluate(() => gpumem.source.device), 1);
}));

test("an out-of-memory opens at the refused call in every view, with what was asked for drawn above the limit", { skip }, () => visit(pageOf("oom", unpacked("torch-oom")), {}, async (page) => {
	const { failure } = JSON.parse(readFileSync(join(room, "torch-oom.json"))), { explanation } = JSON.parse(gpumem("summary", "--json", join(room, "torch-oom.json")));
	const [{ models: [oom] }] = await readPage(pageOf("oom", join(room, "torch-oom.json")));
	assert.ok(Math.abs(oom.source.events.time[oom.failed - 1] - failure.time_us) < 5000);
	assert.equal(await page.evaluate(() => gpumem.moment), oom.failed);
	const side = await page.locator(".side").innerText();
	assert.ok(side.includes("When memory ran out") && side.includes(explanation.why), side);
	const red = await page.evaluate(() => {
		const { view } = gpumem, { ghost } = view.marks, x = view.x(gpumem.place(ghost.state)) - 20, y = view.y(ghost.base + ghost.bytes / 2);
		const [r, g, b, a] = view.top.getContext("2d").getImageData(x, y, 1, 1).data;
		return { asked: ghost.bytes, upper: ghost.base + ghost.bytes, limit: view.limit(), high: view.high, red: a > 10 && r > g + 20 && r > b + 20 };
	});
	assert.deepEqual([red.asked, red.red, red.upper > red.limit, red.high > red.upper], [failure.requested_bytes, true, true, true]);
	for (const [view, found] of [["allocator", "was refused"], ["summary", explanation.why]]) {
		await page.locator(`[data-view=${view}]`).click();
		await settle(page);
		assert.ok((await page.locator("main").innerText()).includes(found), view);
	}
	const short = "Memory ran out. 31.25 GiB was refused: more than was free.";
	for (const view of VIEWS) {
		await page.locator(`[data-view=${view}]`).click();
		await settle(page);
		const full = ["tables", "summary", "compare"].includes(view);		/* which have no side */
		assert.equal(await page.locator(".ran-out").innerText(), full ? `Memory ran out. ${explanation.why}` : short, view);
		if (!full)
			assert.ok((await page.locator(".side").innerText()).includes(explanation.why), view);
	}
	await page.locator(".ran-out").click();
	assert.equal(await page.evaluate(() => gpumem.state.view), "summary");
	for (const view of ["flame", "tables"]) {
		await page.locator(`[data-view=${view}]`).click();
		await settle(page);
		assert.equal(await page.evaluate(() => gpumem.view.data?.total ?? gpumem.view.sums.live), oom.curve.values[oom.failed], view);
	}
	await page.keyboard.press("p");
	await settle(page);
	assert.equal(await page.evaluate(() => gpumem.moment), oom.curve.peak);
	assert.equal(await page.locator(".ran-out").count(), 0, "at the peak nothing was refused");
	/* A file that is dropped has no explanation. */
	for (const [changes, reason] of [[{}, "more than was free"], [{ cached_bytes: 2 ** 50 }, "enough was idle, in pieces too small"], [{ refused_by: "device_limit" }, "by device_limit"]]) {
		const dropped = JSON.parse(readFileSync(join(room, "torch-oom.json")));
		Object.assign(dropped.failure, changes);
		await page.evaluate(async (text) => {
			const doc = await gpumem.asker.ask("openFile", { name: "dropped.json", file: new Blob([text]) });
			await gpumem.add(doc);
			gpumem.set({ doc: doc.number, source: -1 });
		}, JSON.stringify(dropped));
		await settle(page);
		assert.equal(await page.locator(".ran-out").innerText(), `Memory ran out. 31.25 GiB was refused: ${reason}.`);
	}
}));

test("a block has one name everywhere, and is found by it and by its address", { skip }, () => visit(training, { hash: "view=tables&table=longest&mode=order" }, async (page) => {
	const { lives } = model, hex = (value) => value.toString(16), before = (l) => lives.addr.subarray(0, l).filter((addr) => addr === lives.addr[l]).length;
	const l = [...Array(lives.count).keys()].find((k) => before(k) === 2 && lives.size[k] > 2 ** 20 && lives.died[k] - lives.born[k] > 8), name = `b${hex(lives.addr[l])}_2`;
	const search = page.getByLabel("search in the table"), rows = page.locator(".table .vlist-row"), found = async (text) => {
		await search.fill(text);
		await settle(page);
		return page.evaluate(() => gpumem.view.list.count);
	};
	const there = lives.addr.filter((addr) => addr === lives.addr[l]).length;
	assert.deepEqual([await found(hex(lives.addr[l])), await found(`0x${hex(lives.addr[l])}`), await found(`b${hex(lives.addr[l])}_`), await found(name)], [there, there, there, 1]);
	assert.match(await rows.first().innerText(), new RegExp(name), "tables");
	await rows.first().click();
	await settle(page);
	assert.equal(await page.evaluate(() => gpumem.state.life), l);
	assert.match(await page.locator(".side").innerText(), new RegExp(`block\\s+${name}\\s`), "details");
	for (const table of ["Call sites", "Stacks", "Sizes"]) {
		await page.locator(".subtabs button", { hasText: table }).click();
		await settle(page);
		assert.deepEqual(await rows.count(), 1, table);
	}
	await page.evaluate((at) => gpumem.set({ view: "allocator", at, find: "", life: -1 }), lives.born[l] + 1);
	await settle(page);
	assert.equal(await page.locator(".event.chosen code").innerText(), name, "events");
	const over = async ([x, y]) => {
		const box = await page.locator(".canvas .top").boundingBox();
		await page.mouse.move(box.x + x, box.y + y);
		await page.mouse.move(box.x + x, box.y + y + 1);
		await settle(page);
		return page.locator(".tip").filter({ visible: true }).innerText();
	};
	assert.match(await over(await page.evaluate((life) => {
		const { data, pieces, scale } = gpumem.view, b = data.life.indexOf(life), segment = data.first.findIndex((first, s) => first <= b && b < data.first[s + 1]);
		const at = data.blockAddr[b] - data.addr[segment], one = pieces.find((piece) => piece.segment === segment && piece.from <= at && at < piece.to);
		return [one.x + (at - one.from) * scale + 1, one.y + 6];
	}, l)), new RegExp(name), "allocator");
	await page.evaluate(([from, to]) => gpumem.set({ view: "timeline", from, to }), [lives.born[l] - 2, lives.died[l] + 2]);
	await settle(page);
	assert.match(await over(await page.evaluate((life) => {
		const { view, view: { picture: { ids, view: { width, height, low, high, from, to } } } } = gpumem, all = [...ids.keys()].filter((i) => ids[i] === life), i = all[all.length >> 1];
		return [view.x(from + ((i % width) / width) * (to - from)), view.y(high - (Math.floor(i / width) / height) * (high - low))];
	}, l)), new RegExp(name), "timeline");
}));

/* A snapshot @name of @made's program as if it had died: with an address @into bytes into its largest block, in the thread that tells most. */
const crashed = (name, made, into, changes) => {
	const crash = JSON.parse(readFileSync(made, "utf8")), path = join(room, `${name}.json`), threads = (crash.pools ?? []).map(({ trace }) => trace.thread[0]);
	const blocks = [...crash.segments, ...(crash.pools ?? []).flatMap(({ segments }) => segments)].flatMap(({ blocks: list }) => list).filter(({ state }) => state !== "inactive");
	const { address } = (crash.pools?.length ? crash.pools[0].segments.flatMap(({ blocks: list }) => list) : blocks).reduce((a, b) => b.requested_size > a.requested_size ? b : a);
	const stack = crash.stacks.findIndex((frames) => frames.length > 2);
	crash.failure = { type: "crash", signal: 11, signal_name: "SIGSEGV", code: 1, address: address + into, thread: threads[0] ?? crash.process.pid, time_us: crash.time_us, stack, pcs: [], registers: {}, holders: [], ...changes };
	writeFileSync(path, JSON.stringify(crash));
	return path;
};
/* What the command says of it, as words. */
const saysOf = (path, ...words) => gpumem("summary", ...words, path).split("\n\n")[0].split("\n").slice(2).map((line) => line.trim().replace(/ +/g, " "));
const wordsOf = (text) => text.replace(/\s+/g, " ");

test("a crash opens with the thread that died, in the words of gpumem summary", { skip }, async () => {
	const pools = runPools("kept = both_levels(0, 400)\nsnapshot()")("api-1");
	for (const [name, made, into, changes] of [["driver", run("exit"), 100], ["before", run("exit"), -8], ["nowhere", run("exit"), 2 ** 45], ["pools", pools, 5], ["aborted", pools, 0, { signal_name: "SIGABRT", address: null, sender_pid: 77 }]]) {
		const path = crashed(name, made, into, changes), says = saysOf(path, "--full"), at = says.indexOf("the last events of that thread");
		assert.ok(at >= 3 && says.length === at + 11, says.join("\n"));
		await visit(pageOf(name, path), {}, async (page) => {
			assert.equal(await page.evaluate(() => gpumem.state.view), "summary");
			const card = page.locator(".card").first(), title = wordsOf(await card.locator("h2").innerText());
			assert.equal(title, `The program ${says[0]}`);
			assert.equal(await card.locator(".because").count(), changes ? 0 : 1);
			let stackAt = 1;
			if (!changes) {
				const [place, block] = wordsOf(await card.locator(".because").innerText()).split(", b");
				let told = says[stackAt++];
				while (told.length < place.length)		/* the command breaks lines at 80 columns */
					told += ` ${says[stackAt++]}`;
				assert.equal(place, told);
				assert.equal(block?.replace(/_\d+$/, ""), /^in no/.test(place) ? undefined : (JSON.parse(readFileSync(path, "utf8")).failure.address - into).toString(16), "the block has its name");
			}
			const frames = await card.locator(".stack li").evaluateAll((list) => list.map((row) => [row.querySelector("code").textContent, row.querySelector(".where").textContent]));
			const wanted = says.slice(stackAt, at).filter((line) => !/^\.\.\. /.test(line));
			const shown = frames.map(([what, where]) => where && !what.startsWith(where) ? `${what} (${where})` : what);
			assert.deepEqual(shown.slice(0, wanted.length), wanted.slice(0, shown.length));
			const short = saysOf(path), most = short.indexOf("the last events of that thread") - stackAt - 2;
			assert.ok(most > 0 && shown.length >= Math.min(most, wanted.length), `${name}: as many frames as the short text has`);
			const events = await card.locator("tr").evaluateAll((list) => list.map((row) => [...row.cells].map((cell) => cell.textContent)));
			const cut = ([when, action, size, addr, site]) => [when, action, size, addr.replace(/^b([0-9a-f]+)_\d+$/, "0x$1").replace("0x0", "0"), site].join(" ").trim();
			assert.ok(events.some(([, , , block]) => /^b[0-9a-f]+_\d+$/.test(block)), name);
			assert.deepEqual(events.map(cut), says.slice(at + 1), name);
			const dropped = await page.evaluate(async (text) => (await gpumem.asker.ask("openFile", { name: "x", file: new Blob([text]) })).crash, readFileSync(path, "utf8"));
			const known = await page.evaluate(() => gpumem.doc.crash), bare = ({ what, place, events: list }) => [what, place.replace(/ that .*/, ""), list.map(({ site, ...event }) => event)];
			assert.deepEqual(bare(dropped), bare(known), "a file that is dropped says the same");
			assert.ok(dropped.stack.length, "but for lines and inlined functions, which only the command knows");
			await page.locator("[data-view=timeline]").click();
			await settle(page);
			assert.equal(wordsOf(await page.locator(".side .crash h2").innerText()), title);
		});
	}
	await visit(pageOf("ended", crashed("ended", run("exit"), 0, { signal_name: "SIGTERM", code: 0, address: null, sender_pid: 5 })), {}, async (page) => {
		assert.equal(await page.evaluate(() => gpumem.state.view), "timeline", "who was asked to end did not crash");
		assert.equal(await page.locator(".side .card").innerText(), "The program was ended by SIGTERM, sent by process 5");
	});
});

test("a history that begins late says so at the head of each view", { skip }, async () => {
	const path = run("exit"), late = JSON.parse(readFileSync(path, "utf8")), lost = join(room, "late.json"), said = "1,234 older events are lost; the peak came after them.";
	for (const trace of late.device_traces)
		trace.dropped = 1234;
	writeFileSync(lost, JSON.stringify(late));
	for (const [page, has] of [[pageOf("late", lost), true], [training, false]])
		await visit(page, {}, async (at) => {
			for (const view of VIEWS.filter((one) => one !== "summary" && one !== "compare")) {
				await at.locator(`[data-view=${view}]`).click();
				await settle(at);
				assert.equal((await at.locator(".terms").first().innerText()).includes(said), has, view);
			}
		});
});

test("a peak from before the history is what the page opens with, and every view says what is known of it", { skip }, async () => {
	const late = lateOf(run("exit")), rows = JSON.parse(gpumem("summary", "--json", "--level", "driver", late)).by_site.filter((row) => row.peak_bytes);
	const peak = bytes(rows.reduce((sum, row) => sum + row.peak_bytes, 0));
	await visit(pageOf("late", late), {}, async (page) => {
		const side = page.locator(".side"), bars = () => page.locator(".bars li").evaluateAll((list) => list.map((row) => [row.querySelector(".what").textContent, row.querySelector(".much").textContent].join(" ")));
		assert.equal(await page.evaluate(() => gpumem.state.view), "timeline");
		assert.equal(await side.locator("h2").first().innerText(), "At the peak");
		assert.equal(await side.locator(".big").innerText(), peak);
		assert.match(await side.innerText(), /before the first event of the history/);
		assert.deepEqual(await bars(), rows.sort((a, b) => b.peak_bytes - a.peak_bytes).map((row) => `${row.site} ${bytes(row.peak_bytes)}`));
		assert.match(await page.locator(".terms").first().innerText(), /older events are lost, and with them the peak: who held it was counted/);
		assert.ok((await page.getByLabel("device or pool").locator("option").allInnerTexts()).some((text) => text.endsWith(`peak ${peak}`)));
		for (const [view, pattern] of [["allocator", /The peak of .* was .* before the history/], ["flame", new RegExp(peak)], ["tables", new RegExp(`${peak} at the cursor, ${peak} at the peak`)]]) {
			await page.locator(`[data-view=${view}]`).click();
			await settle(page);
			assert.match(await page.locator("main").innerText(), pattern, view);
		}
		await page.locator("[data-view=timeline]").click();
		await page.locator(".bars li").first().click();
		await settle(page);
		assert.equal(await side.locator(".big").innerText(), bytes(rows[0].peak_bytes), "a click on a call site keeps the moment");
		await page.getByLabel("filter").fill("size>1MiB");
		await page.keyboard.press("Enter");
		await settle(page);
		assert.match(await page.locator(".terms").first().innerText(), /what the filter leaves of it is not known/);
		await page.evaluate(() => gpumem.set({ terms: [], at: 5 }));
		await settle(page);
		assert.equal(await side.locator("h2").first().innerText(), "At the cursor");
	});
});

test("a free is one row of the list, with its block, stream and size", { skip }, () => visit(training, { hash: "view=allocator&at=200" }, async (page) => {
	const { lives, source: { events }, count } = model, hidden = Array.from({ length: count }, (_, i) => i).filter((i) => {
		const l = lives.about[i];
		return l >= 0 && lives.died[l] === i && lives.freed[l] < i;
	});
	assert.ok(hidden.length > 50);
	assert.equal(await page.evaluate(() => gpumem.view.events.list.count), count - hidden.length);
	const text = await page.locator(".event.chosen").innerText(), row = Number(await page.evaluate(() => gpumem.moment)) - 1;
	assert.ok(text.includes(`b${events.addr[hidden.includes(row) ? row - 1 : row].toString(16)}_`) && /stream/.test(text) && /[KM]iB/.test(text), text);
	await page.getByLabel("which events").selectOption("raw");
	await settle(page);
	assert.equal(await page.evaluate(() => gpumem.view.events.list.count), count);
}));

test("stacks of one call site are told apart by the first frame that others have not", async () => {
	const [{ models: [torch] }] = await readPage(pageOf("oom", join(room, "torch-oom.json"))), { labels, names } = torch.grouped("stack");
	const shown = labels.map((label, g) => [label, names[g].replace(/ #[0-9a-f]{8}$/, "")]);
	assert.ok(shown.filter(([label]) => / ← /.test(label)).length > 20);
	assert.ok(new Set(labels).size > labels.length * 0.9, `${new Set(labels).size} of ${labels.length}`);
});
