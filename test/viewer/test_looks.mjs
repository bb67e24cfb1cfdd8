/* How the page looks: colours that stay apart, small windows, paper, empty states; and how files come in and go out. */
// timeout: 400
import assert from "node:assert/strict";
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { gunzipSync, gzipSync } from "node:zlib";
import { csvOf } from "../../tools/viewer/src/ui/save.js";
import { PALETTE, css, groupColor } from "../../tools/viewer/src/ui/color.js";
import { shortNames } from "../../tools/viewer/src/ui/format.js";
import { launch, missing, openPage, settle } from "./browser.mjs";
import { DATA, gpumem, pageOf, room, runApp } from "./documents.mjs";

const skip = missing || false;
const browser = missing ? null : await launch();
after(() => browser?.close());
const run = runApp(["app_training", "--steps", "20", "--leak"]), training = pageOf("training", run("exit"));
const visit = async (path, options, use) => {
	const opened = await openPage(browser, path, { wait: false, ...options });
	await opened.page.waitForFunction(() => globalThis.gpumem?.head);
	await settle(opened.page);
	await use(opened.page);
	assert.deepEqual([opened.errors, opened.requests], [[], []]);
	await opened.close();
};

/* What is seen of linear RGB by who lacks a kind of cones: Machado, Oliveira and Fernandes, 2009, severity 1. */
const SEEN = {
	all: [1, 0, 0, 0, 1, 0, 0, 0, 1], "no red": [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
	"no green": [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
	"no blue": [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039],
};
const labOf = (color, seen) => {
	const rgb = css(color).match(/\d+/g).map(Number).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
	const [r, g, b] = [0, 3, 6].map((k) => Math.max(0, Math.min(1, seen[k] * rgb[0] + seen[k + 1] * rgb[1] + seen[k + 2] * rgb[2])));
	const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b), m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
	const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
	return [0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s, 1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s, 0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s];
};

test("the colours of the twelve largest groups stay apart, whoever looks, and differ in lightness", () => {
	for (const dark of [false, true])
		for (const [who, seen] of Object.entries(SEEN)) {
			const labs = PALETTE.map((_, rank) => labOf(groupColor(rank, 3, dark), seen));
			for (let i = 0; i < labs.length; i++)
				for (let k = 0; k < i; k++) {
					const apart = Math.hypot(...labs[i].map((v, c) => v - labs[k][c]));
					assert.ok(apart > 0.1, `${i} and ${k}, ${who}: ${apart}`);		/* 0.02 can just be seen */
				}
		}
	const lights = PALETTE.map(([light]) => light);
	assert.ok(Math.max(...lights) - Math.min(...lights) > 0.35);
	for (let shade = 0; shade < 7; shade++)
		assert.ok(Math.abs(labOf(groupColor(0, shade, false), SEEN.all)[0] - PALETTE[0][0]) < 0.04, "shades of one group are near to it");
});

test("everything can be reached in a window of 800 pixels, and of 2560", { skip }, async () => {
	const path = pageOf("two", run("exit"), join(DATA, "torch-snapshot.pickle"));
	for (const [width, height] of [[800, 700], [2560, 1300]])
		await visit(path, { width, height }, async (page) => {
			for (const view of ["timeline", "allocator", "flame", "tables", "summary", "compare"]) {
				await page.locator(`[data-view=${view}]`).click();
				await settle(page);
				const found = await page.evaluate(() => {
					const all = [...document.querySelectorAll(".head button, .head select, .head input, .tools button, .tools select, .tools input")].filter((one) => one.getClientRects().length);
					return { beyond: [document.body.scrollWidth - innerWidth, document.body.scrollHeight - innerHeight], count: all.length,
						outside: all.map((one) => [one.textContent || one.ariaLabel, one.getBoundingClientRect()]).filter(([, box]) => box.left < 0 || box.right > innerWidth + 1 || box.width < 20).map(([name]) => name) };
				});
				assert.deepEqual([found.beyond, found.outside], [[0, 0], []], `${view} at ${width}`);
				assert.ok(found.count > 12);
				const heads = await page.locator(".table-head > *:visible").evaluateAll((list) => list.map((one) => [one.textContent, one.scrollWidth - one.clientWidth]));
				assert.deepEqual(heads.filter(([, more]) => more > 0), [], `${view} at ${width}: titles of columns are whole`);
				assert.ok(view !== "tables" || heads.some(([title]) => /↓/.test(title)), "which column is sorted by is seen");
				if (view === "summary" && width > 2000) {
					const cards = await page.locator(".card:not(.bad)").evaluateAll((list) => list.map((one) => one.getBoundingClientRect()).map(({ left, top, bottom }) => ({ left, top, bottom })));
					const holes = cards.flatMap(({ left, top }) => cards.filter((one) => one.left === left && one.bottom < top).map(({ bottom }) => [top - bottom]).sort((a, b) => a - b).slice(0, 1)).filter(([space]) => space > 40);
					assert.ok(cards.length > 3);
					assert.deepEqual(holes, [], "a card stands below the one above it");
				}
				if (view !== "summary" && view !== "tables")
					assert.ok((await page.locator("main canvas").first().boundingBox()).height >= 100, view);
			}
		});
});

test("snapshots with long names are told apart: no select and no title is cut at 1280 pixels", { skip }, async () => {
	assert.deepEqual(shortNames(["a/before.json", "a/after.json"]), ["a/before.json", "a/after.json"], "short names stay");
	assert.deepEqual(shortNames(["gpumem.trainer.471.exit.json", "gpumem.trainer.471.oom-1.json"]), ["exit", "oom-1"]);
	assert.deepEqual(shortNames(["gpumem.a_program_of_a_name.json", "gpumem.a_program_of_a_name.json"]), ["gpumem.a_pr…_a_name.json", "gpumem.a_pr…_a_name.json (2)"]);
	assert.deepEqual(shortNames([`${"x".repeat(30)}.json`, ".json", ""]), ["xxxxxxxxxxx…xxxxxxx.json", ".json", ""]);
	const names = ["rank0.4711.exit", "rank1.4712.exit", "rank2.4713.oom-1", "rank3.4714.exit"].map((name) => `gpumem.a_training_program_of_a_long_name.${name}.json`);
	const paths = names.map((name) => join(room, name));
	paths.forEach((path) => copyFileSync(run("exit"), path));
	await visit(pageOf("long", ...paths), { hash: "view=compare" }, async (page) => {
		await page.waitForFunction((many) => gpumem.docs.filter(Boolean).length === many, names.length);
		await settle(page);
		const [selects, titles, cut] = await page.evaluate(() => {
			const all = (selector) => [...document.querySelectorAll(selector)].filter((one) => one.getClientRects().length), c = document.createElement("canvas").getContext("2d");
			const room = (one) => {
				const style = getComputedStyle(one);
				c.font = style.font;
				return one.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 16 - c.measureText(one.selectedOptions[0].text).width;	/* beside its arrow */
			};
			return [all("select").map((one) => [one.getAttribute("aria-label"), one.selectedOptions[0].text, one.title, Math.min(0, Math.round(room(one)))]),
				all(".side-title").map((one) => [one.querySelector("b").textContent, one.title]), all(".side-title, .side-title *, .head .name").filter((one) => one.scrollWidth > one.clientWidth && one.clientWidth).map((one) => one.textContent)];
		});
		assert.deepEqual(cut, []);
		assert.deepEqual(selects.filter(([, , , more]) => more < 0), []);
		assert.deepEqual(selects.filter(([label]) => /snapshot|compare/.test(label)).map(([, text, title]) => [text, title]), [["rank0.4711.exit", names[0]], ["rank1.4712.exit", names[1]]]);
		assert.deepEqual(titles, [["before: rank0.4711.exit", names[0]], ["after: rank1.4712.exit", names[1]], ["rank2.4713.oom-1", names[2]], ["rank3.4714.exit", names[3]]]);
	});
});

test("in a small window after an out-of-memory no control is covered", { skip }, async () => {
	const json = join(room, "oom.json");
	writeFileSync(json, gunzipSync(readFileSync(join(DATA, "torch-oom.json.gz"))));
	await visit(pageOf("oom", json), { width: 800, height: 600 }, async (page) => {
		for (const view of ["timeline", "allocator", "flame", "tables"]) {
			await page.locator(`[data-view=${view}]`).click();
			await settle(page);
			const covered = await page.evaluate(() => [...document.querySelectorAll(".tools button, .tools select, .tools input, .tools .sums span")].filter((one) => one.getClientRects().length).filter((one) => {
				one.scrollIntoView({ block: "nearest" });
				const box = one.getBoundingClientRect(), top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
				return top !== one && !one.contains(top) && !top?.contains(one);
			}).map((one) => one.textContent || one.ariaLabel));
			assert.deepEqual(covered, [], view);
		}
	});
});

test("a refused request that is above the bytes in sight is not written over them", { skip }, async () => {
	const json = join(room, "ghost.json");
	writeFileSync(json, gunzipSync(readFileSync(join(DATA, "torch-oom.json.gz"))));
	await visit(pageOf("ghost", json), {}, async (page) => {
		const written = async (terms) => {
			await page.evaluate((wanted) => gpumem.set({ terms: wanted }), terms);
			await settle(page);
			await page.evaluate(() => {
				const { fillText } = CanvasRenderingContext2D.prototype;
				globalThis.texts = [];
				CanvasRenderingContext2D.prototype.fillText = function (text, ...more) { globalThis.texts.push(text); fillText.call(this, text, ...more); };
				gpumem.view.paint();
			});
			await settle(page);
			return page.evaluate(() => globalThis.texts.some((text) => /refused/.test(text)));
		};
		assert.equal(await written([]), true);
		assert.equal(await written(["size<4096"]), false);
	});
});

test("on paper there is the view, light, without its controls", { skip }, () => visit(training, { hash: "view=tables", dark: true }, async (page) => {
	await page.emulateMedia({ media: "print" });
	assert.equal(await page.locator(".table .vlist-row").first().isVisible(), true);
	assert.deepEqual(await page.locator(".head .icon:visible, .head .field:visible").count(), 0);
	const pdf = await page.pdf().catch(() => null);
	assert.ok(pdf === null || pdf.length > 5000);
}));

test("at 800 pixels no number, address or stream of a table is cut off, and the head has whole words", { skip }, async () => {
	const path = join(room, "streams.json");
	writeFileSync(path, gunzipSync(readFileSync(join(DATA, "torch-training.json.gz"))));
	for (const table of ["segments", "leaks", "groups"])
		await visit(pageOf("streams", path), { hash: `view=tables&table=${table}`, width: 800, height: 600 }, async (page) => {
			await page.locator(".table .vlist-row .much").first().waitFor();
			assert.deepEqual(await page.evaluate(() => [...document.querySelectorAll(".table .much, .table-head button")].filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)), []);
		});
	await visit(pageOf("devices", runApp(["app_multidev.shared"])("exit")), { width: 1280 }, async (page) => {
		const [seen, below] = await page.evaluate(() => [".title", ".about"].map((one) => document.querySelector(`.head ${one}`).getBoundingClientRect()).map(({ top, bottom }, i) => i ? top : bottom));
		const width = await page.evaluate(() => document.querySelector(".head .about").clientWidth);
		assert.ok(below >= seen || width >= 60, "what has no room for a word is not shown");
	});
});

test("a view that has nothing to show says so", { skip }, () => visit(training, { hash: "f=nowhere-at-all" }, async (page) => {
	for (const [view, text] of [["tables", /No allocation passes/], ["flame", /Nothing: no allocation passes/], ["allocator", /No event passes/], ["timeline", /nothing passes the filter/]]) {
		await page.locator(`[data-view=${view}]`).click();
		await settle(page);
		assert.match(await page.locator(".middle").innerText(), text, view);
	}
}));

test("where the other snapshot has nothing of a source, nothing is said to be the same", { skip }, () => {
	const unpacked = (name) => {
		const to = join(room, `${name}.json`);
		writeFileSync(to, gunzipSync(readFileSync(join(DATA, `${name}.json.gz`))));
		return to;
	};
	return visit(pageOf("pool", unpacked("gpumem-training"), unpacked("torch-oom")), { hash: "view=compare" }, async (page) => {
		await page.waitForFunction(() => gpumem.docs.filter(Boolean).length === 2);
		await settle(page);
		assert.match(await page.locator(".middle").innerText(), /torch-oom\.json has nothing of pytorch on GPU 0/);
		assert.equal(await page.locator(".table .empty").innerText(), "There is nothing to compare it with.");
		await page.getByLabel("device or pool").selectOption({ label: await page.getByLabel("device or pool").locator("option", { hasText: "GPU 0, driver" }).innerText() });
		await settle(page);
		assert.ok(await page.locator(".differs.vlist-row").count() > 0);
	});
});

test("the button opens files: gzip of a snapshot, and a history of gpumem replay", { skip }, () => visit(training, {}, async (page) => {
	const choose = async (...files) => {
		const [chooser] = await Promise.all([page.waitForEvent("filechooser"), page.getByLabel("open", { exact: true }).click()]);
		await chooser.setFiles(files);
		await page.waitForFunction((name) => gpumem.doc.name === name, files.at(-1).split("/").at(-1));
		await settle(page);
	};
	const packed = join(room, "packed.json.gz"), history = join(room, "history.txt");
	writeFileSync(packed, gzipSync(readFileSync(run("exit"))));
	await choose(packed);
	const [first, second] = await page.evaluate(() => [gpumem.docs[0].sources[0], gpumem.docs[1].sources[0]]);
	assert.deepEqual([second.peakBytes, second.lives, second.events], [first.peakBytes, first.lives, first.events]);
	writeFileSync(history, "# conf=\n# segment_alloc 2097152 0 7f0000000000\na 1 1048576 0 7f0000000000\na 2 512 7 7f0000100000\nr 1\nf 1\na 1 4096 0 7f0000000000\n# oom 9999999999 0\n");
	await choose(history);
	assert.deepEqual(await page.evaluate(() => [gpumem.source.peakBytes, gpumem.source.endBytes, gpumem.source.lives, gpumem.source.events]), [1048576 + 512, 4096 + 512, 3, 7]);
	await choose(join(room, "history.txt"));
	assert.equal(await page.getByRole("alert").count(), 0);
}));

test("tables are saved as CSV, pictures as PNG", { skip }, () => visit(training, { hash: "view=tables" }, async (page) => {
	const save = async () => {
		const [download] = await Promise.all([page.waitForEvent("download"), page.getByLabel("save", { exact: true }).click()]);
		return [download.suggestedFilename(), readFileSync(await download.path())];
	};
	const [name, csv] = await save(), [head, ...rows] = csv.toString().split("\n"), { by_site: sites } = JSON.parse(gpumem("summary", "--json", run("exit")));
	assert.equal(name, "app_training.tables.csv");
	const left = Object.fromEntries(rows.map((row) => row.split(",")).map((row) => [row[0], Number(row[head.split(",").indexOf("left")])]));
	for (const { site, allocated_bytes: bytes } of sites)
		assert.equal(left[site], bytes, site);
	await page.locator("[data-view=timeline]").click();
	await settle(page);
	const [picture, png] = await save();
	assert.equal(picture, "app_training.timeline.png");
	assert.deepEqual([...png.subarray(1, 4)], [...Buffer.from("PNG")]);
	assert.ok(png.readUInt32BE(16) > 600 && png.length > 5000);
	assert.equal(csvOf([{ a: "=1+1", b: 'x"y', c: -1 }]), "a,b,c\n\"'=1+1\",\"x\"\"y\",-1");
}));

test("three ranks stand side by side on one scale, with axes, and a click compares another", { skip }, () => {
	const torch = join(room, "torch.json");
	writeFileSync(torch, gunzipSync(readFileSync(join(DATA, "torch-oom.json.gz"))));
	return visit(pageOf("ranks", run("exit"), torch, run("exit")), { hash: "view=compare" }, async (page) => {
		await page.waitForFunction(() => gpumem.docs.filter(Boolean).length === 3);
		await settle(page);
		assert.equal(await page.locator(".two .one").count(), 3);
		const inked = await page.locator(".two canvas").evaluateAll((list) => list.map((canvas) => {
			const { data } = canvas.getContext("2d").getImageData(0, 0, 60, canvas.height);
			return data.filter((v, i) => i % 4 === 3 && v > 60).length;
		}));
		assert.ok(inked.every((many) => many > 40), `numbers along each axis: ${inked}`);
		const before = await page.evaluate(() => gpumem.partner);
		await page.locator(".two .one").nth(2).click();
		await settle(page);
		assert.notEqual(await page.evaluate(() => gpumem.partner), before);
		assert.match(await page.locator(".side-title").nth(1).innerText(), /^after: exit/);
	});
});
