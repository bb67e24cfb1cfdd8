/* Closer in both directions: the timeline in bytes, the allocator in its segments, and what changes without its base. */
// timeout: 400
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { matchOf } from "../../tools/viewer/src/model/filter.js";
import { bytes } from "../../tools/viewer/src/ui/format.js";
import { launch, missing, numbersOf, openPage, settle } from "./browser.mjs";
import { pageOf, readPage, runApp } from "./documents.mjs";

const skip = missing || false;
const browser = missing ? null : await launch();
after(() => browser?.close());
const training = pageOf("training", runApp(["app_training", "--steps", "30", "--leak"])("exit"));
const [{ models: [model] }] = await readPage(training);
const visit = async (options, use) => {
	const opened = await openPage(browser, training, options);
	await settle(opened.page);
	await use(opened.page);
	assert.deepEqual([opened.errors, opened.requests], [[], []]);
	await opened.close();
};
const range = (page) => page.evaluate(() => ({ low: gpumem.view.low, high: gpumem.view.high, from: gpumem.window.from, to: gpumem.window.to, span: gpumem.span }));
const sharp = async (page) => {
	await settle(page);
	const [view, seen] = await page.evaluate(() => [gpumem.view.picture.view, { low: gpumem.view.low, high: gpumem.view.high, from: gpumem.window.from, to: gpumem.window.to }]);
	assert.deepEqual([view.low, view.high, view.from, view.to], [seen.low, seen.high, seen.from, seen.to], "the picture is of what is in sight");
	const ids = await numbersOf(page, () => gpumem.view.picture.ids);
	assert.deepEqual(Uint32Array.from(ids), model.draw({ ...view, mark: -1 }, new Uint32Array(model.lives.count)).ids);
};

test("the timeline comes closer in bytes by Ctrl and the wheel, a box and keys", { skip }, () => visit({ hash: "mode=order" }, async (page) => {
	const box = await page.locator(".canvas .top").boundingBox(), whole = await range(page), at = (x, y) => [box.x + box.width * x, box.y + box.height * y];
	const under = await page.evaluate((y) => gpumem.view.pointer.bytesAt(y), box.height * 0.5);
	await page.mouse.move(...at(0.5, 0.5));
	await page.keyboard.down("Control");
	await page.mouse.wheel(0, -300);
	await page.keyboard.up("Control");
	await sharp(page);
	const closer = await range(page);
	assert.ok(closer.high - closer.low < (whole.high - whole.low) * 0.7 && closer.from === whole.from, JSON.stringify(closer));
	assert.ok(Math.abs(await page.evaluate((y) => gpumem.view.pointer.bytesAt(y), box.height * 0.5) - under) < (whole.high * 0.01), "what is under the pointer stays there");
	await page.keyboard.press("ArrowUp");
	await sharp(page);
	assert.ok((await range(page)).low > closer.low);
	await page.keyboard.press("Shift+ArrowUp");
	await sharp(page);
	assert.ok((await range(page)).high - (await range(page)).low < (closer.high - closer.low) * 0.8);
	assert.match(await page.locator(".terms").innerText(), /[KMG]iB – .*[KMG]iB/);
	await page.keyboard.press("0");
	await sharp(page);
	assert.deepEqual(await range(page), whole);
	await page.keyboard.down("Shift");
	await page.mouse.move(...at(0.4, 0.3));
	await page.mouse.down();
	await page.mouse.move(...at(0.7, 0.6), { steps: 4 });
	await page.mouse.up();
	await page.keyboard.up("Shift");
	await sharp(page);
	const boxed = await range(page);
	assert.ok(boxed.to - boxed.from < whole.span * 0.4 && boxed.low > whole.high * 0.3 && boxed.high < whole.high * 0.8, JSON.stringify(boxed));
	await page.mouse.move(...at(0.5, 0.5));
	await page.mouse.down();
	await page.mouse.move(...at(0.5, 0.6), { steps: 3 });
	await page.mouse.up();
	await sharp(page);
	assert.ok((await range(page)).low > boxed.low, "dragging moves it in bytes, too");
}));

/* The legend of the window from state @from to state @to, by size: [group, bytes] where the window has most, added up by hand. */
const legendOf = (from, to) => {
	const { lives } = model, { group, names } = model.grouped("size"), states = Array.from({ length: to - from + 1 }, (_, i) => from + i);
	const there = (l, s) => lives.born[l] < s && s <= lives.died[l], at = states.reduce((best, s) => {
		const sum = lives.weight.reduce((bytes, weight, l) => bytes + (there(l, s) ? weight : 0), 0);
		return sum > best.sum ? { s, sum } : best;
	}, { s: from, sum: -1 });
	const found = new Map();
	for (let l = 0; l < lives.count; l++)
		if (lives.born[l] < to && lives.died[l] >= from)
			found.set(names[group[l]], (found.get(names[group[l]]) ?? 0) + (there(l, at.s) ? lives.weight[l] : 0));
	return [...found].sort((a, b) => b[1] - a[1]).map(([name, sum]) => `${name} ${bytes(sum)}`);
};

test("the legend has the window's bytes by colour, in Timeline and in Allocator", { skip }, () => visit({ hash: "mode=order&by=size" }, async (page) => {
	const shown = async () => {
		await settle(page);
		return (await page.locator(".legend button.chip").allInnerTexts()).map((text) => text.replace(/\s+/g, " "));
	};
	const seen = [];
	for (const part of [[0, model.count], [2, 9], [200, 204]]) {
		await page.evaluate(([from, to]) => gpumem.set({ view: "timeline", from, to }), part);
		for (const view of ["timeline", "allocator"]) {
			await page.locator(`[data-view=${view}]`).click();
			const found = await shown(), wanted = legendOf(...part);
			assert.ok(found.length > 0 && found.length <= wanted.length);
			assert.deepEqual(found, wanted.slice(0, found.length), `${view}, ${part}`);
			seen.push(found.slice(0, 4).join());
		}
	}
	assert.equal(new Set(seen).size, 3, seen.join("\n"));
}));

test("what changes in the window stands without its base, in every number", { skip }, () => visit({ hash: "mode=order&from=200&to=300" }, async (page) => {
	await page.getByRole("button", { name: "What changes" }).click();
	await settle(page);
	const terms = await page.evaluate(() => gpumem.state.terms), { lives } = model;
	assert.deepEqual(terms, ["-alive@#200..#300"]);
	const match = matchOf(model, terms), base = lives.weight.reduce((sum, weight, l) => sum + (match[l] ? 0 : weight), 0);
	assert.ok(base > 100 * 2 ** 20);
	const high = await page.evaluate(() => gpumem.view.high), most = Math.max(...model.curve.values.subarray(200, 301)) - base;
	assert.ok(high < most * 1.2 + 1, `${high}, where at most ${most} change`);
	assert.equal(await page.evaluate(() => gpumem.filtered.lives), match.reduce((sum, one) => sum + one));
}));

test("the allocator comes closer, names its segments, and shows which rows are one", { skip }, () => visit({ hash: "view=allocator&at=peak" }, async (page) => {
	const box = await page.locator(".canvas .top").boundingBox();
	const look = () => page.evaluate(() => ({ pieces: gpumem.view.pieces.length, scale: gpumem.view.scale, part: gpumem.view.part, total: gpumem.view.data.sums.reserved }));
	const pixels = (x, y, w, tall) => page.evaluate(([a, b, c, d]) => gpumem.view.surface.getContext("2d").getImageData(a, b, c, d).data.reduce((sum, v) => sum + v, 0), [x, y, w, tall]);
	const before = await look();
	await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
	await page.mouse.wheel(0, -200);
	await page.mouse.wheel(0, -200);
	await settle(page);
	const after = await look();
	assert.ok(after.scale > before.scale * 1.8, JSON.stringify(after));
	assert.ok(after.part.last - after.part.first < after.total * 0.6);
	/* What is under the pointer is a block of the snapshot, wherever it is drawn. */
	const [x, y, wanted] = await page.evaluate(() => {
		const { data, pieces, scale } = gpumem.view;
		for (const one of pieces)
			for (let b = data.first[one.segment]; b < data.first[one.segment + 1]; b++) {
				const begin = data.blockAddr[b] - data.addr[one.segment];
				if (begin >= one.from && begin + data.blockSize[b] <= one.to && data.blockSize[b] * scale > 8)
					return [one.x + (begin - one.from + data.blockSize[b] / 2) * scale, one.y + 5, data.life[b]];
			}
		return [0, 0, -2];
	});
	await page.mouse.click(box.x + x, box.y + y);
	await settle(page);
	assert.equal(await page.evaluate(() => gpumem.state.life), wanted);
	const text = await page.evaluate(() => gpumem.view.segmentText(gpumem.view.pieces.find(({ from }) => from === 0).segment));
	assert.match(text, /^s[0-9a-f]+ · [0-9.]+ [KMG]iB · .*stream.* · device$/);
	const joined = await page.evaluate(() => gpumem.view.pieces.find(({ from }) => from > 0));
	assert.ok(joined, "a segment goes on in another row");
	assert.ok(await pixels(joined.x - 7, joined.y, 5, 20) > 0, "which is drawn as joined");
	await page.keyboard.press("0");
	await settle(page);
	assert.deepEqual((await look()).part, before.part);
	await page.getByLabel("colour by").selectOption("size");
	await settle(page);
	assert.match(await page.locator(".legend").innerText(), /up to/);
}));
