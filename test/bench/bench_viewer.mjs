#!/usr/bin/env node
/*
 * What the viewer costs in a real browser: how long until the first exact picture, how smooth it moves, how large the
 * page is. On a machine that does nothing else; what a frame takes of a processor is said in any case.
 *
 * usage: node test/bench/bench_viewer.mjs [--events N[:LIVE]]... [--live N] [--quick]
 *                                         [--memory-viz PATH [--limit SECONDS]] [SNAPSHOT...]
 *
 * Without SNAPSHOT, test/bench/large.py makes one of each number of events (1,000,000 and 5,000,000; --quick: 200,000),
 * with LIVE blocks, or those of --live (20,000). --memory-viz opens the same in pytorch.org/memory_viz, too: PATH is
 * torch/utils/viz/MemoryViz.js of PyTorch's repository. Each of its views is given up after --limit (120 s).
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { cpus, loadavg, tmpdir } from "node:os";
import { basename, join } from "node:path";
import { ROOT, launch, missing, openPage, rest, settle } from "../viewer/browser.mjs";
import { missingViz, timeViz } from "./memory_viz.mjs";

const GPUMEM = join(ROOT, "build/gpumem");
const room = mkdtempSync(join(tmpdir(), "gpumem-bench-"));
process.on("exit", () => rmSync(room, { recursive: true, force: true }));

const args = { events: [], live: "20000", snapshots: [], viz: "", limit: 120 };
for (let words = process.argv.slice(2); words.length;) {
	const word = words.shift();
	if (word === "--events")
		args.events.push(words.shift());
	else if (word === "--live")
		args.live = words.shift();
	else if (word === "--memory-viz")
		args.viz = words.shift();
	else if (word === "--limit")
		args.limit = Number(words.shift());
	else if (word === "--quick")
		args.events.push("200000");
	else
		args.snapshots.push(word);
}
if (!args.events.length && !args.snapshots.length)
	args.events = ["1000000", "5000000"];

const snapshots = [...args.snapshots];
for (const wanted of args.events) {
	const [events, live = args.live] = wanted.split(":"), path = join(room, `${events}-${live}.json`);
	execFileSync("python3", [join(ROOT, "test/bench/large.py"), "--events", events, "--live", live, "--frames", "5000", "--stacks", "2000", path]);
	snapshots.push(path);
}

const quantile = (list, q) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * q))];
const ms = (value) => `${Math.round(value)} ms`;

/* CPU of the page's own thread so far, in ms: what a frame takes, however busy the machine is. */
const threadTime = async (session) => {
	const { metrics } = await session.send("Performance.getMetrics");
	return metrics.find(({ name }) => name === "TaskDuration").value * 1000;
};

/* CPU of the tab so far, in ms: the page, its worker, and what the browser does for them in the same process. */
const tabTime = async (browser) => {
	const { processInfo } = await (await browser.newBrowserCDPSession()).send("SystemInfo.getProcessInfo");
	return Math.max(...processInfo.filter(({ type }) => type === "renderer").map(({ cpuTime }) => cpuTime * 1000));
};

/* Times between frames while @move is called once in each of @count frames. */
const frames = (page, count, move) => page.evaluate(async ([many, source]) => {
	const does = new Function("i", source), times = [];
	let before = await new Promise(requestAnimationFrame);
	for (let i = 0; i < many; i++) {
		does(i);
		const now = await new Promise(requestAnimationFrame);
		times.push(now - before);
		before = now;
	}
	return times;
}, [count, move]);

const ours = async (browser, path) => {
	const html = join(room, "page.html"), began = performance.now();
	execFileSync(GPUMEM, ["view", "--no-limit", "-o", html, path]);
	const made = performance.now() - began, bytes = statSync(html).size;
	const window = { width: 1920, height: 900 }, rested = { ...window, before: () => rest(browser) };
	const opening = await openPage(browser, html, window), hurried = await opening.page.evaluate(() => gpumem.firstPicture);
	await opening.close();
	const { page, errors, close } = await openPage(browser, html, rested);
	const first = await page.evaluate(() => gpumem.firstPicture), tab = await tabTime(browser);
	await settle(page);
	const session = await page.context().newCDPSession(page);
	await session.send("Performance.enable", { timeDomain: "threadTicks" });
	const before = await threadTime(session);
	/* Zoom in on the middle and out again, then along. */
	const zoom = await frames(page, 120, `const { from, to } = gpumem.window, m = (from + to) / 2, h = (to - from) / 2 * (i < 60 ? 0.94 : 1 / 0.94); gpumem.zoom(m - h, m + h);`);
	await page.evaluate(() => gpumem.zoom(gpumem.span * 0.4, gpumem.span * 0.5));
	await settle(page);
	const pan = await frames(page, 120, `const { from, to } = gpumem.window; gpumem.zoom(from + (to - from) * 0.01, to + (to - from) * 0.01);`);
	const cpu = (await threadTime(session) - before) / (zoom.length + pan.length);
	const sharp = [];
	for (let i = 0; i < 10; i++) {
		const at = 0.05 * i;
		sharp.push(await page.evaluate(async (place) => {
			const start = performance.now();
			gpumem.zoom(gpumem.span * place, gpumem.span * (place + 0.3));
			while (gpumem.view.picture.view.from !== gpumem.window.from)
				await new Promise(requestAnimationFrame);
			return performance.now() - start;
		}, at));
	}
	const about = await page.evaluate(() => ({ events: gpumem.source.events, lives: gpumem.source.lives, took: gpumem.docs[0].took }));
	await close();
	const state = await openPage(browser, html, { ...rested, hash: "view=allocator" });
	const allocator = await state.page.evaluate(() => gpumem.firstPicture);
	await state.close();
	console.log(`${basename(path)}: ${about.events.toLocaleString("en-US")} events, ${about.lives.toLocaleString("en-US")} allocations`);
	console.log(`  gpumem view      made in ${ms(made)}, ${(bytes / 1e6).toFixed(2)} MB`);
	console.log(`    first exact picture  ${ms(first)} after navigation, of the allocator ${ms(allocator)}`);
	console.log(`      in a new window    ${ms(hurried)}, while Chromium opens it`);
	console.log(`      of that            ${ms(about.took.unpack)} unpacking, ${ms(about.took.model)} reading`);
	console.log(`      CPU of the tab     ${ms(tab)}`);
	for (const [name, list] of [["zoom", zoom], ["pan", pan]])
		console.log(`    ${name.padEnd(20)} ${quantile(list, 0.5).toFixed(1)} / ${quantile(list, 0.95).toFixed(1)} / ${Math.max(...list).toFixed(1)} ms a frame (median, 95%, most)`);
	console.log(`    CPU of the page      ${cpu.toFixed(1)} ms a frame`);
	console.log(`    sharp after          ${ms(quantile(sharp, 0.5))} / ${ms(Math.max(...sharp))} (median, most)`);
	if (errors.length)
		console.log(`    errors: ${errors.join("; ")}`);
	return { events: about.events, bytes, timeline: { ms: first }, state: { ms: allocator } };
};

const problem = missing || (args.viz ? missingViz(args.viz) : "");
if (problem) {
	console.log(`the viewer was not measured: ${problem}`);
	process.exit(1);
}
const said = ({ ms: took, why, shapes }) => why ??
	`${took < 10000 ? ms(took) : `${(took / 1000).toFixed(1)} s`}${shapes ? ` (${shapes.toLocaleString("en-US")} shapes)` : ""}`;
const rows = [];
console.log(`${cpus()[0].model}, ${cpus().length} cores, load ${loadavg()[0].toFixed(1)}; window 1920x900`);
for (const path of snapshots) {
	const browser = await launch();
	try {
		rows.push([basename(path, ".json"), "gpumem view", await ours(browser, path)]);
	} finally {
		await browser.close();
	}
	if (args.viz)
		rows.push([basename(path, ".json"), "memory_viz", await timeViz(launch, GPUMEM, args.viz, path, join(room, "viz.pickle"), args.limit)]);
}
if (args.viz) {
	console.log(`\n| snapshot | with | file | timeline | allocator |\n| --- | --- | --- | --- | --- |`);
	for (const [name, what, { bytes, timeline, state }] of rows)
		console.log(`| ${name} | ${what} | ${(bytes / 1e6).toFixed(1)} MB | ${said(timeline)} | ${said(state)} |`);
	console.log(`load at the end: ${loadavg()[0].toFixed(1)}`);
}
