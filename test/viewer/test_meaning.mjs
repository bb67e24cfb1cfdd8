/* live, peak, reserved, and in how many blocks: one meaning each, and the same number in every verb and in the page. */
// timeout: 200
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { wholesOf } from "../../tools/viewer/src/model/model.js";
import { bytes } from "../../tools/viewer/src/ui/format.js";
import { BUILD, GPUMEM, gpumem, lateOf, pageOf, readPage, room } from "./documents.mjs";

/* What `gpumem run` prints of @words, and the snapshot that it leaves. */
const runs = (words, env) => {
	const out = mkdtempSync(join(room, "run-"));
	const { stderr } = spawnSync(GPUMEM, ["run", `--output=${join(out, "%r.json")}`, "--", ...words], {
		cwd: out, encoding: "utf8", env: { ...process.env, LD_LIBRARY_PATH: join(BUILD, "fakecuda"), GPUMEM_JOURNAL: out, ...env },
	});
	return { said: stderr, path: join(out, "exit.json") };
};
const TORCH = { PYTHONPATH: join(import.meta.dirname ?? new URL(".", import.meta.url).pathname, "../preload/programs"), TORCH: join(BUILD, "test/preload/torch"), B: BUILD };

for (const [name, words, env] of [
	["a program with the library's cache", [join(BUILD, "test/apps/app_training"), "--steps", "20", "--leak"]],
	["a program without", [join(BUILD, "test/apps/app_training"), "--steps", "20", "--leak"], { GPUMEM_ALLOCATOR: "native" }],
	["a program with pools", ["python3", "-c", "from pool_user import *\ncontext()\nfree(malloc(1 << 30))\nkept = both_levels(0, 200)"], TORCH],
])
	test(name, async () => {
		const { said, path } = runs(words, env), ended = /ended: peak (.*), (.*) in (\d+) blocks? never freed/.exec(said);
		assert.ok(ended, said);
		const [, peak, live, blocks] = ended, found = {}, empty = join(room, "empty.json"), one = (text, pattern) => pattern.exec(text)?.slice(1).join(" ") ?? text;
		found.summary = one(gpumem("summary", path), /live (\S+ \S+) in (\d+) blocks?, peak (\S+ \S+);/);
		const { leaks } = JSON.parse(gpumem("leaks", "--json", path)), sum = (list, key) => list.reduce((all, row) => all + row[key], 0);
		found["leaks --json"] = `${bytes(sum(leaks, "bytes"))} ${sum(leaks, "blocks")} ${peak}`;
		found.leaks = `${one(gpumem("leaks", path), /never freed: (\S+ \S+) in (\d+) blocks?/)} ${peak}`;
		const [rank] = JSON.parse(gpumem("merge", "--json", path)).ranks;
		found.merge = `${bytes(rank.live_bytes)} ${rank.blocks} ${bytes(rank.peak_bytes)}`;
		writeFileSync(empty, JSON.stringify({ ...JSON.parse(readFileSync(path, "utf8")), segments: [], pools: [], device_traces: [], host_segments: [] }));
		const all = gpumem("diff", "--level", "pool", empty, path).trim().split("\n").at(-1).trim().split(/ {2,}/);	/* growth, A, B, blocks A, blocks B, all */
		found.diff = `${all[2]} ${all[4]} ${peak}`;
		const check = spawnSync(GPUMEM, ["check", "--max-peak", "1", "--no-leaks", path], { encoding: "utf8" }).stdout;
		found.check = `${one(check, /leaks: (\S+ \S+) in (\d+) blocks?/)} ${one(check, /peak (\S+ \S+), allowed/)}`;
		const flame = (weigh) => bytes(gpumem("flame", "--format", "folded", "--weigh", weigh, path).trim().split("\n").reduce((total, line) => total + Number(line.slice(line.lastIndexOf(" ") + 1)), 0));
		found.flame = `${flame("live")} ${blocks} ${flame("peak")}`;
		const [{ doc, models }] = await readPage(pageOf("meaning", path)), model = wholesOf(doc, models)[0] ?? models[0], { lives, weight, count } = model;
		const left = Array.from(lives.born, (_, l) => l).filter((l) => lives.died[l] === count + 1 && !lives.pending[l] && weight[l]);
		found.page = `${bytes(left.reduce((total, l) => total + weight[l], 0))} ${left.length} ${bytes(model.peakBytes)}`;
		for (const [verb, text] of Object.entries(found))
			assert.equal(text, `${live} ${blocks} ${peak}`, `${verb}, beside gpumem run`);
		assert.equal(Object.keys(found).length, 8);
		/* The peak stays what it was where the history begins after it. */
		const late = lateOf(path), [then] = await readPage(pageOf("late", late)), of = wholesOf(then.doc, then.models)[0] ?? then.models[0];
		assert.ok(of.held, "the history does not show the peak");
		assert.equal(bytes(of.peakBytes), one(gpumem("summary", late), /peak (\S+ \S+);/), "page and summary");
	});
