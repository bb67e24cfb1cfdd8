/* Snapshots as nobody expects them: each is opened, by the command and dropped, in every view, without an error on the console. */
// timeout: 600
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileDocument } from "../../tools/viewer/src/model/file.js";
import { modelsOf } from "../../tools/viewer/src/model/model.js";
import { launch, missing, openPage, settle } from "./browser.mjs";
import { DATA, pageOf, readPage, room, runApp } from "./documents.mjs";

const skip = missing || false;
const browser = missing ? null : await launch();
after(() => browser?.close());

const plain = JSON.parse(readFileSync(runApp(["app_training", "--steps", "4", "--leak"])("exit"), "utf8"));
const COLUMNS = Object.keys(plain.device_traces[0]).filter((key) => Array.isArray(plain.device_traces[0][key]));
const tracesOf = (one) => [...one.device_traces, one.host_trace];
const keep = (trace, wanted) => {
	const rows = [...trace.action.keys()].filter((i) => wanted(trace.action[i], i));
	for (const key of COLUMNS)
		trace[key] = rows.map((i) => trace[key][i]);
};
const only = (wanted) => (one) => tracesOf(one).forEach((trace) => keep(trace, wanted));
const times = (of) => (one) => tracesOf(one).forEach((trace) => { trace.time_us = trace.time_us.map(of); });
const without = (one) => { one.segments = []; one.host_segments = []; };
const names = (text) => (one) => {
	for (const frame of one.frames)
		Object.assign(frame, { name: text, filename: `/${text}.py`, line: 3 });
	for (const module of one.modules)
		module.path = `/lib/${text}`;
	one.process.command = one.process.command_line = text;
};
const annotated = (ranges) => (one) => {
	const { time_us: time, thread } = one.device_traces[0];
	one.annotations = ranges.map(([stage, name, at]) => ({ stage, name, time_us: time[Math.floor(at * (time.length - 1))], thread: thread[0], device: 0, domain: null, range: 0 }));
};

const ODD = {
	"one-event": only((_, i) => i === 0), "two-events": only((_, i) => i < 2), "no-events": only(() => false), "only-frees": only((action) => action.startsWith("free")),
	"only-allocs": only((action) => action === "alloc"), "only-segments": only((action) => action.startsWith("segment")),
	"no-tables": without, "one-alloc": (one) => { without(one); only((action, i) => action === "alloc" && i < 3)(one); },
	"only-completed": (one) => { without(one); only((action) => action === "free_completed")(one); },
	"no-stacks": (one) => { one.stacks = [[]]; one.frames = []; tracesOf(one).forEach((trace) => trace.stack.fill(0)); },
	"no-modules": (one) => { one.modules = []; tracesOf(one).forEach((trace) => trace.module.fill(0)); },
	"no-devices": (one) => { one.devices = []; }, "no-process": (one) => { one.process = {}; },
	"one-huge-block": (one) => {
		only((action, i) => action === "alloc" && i < 3)(one);
		one.device_traces[0].size[0] = 2 ** 46;
		without(one);
	},
	"sizes-of-nothing": (one) => tracesOf(one).forEach((trace) => trace.size.fill(0)),
	"sizes-below-nothing": (one) => tracesOf(one).forEach((trace) => { trace.size = trace.size.map((size) => -size); }),
	"ten-devices": (one) => {
		const [trace] = one.device_traces, [device] = one.devices, { segments } = one;
		one.device_traces = Array.from({ length: 10 }, () => structuredClone(trace));
		one.devices = Array.from({ length: 10 }, (_, i) => ({ ...structuredClone(device), device: i }));
		one.segments = one.devices.flatMap((_, i) => segments.map((segment) => ({ ...structuredClone(segment), device: i })));
	},
	"times-backwards": (one) => tracesOf(one).forEach((trace) => trace.time_us.reverse()),
	"one-moment": times(() => 1.7e15), "time-zero": times(() => 0), "times-below-zero": times((time) => -time),
	"times-far-apart": (one) => times((time, i) => i ? time + i * 1e13 : 5)(one),
	"saved-before": (one) => { one.time_us = 1; }, "saved-in-no-year": (one) => { one.time_us = 9e18; },
	"unicode": names("функция_分配_🧠_\u202eabc\u202c_é́_\t\n\u0000end"), "long-names": names("very_long_name_".repeat(200)), "no-names": names(""),
	"names-of-javascript": (one) => { names("__proto__")(one); one.frames.forEach((frame, i) => { frame.name = ["constructor", "toString", "__proto__"][i % 3]; }); },
	"unknown-actions": (one) => tracesOf(one).forEach((trace) => { trace.action = trace.action.map((action, i) => i % 3 ? action : "teleport"); }),
	"doubly-freed": (one) => tracesOf(one).forEach((trace) => COLUMNS.forEach((key) => { trace[key] = trace[key].flatMap((value) => [value, value]); })),
	"ranges-that-never-end": annotated(Array.from({ length: 40 }, (_, i) => ["START", `level ${i}`, i / 60])),
	"ranges-that-never-began": annotated([["END", "", 0.2], ["END", "", 0.4], ["START", "", 0.5], ["INSTANT", "mark", 0.6]]),
	"all-failed": (one) => {
		one.failures = Array.from({ length: 30 }, (_, i) => ({ time_us: one.device_traces[0].time_us[i], device: 0, size: 2 ** 40 + i, stack: i }));
		one.device_traces[0].action.fill("oom");
	},
};

const files = Object.entries(ODD).map(([name, change]) => {
	const one = structuredClone(plain), path = join(room, `${name}.json`);
	change(one);
	writeFileSync(path, JSON.stringify(one));
	return path;
});
files.push(join(DATA, "torch-snapshot.pickle"));

test("odd snapshots are the same as the command packs them and as they are dropped", async () => {
	const packed = await readPage(pageOf("odd", ...files));
	assert.equal(packed.length, files.length);
	packed.forEach(({ doc, models }, i) => {
		const dropped = modelsOf(fileDocument(readFileSync(files[i]), "dropped"));
		const said = (list) => list.map(({ source, count, lives, curve, reserved, axis }) =>
			[source.name, count, lives.count, axis.begin, axis.length, Array.from(curve.values), Array.from(reserved.values)]);
		assert.deepEqual(said(dropped), said(models), doc.name);
	});
});

/* Each snapshot of the page, in each view, by each way to colour, at its beginning and at its end. */
const goThrough = async (page, count) => {
	for (let doc = 0; doc < count; doc++) {
		await page.evaluate((number) => gpumem.set({ doc: number, source: -1 }), doc);
		for (const view of ["timeline", "allocator", "flame", "tables", "summary", "compare"]) {
			await page.evaluate((changes) => gpumem.set(changes), { view, at: 0, by: ["site", "phase", "size", "stack", "thread"][doc % 5] });
			await settle(page);
		}
		await page.evaluate(() => {
			gpumem.set({ view: "timeline", at: gpumem.source.events, mode: gpumem.state.mode === "time" ? "order" : "time", life: gpumem.source.lives ? 0 : -1 });
			gpumem.zoom(gpumem.span * 0.4, gpumem.span * 0.5);
		});
		await settle(page);
		const said = await page.getByRole("alert").allInnerTexts();
		assert.deepEqual(said, [], `${await page.evaluate(() => gpumem.doc.name)}`);
		const text = await page.locator("body").innerText();
		assert.doesNotMatch(text, /NaN|undefined|\[object|Infinity/, `${await page.evaluate(() => gpumem.doc.name)}: ${/.{40}(NaN|undefined|\[object|Infinity).{40}/s.exec(text)?.[0]}`);
	}
};

test("odd snapshots in one page", { skip }, async () => {
	const { page, errors, requests, close } = await openPage(browser, pageOf("odd", ...files));
	await page.waitForFunction((count) => gpumem.docs.filter(Boolean).length === count, files.length, { timeout: 60000 });
	await goThrough(page, files.length);
	assert.deepEqual([errors, requests], [[], []]);
	await close();
});
