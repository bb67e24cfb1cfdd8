/*
 * Journals that are dropped onto the page: its reader is the command's own, so that what it reads of one is, byte by
 * byte, what `gpumem recover` writes of it; what the page shows of it is what `gpumem view` packs of it. Programs are
 * killed where a condition is met, never after a time.
 */
// timeout: 300
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import {
	closeSync, existsSync, fstatSync, mkdtempSync, openSync, readFileSync, readSync, readdirSync, truncateSync, writeFileSync, writeSync,
} from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { before, test } from "node:test";
import { BadInput } from "../../tools/viewer/src/model/bad_input.js";
import { isJournal, journalDocument, journalJson } from "../../tools/viewer/src/model/journal.js";
import { modelsOf } from "../../tools/viewer/src/model/model.js";
import { ROOT, missing, openPage, settle, withBrowser } from "./browser.mjs";
import { BUILD, gpumem, pageOf, randomOf, readPage, room } from "./documents.mjs";

const WASM = join(ROOT, "build/journal.wasm");
const reader = existsSync(WASM) ? readFileSync(WASM) : Buffer.alloc(0);
const left = reader.length ? false : "no reader of journals was built: no clang for wasm32-wasi";

/* Two levels, annotations and an allocation under way as far as Python goes; at its end the program kills itself. */
const POOLS = `
import os
from pool_user import *
context()
kept = both_levels(0, 300)
os.kill(os.getpid(), 9)
`;

/* The one journal below @place. */
const journalIn = (place) => {
	const [journal, ...more] = readdirSync(place, { recursive: true }).filter((name) => name.endsWith(".journal"));
	assert.ok(journal && !more.length);
	return join(place, journal);
};

/* Run @words under the library until @enough(its output, line by line, and its directory) says so, then kill it;
 * without it the program does that itself. The path of its journal. */
const killed = async (words, options = {}, enough = () => false) => {
	const place = mkdtempSync(join(room, "killed-")), lines = [];
	const child = spawn(words[0], words.slice(1), {
		cwd: place, stdio: ["ignore", "pipe", "inherit"], env: {
			...process.env, PYTHONPATH: join(ROOT, "test/preload/programs"), TORCH: join(BUILD, "test/preload/torch"), B: BUILD,
			LD_LIBRARY_PATH: join(BUILD, "fakecuda"), LD_PRELOAD: join(BUILD, "libgpumem.so"), GPUMEM_OUTPUT: join(place, "%r.json"),
			GPUMEM_JOURNAL: place, ...options,
		},
	});
	const end = () => child.kill("SIGKILL"), ended = new Promise((done) => { child.on("close", (status, signal) => done(signal)); });
	process.once("exit", end);
	createInterface(child.stdout).on("line", (line) => lines.push(line));
	const watch = setInterval(() => enough(lines, place) && end(), 10), signal = await ended;
	clearInterval(watch);
	process.removeListener("exit", end);
	assert.equal(signal, "SIGKILL", words.join(" "));
	return journalIn(place);
};

const app = (name) => join(BUILD, "test/apps", name);
const python = (text, options) => killed(["python3", "-c", text], options);
const random = (seed, options) =>
	killed([app("app_random"), String(seed), "1000000000"], options, (lines) => lines.some((line) => line.startsWith("checkpoint 3:")));

/* Eight threads in a storm, killed once 1000 allocations of each have returned. */
const storm = (options) => {
	const counters = join(mkdtempSync(join(room, "storm-")), "counters");
	return killed([app("demo_app.static"), "--loop", "--threads", "8", "--max-seconds", "200", "--count-file", counters], options, () => {
		const bytes = existsSync(counters) ? readFileSync(counters) : Buffer.alloc(0);
		return bytes.length >= 128 && Array.from({ length: 8 }, (_, thread) => bytes.readBigUInt64LE(16 * thread)).every((count) => count > 1000n);
	});
};

/* The file at @path as the page has it; @change(bytes, where they are) may spoil what is read. @read counts the bytes. */
const fileOf = (path, change = () => {}) => {
	const fd = openSync(path), file = { size: fstatSync(fd).size, count: 0, close: () => closeSync(fd) };
	file.read = (at, bytes) => {
		const part = new Uint8Array(bytes), have = part.subarray(0, readSync(fd, part, 0, bytes, at));
		file.count += have.length;
		change(have, at);
		return have;
	};
	return file;
};

/* The header of a journal. */
const readFirst = (path) => {
	const fd = openSync(path), header = Buffer.alloc(16384);
	readSync(fd, header, 0, header.length, 0);
	closeSync(fd);
	return header;
};

const jsonOf = async (path, ...more) => {
	const file = fileOf(path, ...more);
	try {
		return await journalJson(reader, file);
	} finally {
		file.close();
	}
};

/* What `gpumem recover` writes of it. */
const recovered = (path) => {
	const out = join(mkdtempSync(join(room, "recovered-")), "out.json");
	gpumem("recover", "--keep", "--force", "-o", out, path);
	return readFileSync(out, "utf8");
};

/* Has the kernel marked the death of the helper thread? Under load a process may be killed before it has one. The word
 * @has_helper, and then that of the mutex which the thread held. */
const marked = (path) => readFirst(path).includes(Buffer.from([1, 0, 0, 0, 0, 0, 0, 0x40]));

/* The same snapshot of a process that only the command knows to be dead. */
const living = (text) => text.replace('"reason":"recovered"', '"reason":"outside"').replace('"after_death":true', '"after_death":false')
	.replace('"life":"killed"', '"life":"running"');

/* A copy with the same holes. */
const copied = (path, name) => {
	const to = join(room, name);
	execFileSync("cp", ["--sparse=always", path, to]);
	return to;
};

const journals = {};
before(async () => {
	if (left)
		return;
	const made = {
		pools: python(POOLS), random: random(7), ring: random(20261123, { GPUMEM_HISTORY: "1000" }), storm: storm({ GPUMEM_HISTORY: "20000" }),
	};
	await Promise.allSettled(Object.values(made));		/* none is left running where another fails */
	for (const [name, path] of Object.entries(made))
		journals[name] = await path;
});

test("in the tests of this repository the page has its reader", { skip: process.env.CI ? false : left }, () => {
	assert.ok(reader.length > 10000 && reader.length < 150000, `${reader.length} bytes`);
	const module = new WebAssembly.Module(reader), names = WebAssembly.Module.imports(module).filter((one) => one.module === "page");
	assert.deepEqual(names.map(({ name }) => name).sort(), ["get", "put"]);
});

test("what the page reads of a journal is, byte by byte, what gpumem recover writes", { skip: left }, async () => {
	const seen = { dropped: 0, pools: 0, events: 0 };
	for (const [name, path] of Object.entries(journals)) {
		assert.ok(isJournal(readFirst(path)));
		const mine = await jsonOf(path), dead = marked(path), wanted = dead ? recovered(path) : living(recovered(path));
		let at = 0;
		while (at < mine.length && mine[at] === wanted[at])
			at++;
		assert.ok(mine === wanted, `${name}, at ${at} of ${wanted.length}: ${mine.slice(at - 100, at + 100)} and not ${wanted.slice(at - 100, at + 100)}`);
		const snapshot = JSON.parse(mine);
		assert.deepEqual([snapshot.process.life, snapshot.reason], dead ? ["killed", "recovered"] : ["running", "outside"]);
		seen.dropped += snapshot.history.dropped;
		seen.pools += snapshot.pools.length;
		seen.events += snapshot.history.events;
	}
	assert.ok(seen.dropped > 1000 && seen.pools >= 2 && seen.events > 1000, JSON.stringify(seen));
});

test("what the page shows of a journal is what gpumem view packs of it: lives, sums, peaks, stacks", { skip: left }, async (t) => {
	let named = 0, compared = 0;
	for (const [name, path] of Object.entries(journals)) {
		const file = fileOf(path), doc = await journalDocument(reader, file, name), mine = modelsOf(doc);
		file.close();
		assert.match(doc.note, /module and offset/);
		const [packed] = await readPage(pageOf(`journal-${name}`, path));
		assert.deepEqual(mine.map(({ source }) => [source.name, source.level, source.dropped]),
			packed.models.map(({ source }) => [source.name, source.level, source.dropped]));
		mine.forEach((model, i) => {
			const other = packed.models[i];
			for (const column of ["born", "died", "freed", "addr", "size", "weight", "pending"])
				assert.deepEqual(Array.from(model.lives[column]), Array.from(other.lives[column]), `${name}: ${column}`);
			assert.deepEqual(model.curve.values, other.curve.values);
			assert.deepEqual([model.curve.peak, model.reserved.values], [other.curve.peak, other.reserved.values]);
			for (const by of ["module", "kind", "size", "stream", "thread", "phase"]) {
				const [a, b] = [model, other].map((one) => Array.from(one.grouped(by).group, (g) => one.grouped(by).names[g]));
				assert.deepEqual(a, b, `${name} by ${by}`);
			}
			for (let l = 0; l < model.lives.count; l++) {
				const a = model.stacks.lines(model.lives.stack[l]), b = other.stacks.lines(other.lives.stack[l]);
				/* The command looks for names and lines in the files of the modules: it has functions that were inlined, too, and
				 * parameters of C++, which the page leaves out. */
				let k = 0;
				a.forEach((line) => {
					const offset = /^(\?\?|.+\+0x[0-9a-f]+)$/.test(line.name), last = line.name.replaceAll("<…>", "").split("::").filter((part) => part !== "…").at(-1);
					const isSame = (one) => one.module === line.module && one.python === line.python && (offset ? !line.python : one.name.includes(last));
					while (k < b.length && !isSame(b[k]))
						k++;
					assert.ok(k < b.length, `${line.name} of ${line.module} is not in ${b.map((one) => one.name).join(", ")}`);
					named += offset && line.name !== b[k].name;
					k++;
				});
				assert.ok(a.length <= b.length && (a.length > 0 || b.length === 0));
				compared += a.length;
			}
		});
	}
	assert.ok(compared > 1000, `${compared} frames`);
	t.diagnostic(`${compared} frames, of which only the command names ${named}`);
});

/* The regions of a journal, as [offset, bytes in use]. */
const regionsOf = (path) => {
	const header = readFirst(path), word = (at) => Number(header.readBigUInt64LE(at));
	const regions = Array.from({ length: 14 }, (_, r) => [word(32 + 64 * r), word(48 + 64 * r)]);
	assert.ok(regions.every(([offset]) => offset % 4096 === 0 && offset >= 16384));
	return regions.filter(([, used]) => used > 0);
};

/* Does the reader answer with JSON or with a sentence? Returns the sentence, "" for JSON. */
const refusal = async (path, change) => {
	try {
		JSON.parse(await jsonOf(path, change));
		return "";
	} catch (error) {
		assert.ok(error instanceof BadInput, error.stack);
		assert.ok(error.message.length > 8 && !/could not be read here/.test(error.message), error.message);
		return error.message;
	}
};

test("journals that are damaged at random are read or refused with a sentence, and nothing else", { skip: left, timeout: 280000 }, async () => {
	const next = randomOf(20261123), path = journals.pools, regions = regionsOf(path), said = new Set();
	let read = 0;
	for (let round = 0; round < 150; round++) {
		const changes = new Map();
		for (let n = 0; n <= next() * 12; n++) {
			const [offset, used] = round % 3 ? regions[Math.floor(next() * regions.length)] : [0, round % 2 ? 1000 : 16384];
			changes.set(offset + Math.floor(next() * used), Math.floor(next() * 256));
		}
		const message = await refusal(path, (bytes, at) => {
			for (const [place, value] of changes)
				if (at <= place && place < at + bytes.length)
					bytes[place - at] = value;
		});
		read += message === "";
		said.add(message.replace(/[0-9]+/g, "N"));
	}
	assert.ok(read > 40 && said.size > 4, `${read} read; ${[...said].join("; ")}`);
});

test("of the same damage the command says the same", { skip: left }, async () => {
	const wrong = [
		[(fd) => writeSync(fd, Buffer.from([99]), 0, 1, 8), /^a journal of format 99; this gpumem reads format [0-9]+$/],
		[(fd) => writeSync(fd, Buffer.alloc(8, 0xff), 0, 8, 32 + 64 * 3), /^damaged: the area 'blocks' lies outside the file$/],
		[(fd) => writeSync(fd, Buffer.alloc(4, 1), 0, 4, 16), /^damaged: its header describes another layout$/],
		[(fd, path) => truncateSync(path, 5000), /^not a journal of gpumem: only 5000 bytes$/],
		[(fd, path) => truncateSync(path, 1 << 20), /^cut off: 1048576 of [0-9]+ bytes are there$/],
	];
	for (const [i, [damage, wanted]] of wrong.entries()) {
		const path = copied(journals.pools, `damaged-${i}.journal`), fd = openSync(path, "r+");
		damage(fd, path);
		closeSync(fd);
		const message = await refusal(path);
		assert.match(message, wanted);
		let said = "";
		try {
			gpumem("recover", "--keep", "--force", "-o", join(room, "never.json"), path);
		} catch (error) {
			said = error.stderr;
		}
		assert.ok(said.includes(message), `${said}, and the page: ${message}`);
	}
});

test("of a sparse journal only what is in use is read; what is too large is refused before it is read", { skip: left }, async () => {
	const file = fileOf(journals.pools), used = regionsOf(journals.pools).reduce((sum, [, bytes]) => sum + bytes, 0);
	await journalJson(reader, file);
	file.close();
	/* The tables are read again until two looks at them agree. */
	assert.ok(used > 100000 && file.count > used && file.count < 6 * used + 200000, `${file.count} bytes read, ${used} in use`);
	for (const [bytes, wanted] of [[3n << 30n, 3072], [1n << 40n, 1048576], [(1n << 30n) + 4096n, 1024]]) {
		const big = fileOf(journals.pools, (part, at) => {
			if (at === 0)
				new DataView(part.buffer).setBigUint64(24, bytes, true);
		});
		await assert.rejects(journalJson(reader, big), (error) => error instanceof BadInput && error.message ===
			`a journal ${wanted} MiB long, and a page reads up to 1024 MiB: gpumem view FILE -o page.html makes a page of it`);
		big.close();
		assert.ok(big.count <= 16384, `${big.count} bytes`);
	}
	/* JSON that is longer than a browser's longest text. */
	const again = fileOf(journals.pools);
	await assert.rejects(journalJson(reader, again, 100000), /^Error: too many events for a browser to read: gpumem view/);
	again.close();
});

test("a journal of a living process is shown as such", { skip: left }, async () => {
	let copy = "";
	await killed(["python3", "-c", POOLS.replace(/^os\.kill.*$/m, 'print("ready", flush=True)\nimport time\ntime.sleep(250)')], {}, (lines, place) => {
		if (lines.includes("ready") && copy === "")
			copy = copied(journalIn(place), "living.journal");
		return copy !== "";
	});
	const snapshot = JSON.parse(await jsonOf(copy));
	assert.deepEqual([snapshot.reason, snapshot.recovered.after_death, snapshot.process.life, snapshot.pools.length], ["outside", false, "running", 2]);
	assert.ok(snapshot.time_us > 1.6e15);
});

test("a file that cannot be read says so, and who reads a living process", { skip: left }, async () => {
	const file = fileOf(journals.pools), { read } = file;
	file.read = (at, bytes) => {
		if (at > 100000)
			throw new Error("it has changed");
		return read(at, bytes);
	};
	await assert.rejects(journalJson(reader, file), (error) => error instanceof BadInput && /it has changed.*gpumem view PID/.test(error.message));
	file.close();
});

/* ---- in the browser ----------------------------------------------------------------------------- */

/* Drop the file at @path, as it lies on the disk. */
const drop = async (page, path) => {
	await page.evaluate(() => {
		const input = document.createElement("input");
		input.type = "file";
		input.id = "test-file";
		input.hidden = true;
		document.body.append(input);
	});
	await page.setInputFiles("#test-file", path);
	await page.evaluate(() => {
		const input = document.getElementById("test-file"), data = new DataTransfer();
		data.items.add(input.files[0]);
		for (const type of ["dragenter", "dragover", "drop"])
			window.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
		input.remove();
	});
};

test("dropped onto the page", { skip: left || missing || false }, async (t) => {
	const [packed] = await readPage(pageOf("packed", journals.pools)), first = pageOf("first", journals.random);
	await withBrowser(async (browser) => {
		const { page, errors, requests, close } = await openPage(browser, first);
		await settle(page);
		await t.test("a journal opens, and says whose names it lacks", async () => {
			await drop(page, journals.pools);
			await page.waitForFunction(() => gpumem.docs.length === 2 && gpumem.state.doc === 1);
			await settle(page);
			assert.deepEqual(await page.evaluate(() => gpumem.doc.sources.filter(({ pending }) => !pending).map(({ name, lives, peakBytes, endBytes }) => [name, lives, peakBytes, endBytes])),
				packed.models.map(({ source, lives, curve, count }) => [source.name, lives.count, curve.values[curve.peak], curve.values[count]]));
			await page.evaluate(() => gpumem.set({ view: "summary" }));
			await settle(page);
			assert.match(await page.locator(".cards").innerText(), /a page cannot read symbol tables/);
			for (const view of ["timeline", "allocator", "flame", "tables"]) {
				await page.evaluate((name) => gpumem.set({ view: name }), view);
				await settle(page);
			}
		});
		await t.test("a broken one gets a sentence", async () => {
			const broken = copied(journals.pools, "broken.journal");
			truncateSync(broken, 1 << 20);
			await drop(page, broken);
			await page.getByRole("alert").waitFor();
			assert.match(await page.getByRole("alert").innerText(), /^broken\.journal: cut off: 1048576 of [0-9]+ bytes are there$/);
			const spoilt = copied(journals.pools, "spoilt.journal"), fd = openSync(spoilt, "r+");
			writeSync(fd, Buffer.alloc(64, 0x5a), 0, 64, 32);
			closeSync(fd);
			await drop(page, spoilt);
			await page.getByText("spoilt.journal: damaged").waitFor();
			assert.equal(await page.evaluate(() => gpumem.docs.length), 2);
		});
		await t.test("without an error, and without a request", async () => {
			assert.deepEqual([errors, requests], [[], []]);
			const policy = await page.locator("meta[http-equiv]").getAttribute("content");
			assert.match(policy, /^default-src 'none'; script-src 'sha256-[^ ]+' blob: 'wasm-unsafe-eval'; style-src 'sha256-[^ ]+'; worker-src blob:;/);
			assert.ok(!/'unsafe-(eval|inline)'|connect-src/.test(policy));
		});
		await close();
	});
});

test("without a reader the page says whose journals are", { skip: missing || false }, async () => {
	const bare = join(room, "bare.html"), journal = join(room, "some.journal");
	execFileSync("node", [join(ROOT, "tools/viewer/build.mjs"), bare]);
	writeFileSync(journal, "GPUMJNL1 and more");
	assert.ok(!readFileSync(bare, "latin1").includes("wasm-unsafe-eval"));
	await withBrowser(async (browser) => {
		const { page, errors, close } = await openPage(browser, bare, { wait: false });
		await page.getByText("Drop a snapshot here").waitFor();
		await drop(page, journal);
		await page.getByRole("alert").waitFor();
		assert.match(await page.getByRole("alert").innerText(), /^some\.journal: a journal.*gpumem view/);
		assert.deepEqual(errors, []);
		await close();
	});
});
