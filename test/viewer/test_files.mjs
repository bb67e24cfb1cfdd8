/*
 * Files that are dropped onto the page: what it reads of them is what `gpumem view` packs of them, and what cannot be
 * read gets one sentence.
 */
// timeout: 300
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileDocument } from "../../tools/viewer/src/model/file.js";
import { BadInput } from "../../tools/viewer/src/model/bad_input.js";
import { modelsOf } from "../../tools/viewer/src/model/model.js";
import { missing, openPage, settle, withBrowser } from "./browser.mjs";
import { DATA, gpumem, large, pageOf, randomOf, readPackText, readPage, room, runApp } from "./documents.mjs";

const random = large("random", "--events", "20000", "--live", "500", "--frames", "300", "--stacks", "150");
const run = runApp(["app_training", "--steps", "20", "--leak", "--oom"]);
const pickle = join(DATA, "torch-snapshot.pickle");

/* The pickle again, by protocols that PyTorch's own page does not all read, and as JSON. */
const torchFiles = () => {
	execFileSync("python3", ["-c", `
import json, pickle, sys
value = pickle.load(open(sys.argv[1], "rb"))
for protocol in (2, 3, 4, 5):
    pickle.dump(value, open("%s/protocol-%d.pickle" % (sys.argv[2], protocol), "wb"), protocol)
json.dump(value, open(sys.argv[2] + "/torch.json", "w"))`, pickle, room]);
	return [2, 3, 4, 5].map((protocol) => join(room, `protocol-${protocol}.pickle`)).concat(join(room, "torch.json"));
};

/* Annotations that no event is of, and of the host. */
const annotated = () => {
	const snapshot = JSON.parse(readFileSync(run("exit"), "utf8")), [trace] = snapshot.device_traces;
	const note = (at, stage, device) => ({ name: `note ${at}`, stage, domain: null, range: 0, device, time_us: trace.time_us[at], thread: trace.thread[at] });
	snapshot.annotations = [note(3, "START", 0), note(3, "MARK", 0), note(40, "END", 0), note(50, "MARK", null)];
	const path = join(room, "annotated.json");
	writeFileSync(path, JSON.stringify(snapshot));
	return path;
};

const openFile = (path) => {
	const doc = fileDocument(readFileSync(path), path), models = modelsOf(doc);
	return { doc, stacks: models[0]?.stacks, models };
};

const TEXTS = ["kind", "type", "state", "name"], NUMBERS = ["stream", "thread"];
/* Columns as what they name. */
const said = (doc, columns) => Object.fromEntries(Object.entries(columns).filter(([name]) => name !== "stack").map(([name, list]) =>
	[name, Array.from(list, (value) => TEXTS.includes(name) ? doc.texts[value] : NUMBERS.includes(name) ? doc.numbers[value] : value)]));

test("a file that is dropped is what gpumem view makes of it: events, blocks, lives, sums and call sites", async () => {
	const converted = join(room, "converted.json"), named = [];
	/* The command finds source lines by itself, the page has what is in the file. */
	for (const [i, path] of [random, run("exit"), run("oom-1"), annotated(), join(DATA, "gpumem-snapshot.json")].entries())
		gpumem("symbolize", "-o", named[i] = join(room, `named-${i}.json`), path);
	gpumem("convert", "--to", "pytorch-json", "-o", converted, run("exit"));
	for (const path of [...named, pickle, converted, ...torchFiles()]) {
		const mine = openFile(path), [packed] = await readPage(pageOf("packed", path));
		assert.equal(mine.models.length, packed.models.length, path);
		assert.ok(mine.models.length);
		mine.models.forEach((model, i) => {
			const other = packed.models[i];
			assert.equal(model.source.name, other.source.name);
			assert.equal(model.source.dropped, other.source.dropped);
			assert.ok(model.count + model.source.segments.addr.length > 0);
			for (const part of ["events", "segments", "blocks"])
				assert.deepEqual(said(mine.doc, model.source[part]), said(packed.doc, other.source[part]), `${path}: ${part}`);
			for (const column of ["born", "died", "freed", "addr", "size", "weight", "pending"])
				assert.deepEqual(Array.from(model.lives[column]), Array.from(other.lives[column]), `${path}: ${column}`);
			assert.deepEqual(model.curve.values, other.curve.values);
			assert.deepEqual(model.reserved.values, other.reserved.values);
			for (const by of ["site", "module", "phase"]) {
				const [a, b] = [model, other].map((one) => Array.from(one.grouped(by).group, (g) => one.grouped(by).names[g]));
				assert.deepEqual(a, b, `${path} by ${by}`);
			}
			for (let l = 0; l < model.lives.count; l++) {
				const a = mine.stacks.lines(model.lives.stack[l]), b = packed.stacks.lines(other.lives.stack[l]);
				/* Names of C++ stay as the file has them. */
				a.forEach((line, k) => { line.name = line.name.startsWith("_Z") ? b[k].name : line.name; });
				assert.deepEqual(a, b);
			}
		});
		assert.deepEqual(mine.doc.root.annotations.map(({ name, stage, time_us: at }) => [name, stage, at]),
			(packed.doc.root.annotations ?? []).map(({ name, stage, time_us: at }) => [name, stage, at]));
		for (const [i, device] of mine.doc.root.devices.entries())
			for (const [key, value] of Object.entries(device.memory_stats))
				assert.equal(value, packed.doc.root.devices[i].memory_stats[key], `${path}: ${key}`);
	}
});

const bytesOf = (text) => new TextEncoder().encode(text);
const refusal = (bytes) => {
	try {
		fileDocument(bytes, "x");
	} catch (error) {
		assert.ok(error instanceof BadInput, error.stack);
		return error.message;
	}
	return "";
};

test("what is no snapshot gets a sentence", () => {
	const good = readFileSync(pickle), json = readFileSync(run("exit"), "utf8");
	for (const [bytes, wanted] of [
		[bytesOf(""), /empty file/], [bytesOf("hello"), /neither JSON nor a pickle/], [bytesOf("{}"), /not a snapshot of gpumem or PyTorch/],
		[bytesOf("[1]"), /not a snapshot/], [bytesOf("null"), /neither|not a snapshot/], [bytesOf(json.slice(0, 5000)), /not whole JSON/],
		[bytesOf('{"format":"gpumem-snapshot","version":2}'), /version 2; this page reads version 1/],
		[bytesOf('{"format":"gpumem-snapshot"}'), /does not say its version/], [good.subarray(0, 3000), /cut off/],
		[bytesOf("\x80"), /neither|pickle/], [Uint8Array.of(0x80, 2, 0x63, 111, 115, 10), /names code to run, which is never done/],
		[Uint8Array.of(0x80, 9, 0x2e), /protocol 9/], [Uint8Array.of(0x80, 2, 0x4e, 0x2e), /a pickle, but not a snapshot of PyTorch/],
		[Uint8Array.of(0x80, 2, 0x68, 7, 0x2e), /memo number that stands for nothing/], [Uint8Array.of(0x1f, 0x8b, 8, 0), /gzip/], [bytesOf("a 1 512 0 7f00\nx 1\n"), /line 2 of this history/],
		[bytesOf("GPUMJNL1 and more"), /a journal.*gpumem view/], [bytesOf("<!DOCTYPE html><p>"), /a page/],
	])
		assert.match(refusal(bytes), wanted);
});

test("a pickle with a key that JavaScript knows otherwise changes no object", () => {
	/* {"segments": [], "__proto__": {"hit": True}} */
	const text = (word) => [0x8c, word.length, ...bytesOf(word)];
	const made = Uint8Array.from([0x80, 4, 0x7d, 0x28, ...text("segments"), 0x5d, ...text("__proto__"), 0x7d, ...text("hit"), 0x88, 0x73, 0x75, 0x2e]);
	assert.deepEqual(fileDocument(made, "x").sources, []);
	assert.equal({}.hit, undefined);
});

test("files that are damaged at random are read or refused, and nothing else", () => {
	const next = randomOf(20261123);
	let refused = 0;
	for (const path of [pickle, join(DATA, "gpumem-snapshot.json"), torchFiles().at(-1)]) {
		const whole = readFileSync(path);
		for (let k = 0; k < 40; k++) {
			const bytes = Uint8Array.from(whole);
			for (let n = 0; n <= next() * 6; n++)
				bytes[Math.floor(next() * bytes.length)] = path.endsWith(".json") ? bytesOf('0"[]{},:-9n')[Math.floor(next() * 11)] : Math.floor(next() * 256);
			const cut = next() < 0.2 ? bytes.subarray(0, Math.floor(next() * bytes.length)) : bytes;
			if (refusal(cut))
				refused++;
			else
				for (const source of fileDocument(cut, "x").sources)
					assert.ok(source.count >= 0);
		}
	}
	assert.ok(refused > 15 && refused < 120, String(refused));
});

test("values of other types than they should be are read as nothing", () => {
	const snapshot = JSON.parse(readFileSync(join(DATA, "gpumem-snapshot.json"), "utf8"));
	const next = randomOf(7), odd = [null, "x", -1, 1e300, {}, [], true, 2 ** 53, [[]], { blocks: 3 }];
	const spoil = (value, depth) => {
		if (value === null || typeof value !== "object" || depth > 6)
			return next() < 0.02 ? odd[Math.floor(next() * odd.length)] : value;
		const made = Array.isArray(value) ? value.map((one) => spoil(one, depth + 1)) :
			Object.fromEntries(Object.entries(value).map(([key, one]) => [key, spoil(one, depth + 1)]));
		return depth > 0 && next() < 0.01 ? odd[Math.floor(next() * odd.length)] : made;
	};
	for (let k = 0; k < 150; k++) {
		const text = JSON.stringify({ ...spoil(snapshot, 0), format: "gpumem-snapshot", version: 1 });
		const doc = fileDocument(bytesOf(text), "x"), models = modelsOf(doc);
		for (const model of models)
			for (const by of ["site", "module", "stream", "size", "phase"])
				assert.equal(model.grouped(by).group.length, model.lives.count);
	}
});

/* ---- in the browser ----------------------------------------------------------------------------- */

/* Drop the files at @paths, as [name, path], onto @page. */
const drop = async (page, ...files) => {
	const list = files.map(([name, path]) => [name, readFileSync(path).toString("base64")]);
	await page.evaluate((all) => {
		const data = new DataTransfer();
		for (const [name, text] of all)
			data.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name));
		for (const type of ["dragenter", "dragover", "drop"])
			window.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
	}, list);
};

/* The text of the snapshot in the page @path. */
const packedText = (path) => /<script type="text\/plain" class="snapshot">([^<]*)</.exec(readFileSync(path, "latin1"))[1];

test("a snapshot that is damaged in its page is refused", async () => {
	const text = packedText(pageOf("whole", random)), bytes = Buffer.from(text, "base64");
	const refused = (what) => assert.rejects(readPackText(what), (error) => error instanceof BadInput && /damaged, or the page cut short/.test(error.message));
	for (const part of [0, 4, 16, 100, text.length >> 1, text.length - 20, text.length - 4])
		await refused(text.slice(0, part));
	for (const length of [0, 1000]) {		/* what it says that it is unpacked */
		bytes.writeUInt32LE(length, bytes.length - 4);
		await refused(bytes.toString("base64"));
	}
	const whole = await readPackText(text), times = whole.columns.get("0.time");
	assert.equal(times.length, 20000);
	for (const size of [4, 400, 65536]) {		/* however the browser cuts it */
		const at = size === 4 ? 40 : text.length, parts = [...text.slice(0, at).match(new RegExp(`.{1,${size}}`, "g")), text.slice(at)];
		const read = await readPackText(...parts);
		assert.deepEqual(read.header, whole.header);
		assert.deepEqual(read.columns.get("0.time"), times);
	}
	/* 4.5 bytes for each event, which are as random as can be */
	assert.ok(bytes.length < 20000 * 4.8, `${bytes.length} bytes`);
});

test("dropped onto the page", { skip: missing || false }, async (t) => {
	const first = pageOf("first", run("exit")), [{ models: [model] }] = await readPage(pageOf("torch", pickle));
	const broken = join(room, "broken.pickle"), evil = join(room, "evil.json");
	writeFileSync(broken, readFileSync(pickle).subarray(0, 4000));
	const snapshot = JSON.parse(readFileSync(run("exit"), "utf8")), attack = "<img src=x onerror='globalThis.hit=1'></script><script>globalThis.hit=1</script>";
	for (const frame of snapshot.frames)
		frame.name += attack;
	snapshot.process.command = attack;
	writeFileSync(evil, JSON.stringify(snapshot));
	await withBrowser(async (browser) => {
		await t.test("a pickle of PyTorch, a broken file and a hostile one", async () => {
			const { page, errors, requests, close } = await openPage(browser, first);
			await settle(page);
			await drop(page, ["mine.pickle", pickle]);
			await page.waitForFunction(() => gpumem.docs.length === 2 && gpumem.state.doc === 1);
			await settle(page);
			assert.equal(await page.evaluate(() => gpumem.source.peakBytes), model.curve.values[model.curve.peak]);
			assert.match(await page.locator(".side").innerText(), /122\.03 MiB/);
			await drop(page, ["broken.pickle", broken]);
			await page.getByRole("alert").waitFor();
			assert.match(await page.getByRole("alert").innerText(), /^broken\.pickle: cut off: the pickle does not end$/);
			assert.equal(await page.evaluate(() => gpumem.docs.length), 2);
			await drop(page, ["evil<b>.json", evil]);
			await page.waitForFunction(() => gpumem.docs.length === 3 && gpumem.state.doc === 2);
			await settle(page);
			assert.ok((await page.locator(".head").innerText()).includes("<img src=x"), "the text is shown as text");
			assert.equal(await page.evaluate(() => globalThis.hit), undefined);
			assert.equal(await page.locator("img").count(), 0);
			assert.deepEqual([errors, requests], [[], []]);
			await close();
		});
		await t.test("a page whose end is missing says so", async () => {
			const cut = join(room, "cut.html"), whole = readFileSync(first);
			writeFileSync(cut, whole.subarray(0, whole.length - 2000));
			const { page, errors, close } = await openPage(browser, cut, { wait: false });
			assert.match(await page.getByRole("alert").innerText(), /the snapshot in this page is damaged, or the page cut short/);
			assert.deepEqual(errors, []);
			await close();
		});
		await t.test("onto a page without a snapshot", async () => {
			/* The page as it lies in the command, which no snapshot was put into. */
			const empty = join(room, "empty.html");
			writeFileSync(empty, readFileSync(first, "latin1").replace(/<script type="text\/plain" class="snapshot">[^<]*<\/script>/, ""), "latin1");
			const { page, errors, close } = await openPage(browser, empty, { wait: false });
			await page.getByText("Drop a snapshot here").waitFor();
			await drop(page, ["one.json", run("exit")], ["two.pickle", pickle]);
			await page.waitForFunction(() => globalThis.gpumem?.firstPicture > 0 && gpumem.docs.length === 2);
			await settle(page);
			assert.deepEqual(errors, []);
			await close();
		});
	});
});
