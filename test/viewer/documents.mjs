/*
 * documents.mjs - snapshots for the tests of the viewer, made by `gpumem view` as users make them, and read as the
 * page reads them.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { ROOT } from "./browser.mjs";
import { documentOf } from "../../tools/viewer/src/model/document.js";
import { modelsOf } from "../../tools/viewer/src/model/model.js";
import { PackReader } from "../../tools/viewer/src/model/pack.js";

export const BUILD = resolve(process.env.B ?? join(ROOT, "build"));
export const GPUMEM = join(BUILD, "gpumem");
export const DATA = join(ROOT, "test/data");

/* A directory of this test's own, removed at its end. */
export const room = mkdtempSync(join(tmpdir(), "gpumem-viewer-"));
process.on("exit", () => rmSync(room, { recursive: true, force: true }));

export const gpumem = (...words) =>
	execFileSync(GPUMEM, words, { encoding: "utf8", maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "pipe"] });

/* The page of @snapshots (paths, and options before them), as a file. */
export const pageOf = (name, ...snapshots) => {
	const path = join(room, `${name}.html`);
	gpumem("view", "-o", path, ...snapshots);
	return path;
};

/* The texts of the packs in the page at @path. */
export const packsOf = (path) => [...readFileSync(path, "latin1").matchAll(/<script type="text\/plain" class="snapshot">([^<]*)</g)].map(([, text]) => text);

/* A pack of its text, which comes in @parts. */
export const readPackText = (...parts) => {
	const reader = new PackReader();
	parts.forEach((part) => reader.add(part));
	return reader.end();
};

/* What the page at @path has in it. */
export const readPage = async (path) => {
	const found = [];
	for (const text of packsOf(path)) {
		const doc = documentOf(await readPackText(text)), models = modelsOf(doc);
		found.push({ doc, stacks: models[0]?.stacks, models });
	}
	return found;
};

/* A snapshot of a random program: test/bench/large.py. */
export const large = (name, ...words) => {
	const path = join(room, `${name}.json`);
	execFileSync("python3", [join(ROOT, "test/bench/large.py"), ...words, path]);
	return path;
};

/* Run @words under the library, without a GPU; the snapshots that it left, by reason. */
const run = (words, options) => {
	const out = mkdtempSync(join(room, "run-"));
	const done = spawnSync(words[0], words.slice(1), {
		cwd: out, encoding: "utf8", env: {
			...process.env, LD_LIBRARY_PATH: join(BUILD, "fakecuda"), LD_PRELOAD: join(BUILD, "libgpumem.so"),
			GPUMEM_OUTPUT: join(out, "%r.json"), GPUMEM_JOURNAL: out, ...options,
		},
	});
	if (done.status !== 0 && done.status !== 1)
		throw new Error(`${words.join(" ")}: ${done.status} ${done.stderr}`);
	return (reason) => join(out, `${reason}.json`);
};

/* One of test/apps/. */
export const runApp = ([name, ...words], options) => run([join(BUILD, "test/apps", name), ...words], options);

/* A program in Python with pools of its own: what pool_user.py has, and a stand-in of PyTorch's libraries. */
export const runPools = (program) => run(["python3", "-c", `from pool_user import *\ncontext()\n${program}`],
	{ PYTHONPATH: join(ROOT, "test/preload/programs"), TORCH: join(BUILD, "test/preload/torch"), B: BUILD });

/* A program of no device's, a random stream of numbers that is the same every time. */
export const randomOf = (seed) => () => {
	seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
	return seed / 2 ** 32;
};

/* The snapshot at @path as one whose history begins late: half-way from the end of the peak of GPU 0 to the last event. */
export const lateOf = (path, name = "late") => {
	const snapshot = JSON.parse(readFileSync(path, "utf8")), { time_us: times } = snapshot.device_traces[0], to = join(room, `${name}.json`);
	const after = times.findIndex((time) => time > snapshot.devices[0].at_peak.time_us), begin = times[(after + times.length) >> 1];
	if (!(snapshot.devices[0].at_peak.time_us > 0 && after >= 0 && begin > times[after]))
		throw new Error(`${path}: its peak is at the end of the history`);
	for (const trace of [...snapshot.device_traces, snapshot.host_trace, ...(snapshot.pools ?? []).map((pool) => pool.trace)].filter(Boolean)) {
		const first = trace.time_us.findIndex((time) => time >= begin), from = first < 0 ? trace.time_us.length : first;
		for (const [key, column] of Object.entries(trace))
			if (Array.isArray(column))
				trace[key] = column.slice(from);
		trace.dropped += from;
		snapshot.history.dropped += from;
	}
	writeFileSync(to, JSON.stringify(snapshot));
	return to;
};
