/*
 * One truth: after every control of every view, its own view and two others show what a fresh page of the same address
 * shows; and the browser's Back and Forward go through what was looked at.
 */
// timeout: 900
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { launch, missing, openPage, settle } from "./browser.mjs";
import { pageOf, runApp, runPools } from "./documents.mjs";

const skip = missing || false;
const browser = missing ? null : await launch();
after(() => browser?.close());

const VIEWS = ["timeline", "allocator", "flame", "tables", "summary", "compare"];
const pools = runPools(`
torch = Torch(limit=1 << 30)
torch.storm(3, 60, 3)
mine = pool("mine")
base = malloc(1 << 20)
for at in range(4):
    given(mine, base + at * 65536, 40000, 77)
taken(mine, base + 65536)
snapshot()
`)("api-1");
const path = pageOf("two", runApp(["app_training", "--steps", "6", "--leak"])("exit"), pools);

/* All that a view shows: its texts, what its controls say, and its pictures. Lists are looked at from their beginning. */
const shown = async (page, view) => {
	await page.evaluate((name) => document.querySelector(`[data-view=${name}]`).click(), view);	/* the controls are clicked by the mouse */
	await page.mouse.move(2, 2);
	await settle(page);
	const moved = await page.evaluate(() => {
		const lists = [gpumem.view.list, gpumem.view.events?.list].filter((list) => list && (list.first || list.element.scrollTop));
		const places = [...document.querySelectorAll(".fill, .side, .sheet")].filter((one) => one.scrollTop);
		lists.forEach((list) => list.moveTo(0));
		places.forEach((one) => { one.scrollTop = 0; });
		return lists.length + places.length > 0;
	});
	if (moved)
		await settle(page);
	return page.evaluate(() => {
		const visible = (one) => one.getClientRects().length > 0, all = (selector) => [...document.querySelectorAll(selector)].filter(visible);
		const hashOf = (canvas) => {
			const copy = document.createElement("canvas"), { data } = (copy.width = canvas.width, copy.height = canvas.height,
				copy.getContext("2d", { willReadFrequently: true }).drawImage(canvas, 0, 0), copy.getContext("2d").getImageData(0, 0, canvas.width || 1, canvas.height || 1));
			let hash = 7;
			for (const pixel of new Uint32Array(data.buffer))
				hash = Math.imul(hash ^ pixel, 0x01000193);
			return `${canvas.width}x${canvas.height} ${hash}`;
		};
		return {
			stage: document.querySelector("main").innerText, side: all(".side").map((one) => one.innerText).join(), chips: all(".terms").map((one) => one.innerText).join(),
			controls: all("select, input").map((one) => `${one.getAttribute("aria-label")} ${one.value}`).join("; "),
			pressed: all("[aria-pressed=true], [aria-selected=true]").map((one) => one.innerText).join("; "),
			canvases: all("canvas").map(hashOf).join("; "), theme: document.documentElement.dataset.theme,
		};
	});
};

const button = (name) => (page) => page.locator(".stage").getByRole("button", { name, exact: true }).first().click();
const choose = (label, value) => (page) => page.getByLabel(label).selectOption(value);
const first = (selector) => (page) => page.locator(selector).first().click();
const tab = (text) => (page) => page.locator(".subtabs button", { hasText: text }).click();
const press = (...names) => async (page) => {
	for (const name of names)
		await page.keyboard.press(name);
};
const type = (label, text) => async (page) => {
	await page.getByLabel(label).fill(text);
	await page.getByLabel(label).press("Enter");
	await page.getByLabel(label).blur();
};
/* The mouse on @selector, at shares of it. */
const mouse = (selector, does) => async (page) => {
	const box = await page.locator(selector).first().boundingBox();
	await does(page.mouse, (x, y) => [box.x + box.width * x, box.y + box.height * y]);
};
const drag = (selector, from, to) => mouse(selector, async (pointer, at) => {
	await pointer.move(...at(...from));
	await pointer.down();
	await pointer.move(...at(...to), { steps: 3 });
	await pointer.up();
});
/* On a busy machine a quarter of a second can pass between two turns: then each is a step of Back. */
const wheel = (selector, by, turns = 2) => mouse(selector, async (pointer, at) => {
	await pointer.move(...at(0.5, 0.5));
	for (let k = 0; k < turns; k++)
		await pointer.wheel(0, by);
});
const click = (selector, x, y, options) => mouse(selector, (pointer, at) => pointer.click(...at(x, y), options));
const flame = (options) => async (page) => {
	const box = await page.locator(".flames").boundingBox();
	const [x, y] = await page.evaluate(() => {
		const { view } = gpumem, n = Math.max(view.data.depth.lastIndexOf(2), view.data.depth.indexOf(1));
		return [view.x(view.data.begin[n] + view.data.weight[n] / 2), view.data.depth[n] * 20 + 12];
	});
	await page.mouse.click(box.x + x, box.y + y, options);
};

/* By view: [what it is, what it does]. */
const CONTROLS = {
	timeline: [
		["colour", choose("colour by", "size")], ["axis", button("time")], ["axis back", button("events")], ["peak", button("Peak")], ["zoom", wheel(".canvas .top", -200)],
		["pan", async (page) => { await wheel(".canvas .top", -300)(page); await drag(".canvas .top", [0.5, 0.5], [0.4, 0.5])(page); }],
		["pin", click(".canvas .top", 0.5, 0.93)], ["legend", first(".legend .chip")], ["all", button("All")],
		["strip", drag(".strip", [0.3, 0.5], [0.6, 0.5])], ["cursor", click(".strip", 0.4, 0.5)], ["step", press("]", "]")], ["step back", press("[")],
		["filter", type("filter", "forward")], ["bytes", press("Shift+ArrowUp", "ArrowUp")], ["what changes", button("What changes")], ["theme", press("Shift+D")], ["side", first(".bars li")], ["key of the axis", press("t")],
	],
	allocator: [
		["order", button("address")], ["most free", button("free")], ["events", choose("which events", "segments")], ["next event", button("event ›")], ["closer", wheel(".canvas .top", -200)], ["colour", choose("colour by", "kind")],
		["row", async (page) => { await page.locator(".event").nth(3).click(); }], ["block", click(".canvas .top", 0.1, 0.05)],
	],
	flame: [
		["weight", button("allocated")], ["number", button("count")], ["search", type("search in the flame graph", "main")], ["closer", flame()],
		["filter", flame({ clickCount: 2 })], ["all", button("All")],
		["all frames", (page) => page.getByLabel("user code first").click()], ["upside down", button("Who allocates")], ["beside another", button("Difference")],
	],
	tables: [
		["modules", tab("Modules")], ["leaks", tab("Never freed")], ["pin", async (page) => { await tab("Longest-lived")(page); await settle(page); await first(".table .vlist-row")(page); }],
		["segments", tab("Segments")], ["churn", tab("Churn")], ["sort", (page) => page.locator(".table-head button", { hasText: "allocations" }).click()],
		["search", type("search in the table", "main")], ["row", async (page) => { await tab("Call sites")(page); await settle(page); await first(".table .vlist-row")(page); }],
	],
	compare: [
		["by", choose("difference by", "kind")], ["when", button("at the peak")], ["row", first(".differs.vlist-row")],
	],
};
const HEAD = [
	["snapshot", choose("snapshot", "1")],
	["source", async (page) => { await choose("snapshot", "1")(page); await settle(page); await choose("device or pool", "0")(page); }],
];

/*
 * The views to look at after control @at of @view: its own, and two of the others in turn, so that each of the others is
 * looked at after some control of each view. What chooses the snapshot and the source is looked at in all views.
 */
const looked = (view, at) => {
	const others = VIEWS.filter((other) => other !== view);
	return view === "summary" ? VIEWS : [view, others[at % others.length], others[(at + 2) % others.length]];
};

test("after every control every other view shows what a fresh page of the same address shows", { skip }, async () => {
	const old = await openPage(browser, path, {}), fresh = await openPage(browser, path, {});
	let compared = 0;
	await old.page.waitForFunction(() => gpumem.docs.filter(Boolean).length === 2);
	for (const view of VIEWS)
		await shown(old.page, view);
	for (const [view, controls] of Object.entries({ ...CONTROLS, summary: HEAD }))
		for (const [at, [name, does]] of controls.entries()) {
			await old.page.locator(`[data-view=${view}]`).click();
			await settle(old.page);
			const before = await old.page.evaluate(() => JSON.stringify(gpumem.state));
			await does(old.page);
			await settle(old.page);
			await old.page.evaluate(() => gpumem.store.write());
			const [hash, state] = await old.page.evaluate(() => [location.hash, JSON.stringify(gpumem.state)]);
			assert.ok(state !== before || ["all", "axis", "axis back"].includes(name), `${view}: ${name} changes something`);
			await fresh.page.goto("about:blank");
			await fresh.page.goto(old.page.url().replace(/#.*/, "") + hash);
			await fresh.page.waitForFunction(() => globalThis.gpumem?.docs.filter(Boolean).length === 2 && gpumem.head);
			for (const other of looked(view, at)) {
				const [seen, wanted] = [await shown(old.page, other), await shown(fresh.page, other)];
				assert.deepEqual(seen, wanted, `${view}: ${name}, then ${other}, at ${hash}`);
				compared += seen.stage.length > 20 ? 1 : 0;
			}
			/* Every third is undone, the others add up. */
			if (at % 3 === 2)
				await old.page.evaluate(() => { location.hash = ""; });
		}
	assert.ok(compared > 130, String(compared));
	assert.deepEqual([old.errors, fresh.errors], [[], []]);
	await old.close();
	await fresh.close();
});

test("an answer that comes while another source is shown is asked for again, when its own is shown again", { skip }, async () => {
	const { page, errors, close } = await openPage(browser, path, { hash: "doc=1" });
	await settle(page);
	const whole = await shown(page, "flame");
	const [own, other] = await page.evaluate(() => [gpumem.state.source, gpumem.doc.sources.find(({ number, lives }) => number !== gpumem.state.source && lives).number]);
	await page.evaluate(() => {
		const { asker } = gpumem, { worker: { onmessage } } = asker, held = [];
		asker.worker.onmessage = (event) => { held.push(event); };
		globalThis.letGo = () => {
			asker.worker.onmessage = onmessage;
			held.forEach((event) => onmessage(event));
		};
		gpumem.set({ invert: 1 });
	});
	await page.waitForFunction(() => gpumem.asker.waiting.size > 0);
	await page.evaluate(([source]) => {
		gpumem.set({ view: "summary" });		/* where nobody asks for a flame graph */
		gpumem.set({ source });
		letGo();
	}, [other]);
	await settle(page);
	await page.evaluate(([source]) => gpumem.set({ source, invert: 1, view: "flame" }), [own]);
	const again = await shown(page, "flame");
	assert.notEqual(again.canvases, whole.canvases, "it stands upside down");
	const fresh = await openPage(browser, path, { hash: await page.evaluate(() => location.hash.slice(1)) });
	await settle(fresh.page);
	assert.deepEqual(again, await shown(fresh.page, "flame"));
	assert.deepEqual([errors, fresh.errors], [[], []]);
	await fresh.close();
	await close();
});

test("Back and Forward go through what was looked at, and an address of another view shows that", { skip }, async () => {
	const { page, errors, close } = await openPage(browser, path, {});
	const now = () => page.evaluate(() => ({ view: gpumem.state.view, terms: gpumem.state.terms, by: gpumem.state.by, doc: gpumem.state.doc, from: gpumem.state.from }));
	await page.waitForFunction(() => gpumem.docs.filter(Boolean).length === 2);
	const seen = [await now()];
	const steps = [() => page.locator("[data-view=tables]").click(), () => page.locator(".table .vlist-row").first().click(),
		() => page.locator("[data-view=timeline]").click(), () => wheel(".canvas .top", -300, 1)(page), () => choose("colour by", "size")(page), () => choose("snapshot", "1")(page)];
	for (const step of steps) {
		await settle(page);
		const before = await page.evaluate(() => location.hash);
		await step();
		await page.waitForFunction((hash) => location.hash !== hash && !gpumem.store.timer, before);
		seen.push(await now());
	}
	assert.equal(new Set(seen.map((one) => JSON.stringify(one))).size, steps.length + 1);
	for (const go of ["goBack", "goForward"]) {
		const wanted = go === "goBack" ? seen.slice(0, -1).reverse() : seen.slice(1);
		for (const one of wanted) {
			await page[go]();
			await settle(page);
			assert.deepEqual(await now(), one, go);
			assert.equal(await page.locator(`[data-view=${one.view}]`).getAttribute("aria-selected"), "true");
		}
	}
	for (const hash of ["view=unknown", "view=flame&weigh=nothing&sort=x&f=%2F((%2F", "view=tables&table=y&life=-3&at=peak"]) {
		await page.evaluate((text) => { location.hash = text; }, hash);
		await settle(page);
		assert.ok((await page.locator("main").innerText()).length > 20, hash);
	}
	assert.equal((await now()).view, "tables");
	assert.deepEqual(errors, []);
	await close();
});

test("a picture is as high as its place, whenever a line above or below it comes", { skip }, async () => {
	const { page, errors, close } = await openPage(browser, path, {});
	for (const view of ["timeline", "allocator", "flame", "compare"]) {
		await page.locator(`[data-view=${view}]`).click();
		await settle(page);
		for (const line of [".terms", "main .tools", "main .legend"]) {
			const found = await page.evaluate(async (selector) => {
				const one = [...document.querySelectorAll(selector)].find((element) => element.getClientRects().length);
				if (one)
					one.style.minHeight = one.style.maxHeight = `${one.clientHeight + 27}px`;
				for (let k = 0; k < 4; k++)
					await new Promise(requestAnimationFrame);
				return [...document.querySelectorAll("main canvas")].filter((canvas) => canvas.getClientRects().length)
					.map((canvas) => [canvas, canvas.getBoundingClientRect()]).map(([canvas, box]) => [canvas.width, canvas.height, Math.floor(box.width), Math.floor(box.height)]);
			}, line);
			assert.ok(found.length > 0, view);
			assert.deepEqual(found.map(([wide, tall]) => [wide, tall]), found.map(([, , wide, tall]) => [wide, tall]), `${view}: ${line}`);
		}
	}
	assert.deepEqual(errors, []);
	await close();
});
