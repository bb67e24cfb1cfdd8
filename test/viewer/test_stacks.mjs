/* User code first: what is folded, stacks that were cut, the flame graph upside down and beside another run. */
// timeout: 400
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { gunzipSync } from "node:zlib";
import { demangle } from "../../tools/viewer/src/model/demangle.js";
import { fileDocument } from "../../tools/viewer/src/model/file.js";
import { flameOf, weigher } from "../../tools/viewer/src/model/flame.js";
import { wholesOf } from "../../tools/viewer/src/model/model.js";
import { Stacks, shorten } from "../../tools/viewer/src/model/stacks.js";
import { bytes } from "../../tools/viewer/src/ui/format.js";
import { launch, missing, openPage, settle } from "./browser.mjs";
import { DATA, gpumem, pageOf, randomOf, readPage, room } from "./documents.mjs";

const skip = missing || false;
const browser = missing ? null : await launch();
after(() => browser?.close());
const unpacked = (name) => {
	const path = join(room, `${name}.json`);
	writeFileSync(path, gunzipSync(readFileSync(join(DATA, `${name}.json.gz`))));
	return path;
};
const pools = pageOf("pools", unpacked("gpumem-training")), [{ models }] = await readPage(pools), torch = models.find(({ source }) => source.level === "pool");
const visit = async (path, options, use) => {
	const opened = await openPage(browser, path, options);
	await settle(opened.page);
	await use(opened.page);
	assert.deepEqual([opened.errors, opened.requests], [[], []]);
	await opened.close();
};
const peakOf = (ways) => flameOf(torch, weigher(torch, "peak", { at: 0, from: 0, to: 0 }), ways);
const top = ({ nodes }) => nodes.filter(({ parent }) => parent === 0);

test("the interpreter's frames go, the allocator's and the dispatcher's are one, and nothing is lost", () => {
	const all = peakOf({}), folded = peakOf({ fold: true }), sum = (flame) => top(flame).reduce((sum, { weight }) => sum + weight, 0);
	assert.deepEqual([folded.total, sum(folded), sum(all)], [all.total, all.total, all.total]);
	const { stacks } = torch, isOf = (kind) => ({ frame }) => frame >= 0 && stacks.foldOf(frame) === kind;
	assert.ok(all.nodes.filter(isOf("interpreter")).length > 100);
	assert.equal(folded.nodes.filter(isOf("interpreter")).length, 0);
	for (const { label, parent } of folded.nodes)
		assert.ok(!/^\((allocator|dispatcher)\)$/.test(label) || folded.nodes[parent].label !== label, "two of them below each other");
	assert.ok(folded.nodes.length < all.nodes.length / 2, `${folded.nodes.length} of ${all.nodes.length}`);
	const python = (flame) => flame.nodes.filter(({ frame }) => frame >= 0 && stacks.python(frame)).reduce((sum, { self }) => sum + self, 0);
	assert.equal(python(folded) >= python(all), true);
});

test("a stack that no allocation has passes over shared frames only as far as it has them", () => {
	const texts = ["", "program", "alloc", "a", "b", "seen", "main"], at = (name) => texts.indexOf(name), none = texts.map(() => 0);
	const lists = [[], ["alloc", "a", "main"], ["alloc", "b", "main"], ["seen", "a", "main"], ["alloc"]], parent = [0], frame = [0];
	const tip = lists.map((list) => list.reduceRight((node, name) => frame.push(at(name)) && parent.push(node) - 1, 0));
	const stacks = new Stacks({ texts, root: {}, stacks: { parent, frame, tip, frames: { name: texts.map((_, i) => i), file: none, line: none, module: texts.map(() => 1), python: none } } });
	stacks.share(Uint8Array.of(0, 1, 1, 0, 0));
	assert.deepEqual([1, 2, 3, 4].map((id) => stacks.siteText(id)), ["a (program)", "b (program)", "seen (program)", "alloc (program)"]);
	/* Pinned memory has an allocation function of its own, or is allocated once. */
	for (const [of, sites] of [[[0, 1, 1, 2, 0], ["a", "b", "seen", "alloc"]], [[0, 1, 2, 0, 0], ["a", "b", "seen", "alloc"]], [[0, 1, 3, 1, 0], ["alloc", "alloc", "seen", "alloc"]]]) {
		stacks.share(Uint8Array.from(of));
		assert.deepEqual([1, 2, 3, 4].map((id) => stacks.siteText(id).split(" ")[0]), sites, of);
	}
});

test("the flame graph upside down has the same bytes, by who allocates", () => {
	const upright = peakOf({ fold: true }), inverted = peakOf({ fold: true, invert: true }), found = {}, wanted = {};
	for (const { label, self } of upright.nodes)
		if (self && label)
			wanted[label] = (wanted[label] ?? 0) + self;
	for (const { label, weight } of top(inverted))
		found[label] = weight;
	assert.deepEqual(found, wanted);
});

test("a stack that was cut stands below the frames of others, not at the root", () => {
	const name = (f) => `f${f}`, parent = [0], frameOf = [0], tip = [0];
	const add = (...frames) => {
		let at = 0;
		for (const f of frames) {
			parent.push(at);
			frameOf.push(f);
			at = parent.length - 1;
		}
		tip.push(at);
		return tip.length - 1;
	};
	const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);
	const ids = [add(...range(1, 12)), add(...range(4, 24)), add(...range(40, 60))];	/* whole; cut, of 20 frames; cut, and nobody else has them */
	const list = (id) => { const found = []; for (let n = tip[id]; n; n = parent[n]) found.push(frameOf[n]); return found; };
	const stacks = { count: tip.length, list, flameLabel: name, foldOf: () => "" }, lives = { count: 3, stack: ids };
	const { nodes, total } = flameOf({ stacks, lives }, () => 10, { fold: true });
	assert.equal(total, 30);
	assert.deepEqual(top({ nodes }).map(({ label, weight }) => [label, weight]), [["f1", 20], ["f40", 10]]);
	assert.deepEqual(top(flameOf({ stacks, lives }, () => 10)).map(({ label }) => label), ["f1", "f4", "f40"], "with all frames it is as recorded");
	const share = (flame) => 1 - Math.max(...top(flame).map(({ weight }) => weight)) / flame.total;
	assert.ok(share(peakOf({ fold: true })) < share(peakOf({})), `${share(peakOf({ fold: true }))}, was ${share(peakOf({}))}`);
});

test("names of C++ without their templates and parameters", () => {
	assert.deepEqual(["at::native::_flatten_nd_linear(at::Tensor const&, std::function<void (int)>)", "short<int>(int)", "Block.forward (a_rather_long_name_of_a_file/train.py:9)",
		"x::(anonymous namespace)::y<std::vector<int>, 3>::z(std::array<int, 3>) const", "<lambda>"].map(shorten),
	["at::native::_flatten_nd_linear(…)", "short<int>(int)", "Block.forward (a_rather_long_name_of_a_file/train.py:9)", "x::(anonymous namespace)::y<…>::z(…)", "<lambda>"]);
});

/* A snapshot of one block for each function of @names, as many bytes as its place from 1 on. */
const calling = (names) => {
	const path = join(room, "names.json"), block = (i) => ({ address: (i + 1) * 2 ** 20, size: i + 1, requested_size: i + 1, state: "active_allocated", stack: i + 1, kind: "device" });
	writeFileSync(path, JSON.stringify({
		format: "gpumem-snapshot", version: 1, time_us: 1, reason: "exit", process: { command: "app", pid: 1 }, modules: [{ path: "" }, { path: "/app" }],
		frames: ["", ...names].map((name) => ({ name, module: 1, offset: 64, python: false, filename: "", line: 0 })), stacks: [[], ...names.map((_, i) => [i + 1])],
		devices: [{ device: 0, present: true }], device_traces: [{ device: 0, dropped: 0, action: [] }],
		segments: names.map((_, i) => ({ device: 0, address: block(i).address, total_size: i + 1, stream: 0, segment_type: "large", blocks: [block(i)] })),
	}));
	return path;
};

test("operators keep their names where templates are shortened, on the page as in the command", async () => {
	const known = {
		"std::basic_ostream<char>& std::operator<< <std::char_traits<char> >(std::basic_ostream<char>&, char const*)": "std::basic_ostream<…>& std::operator<< <…>(…)",
		"bool std::operator< <int, std::allocator<int> >(std::vector<int> const&, std::vector<int> const&)": "bool std::operator< <…>(…)",
		"some_name_space_that_is_long::operator<<int>(std::vector<int> const&)": "some_name_space_that_is_long::operator<<…>(…)",
		"std::unique_ptr<Model, std::default_delete<Model> >::operator->() const": "std::unique_ptr<…>::operator->(…)",
		"a_name::Outer<int, std::pair<int, int> >::operator()(std::vector<int> const&) const": "a_name::Outer<…>::operator()(…)",
		"a_name::Outer<int, std::pair<int, int> >::operator()": "a_name::Outer<…>::operator()",
		"at::native::run<&a_name::Outer::operator<, (Kind)(3 > 2), decltype (a->b)>(at::Tensor)": "at::native::run<…>(…)",
		"auto with_a_lambda<int>(int)::{lambda(auto:1)#1}::operator()<float>(float) const -> int": "auto with_a_lambda<…>(int)::{lambda(auto:1)#1}::operator()<…>(float) const -> int",
		"a_rather_long_name::myoperator<int>::operator new[](unsigned long)": "a_rather_long_name::myoperator<…>::operator new[](…)",
		"a_rather_long_name::Type<int>::operator<=>(a_rather_long_name::Type<int> const&) const": "a_rather_long_name::Type<…>::operator<=>(…)",
	};
	assert.deepEqual(Object.keys(known).map(shorten), Object.values(known));
	/* Whatever a name looks like, both make the same of it. */
	const words = ["operator", "operator<", "operator->", "operator()", "<", ">", "<<", ">>", "(", ")", "()", "->", "-", "::", ", ", " const", "int", "a_type", "(anonymous namespace)", "(2 > 1)", " "];
	const random = randomOf(17), names = [...Object.keys(known), ...Array.from({ length: 1500 }, () => `f${Array.from({ length: 4 + Math.floor(random() * 16) }, () => words[Math.floor(random() * words.length)]).join("")}e`)];
	const found = {}, wanted = {}, path = calling(names);
	names.forEach((name, i) => { wanted[shorten(name)] = (wanted[shorten(name)] ?? 0) + i + 1; });
	for (const line of gpumem("flame", "--format", "folded", path).split("\n").filter(Boolean))
		found[line.slice(0, line.lastIndexOf(" "))] = Number(line.slice(line.lastIndexOf(" ") + 1));
	assert.deepEqual(found, wanted);
	assert.ok(Object.keys(wanted).filter((name) => !names.includes(name)).length > 500, "of those that are long");
	const [{ models: [model] }] = await readPage(pageOf("names", path)), drawn = {};
	for (const { label, self } of flameOf(model, weigher(model, "peak", { at: 0, from: 0, to: 0 }), { fold: true }).nodes.slice(1))
		drawn[label] = self;
	assert.deepEqual(drawn, wanted);
});

test("what runs a test is folded as the interpreter is, on the page as in the command", async () => {
	const path = calling(["test"]), snapshot = JSON.parse(readFileSync(path)), python = (name, filename) => ({ name, filename, line: 7, module: 0, offset: 0, python: true }), native = (module) => ({ name: "x", filename: "", line: 0, module, offset: 64, python: false });
	const runners = ["/usr/lib/python3/dist-packages/_pytest/python.py", "/x/site-packages/pluggy/_callers.py", "/x/site-packages/pytest/__main__.py", "/x/site-packages/pytest_cov/plugin.py", "/x/site-packages/xdist/remote.py", "/x/lib/python3.11/unittest/case.py",
		"/usr/lib64/python3.9/runpy.py", "<frozen runpy>", "/usr/bin/pytest", "/x/site-packages/gpumem/pytest_plugin.py"];
	const others = ["/home/me/test_it.py", "/home/me/unittest/case.py", "/home/me/pluggy/x.py", "/home/me/runpy.py", "/x/site-packages/torch/nn/linear.py", "<stdin>", "/home/me/pytest/x.py"];
	snapshot.modules.push({ path: "/usr/lib/libffi.so.8" }, { path: "/usr/lib/_ctypes.cpython-311-x86_64-linux-gnu.so" });
	snapshot.frames = [snapshot.frames[0], native(1), native(2), native(3), ...runners.map((file, i) => python(`runner${i}`, file)), ...others.map((file, i) => python(`own${i}`, file))];
	const first = 4, own = (i) => first + runners.length + i, all = runners.map((_, i) => first + i);
	/* By whoever is named: the program's own line, the native function where there is none, the runner where it is alone. */
	snapshot.stacks = [[], [2, 3, ...others.flatMap((_, i) => [own(i), ...all])], [1, 2, 3, ...all], [2, ...all]];
	const [segment] = snapshot.segments, block = (i) => ({ ...segment.blocks[0], address: (i + 1) * 2 ** 20, size: i + 1, requested_size: i + 1, stack: i + 1 });
	snapshot.segments = [0, 1, 2].map((i) => ({ ...segment, address: block(i).address, total_size: i + 1, blocks: [block(i)] }));
	writeFileSync(path, JSON.stringify(snapshot));
	const label = (i) => `own${i} (${others[i].split("/").at(-1)}:7)`, wanted = { [others.map((_, i) => label(i)).reverse().join(";")]: 1, x: 2, [`${runners.map((file, i) => `runner${i} (${file.split("/").at(-1)}:7)`).reverse().join(";")};x`]: 3 };
	const found = Object.fromEntries(gpumem("flame", "--format", "folded", path).trim().split("\n").map((line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.slice(line.lastIndexOf(" ") + 1))]));
	assert.deepEqual(found, wanted);
	const [{ models: [model] }] = await readPage(pageOf("runner", path)), names = [], drawn = {};
	flameOf(model, weigher(model, "peak", { at: 0, from: 0, to: 0 }), { fold: true }).nodes.forEach(({ label: name, parent, self }, n) => {
		names[n] = n ? `${names[parent]}${parent ? ";" : ""}${name}` : "";
		if (n && self)
			drawn[names[n]] = self;
	});
	assert.deepEqual(drawn, wanted);
	const shown = (id) => model.stacks.lines(id).filter(({ fold }) => !fold).map(({ name }) => name);
	assert.deepEqual(shown(1), others.map((_, i) => `own${i}`));
	assert.match(model.stacks.siteText(1), /^own0 /);
	assert.match(model.stacks.siteText(2), /^x /);
	const leaks = gpumem("leaks", "--all", path);
	assert.match(leaks, /own6 \(\/home\/me\/pytest\/x\.py:7\)/);
	assert.doesNotMatch(leaks, /runner|_ctypes/);
});

test("what is folded, joined, shortened and turned round is what gpumem flame has, stack by stack", async () => {
	const large = unpacked("torch-oom");
	for (const [path, level] of [[join(room, "gpumem-training.json"), "pool"], [join(room, "gpumem-training.json"), "driver"], [unpacked("torch-training"), "driver"], [large, "driver"]])
		for (const ways of [{ fold: true }, { fold: true, invert: true }, { invert: true }, {}]) {
			const [{ doc, models: all }] = await readPage(pageOf("flame", path)), model = level === "pool" ? wholesOf(doc, all)[0] : all.find(({ source }) => source.device === 0);
			const found = new Map(), names = [];
			const flame = flameOf(model, weigher(model, "peak", { at: 0, from: 0, to: 0 }), ways);
			flame.nodes.forEach(({ label, parent, self }, n) => {
				names[n] = n ? `${names[parent]}${parent ? ";" : ""}${label.replaceAll(";", ":")}` : "";
				if (self && n)
					found.set(names[n], (found.get(names[n]) ?? 0) + self);
			});
			const words = ["flame", "--format", "folded", "--weigh", "peak", "--device", "0", "--level", level, ...ways.invert ? ["--invert"] : [], ...ways.fold ? [] : ["--all-frames"]];
			const wanted = new Map(gpumem(...words, path).trim().split("\n").map((line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.slice(line.lastIndexOf(" ") + 1))]));
			const cut = (list) => [...list].map(([name, bytes]) => [name.split(";").map((one) => one.slice(0, 300)).join(";"), bytes]).sort();
			assert.deepEqual(cut(found), cut(wanted), `${path} ${JSON.stringify(ways)}`);
			assert.ok(wanted.size > 10);
		}
});

test("one switch folds stacks and the flame graph", { skip }, () => visit(pools, { hash: "view=flame&weigh=peak" }, async (page) => {
	const labels = () => page.evaluate(() => [...gpumem.view.data.labels]);
	const folded = await labels();
	assert.ok(folded.includes("(allocator)") && !folded.some((label) => /PyEval|_PyObject/.test(label)));
	await page.evaluate(() => gpumem.set({ life: 5000 }));
	await settle(page);
	const rows = await page.locator(".stack li").count();
	assert.ok(await page.locator(".stack .folded").count() > 0);
	await page.locator(".stack .folded").first().click();
	assert.ok(await page.locator(".stack li").count() > rows, "a click opens what is folded");
	await page.getByLabel("user code first").click();
	await settle(page);
	assert.equal(await page.locator(".stack .folded:visible").count(), 0);
	assert.ok((await labels()).length > folded.length);
	await page.getByLabel("user code first").click();
	await page.getByRole("button", { name: "Who allocates" }).click();
	await settle(page);
	const [first] = await page.evaluate(() => [gpumem.view.data.labels[1]]);
	assert.notEqual(first, folded[1]);
	assert.equal(await page.getByRole("button", { name: "Difference" }).isVisible(), false, "there is no other run");
}));

test("call sites in a table are short, and have their module or line", { skip }, () => visit(pools, { hash: "view=tables" }, async (page) => {
	const rows = await page.locator(".table .vlist-row").evaluateAll((list) => list.map((row) => [row.title, row.querySelector(".what").textContent]));
	assert.ok(rows.some(([whole]) => whole.includes("<float")) && rows.some(([whole]) => /^[A-Za-z0-9]{30,} \(lib/.test(whole)), rows.join("\n"));
	for (const [whole, shown] of rows)
		assert.equal(/[^/(]+\)$/.exec(shown)[0], /[^/(]+\)$/.exec(whole)[0], shown);
	assert.deepEqual(rows.filter(([, shown]) => /<[^…]+[,>]/.test(shown) && !/<(module|locals|lambda)>/.test(shown)), []);
}));

test("the flame graph beside another run says what each function had there", { skip }, () => visit(pageOf("two", unpacked("torch-training"), unpacked("torch-oom")), { hash: "view=flame&weigh=peak" }, async (page) => {
	await page.waitForFunction(() => gpumem.docs.filter(Boolean).length === 2);
	await page.getByRole("button", { name: "Difference" }).click();
	await settle(page);
	const [labels, before, was, total] = await page.evaluate(() => [[...gpumem.view.data.labels], [...gpumem.view.data.before], gpumem.view.data.was, gpumem.view.data.total]);
	const [one, two] = await readPage(pageOf("two", join(room, "torch-training.json"), join(room, "torch-oom.json")));
	const of = ({ models: [model] }) => flameOf(model, weigher(model, "peak", { at: 0, from: 0, to: 0 }), { fold: true });
	assert.deepEqual([total, was, before[0]], [of(one).total, of(two).total, of(two).total]);
	const n = labels.findIndex((label, i) => i && before[i] > 0);
	assert.equal(before[n], top(of(two)).find(({ label }) => label === labels[n])?.weight ?? before[n]);
	assert.match(await page.locator(".tools .soft").last().innerText(), /before/);
}));

/* The boxes of @svg that are not too narrow to be drawn: row, function, bytes, bytes before, share. */
const boxesOf = (svg) => [...svg.matchAll(/data-w="([0-9.]+)" data-r="(\d+)" data-n="(\d+)"><title>([^<]*)<\/title>/g)].map(([, , row, number, title]) => {
	const plain = title.replace(/&#(\d+);/g, (_, code) => String.fromCharCode(code));
	const [, name, amount, share, before = ""] = /^(.*) \(([^(]*), ([0-9.]+)%(?:; before ([^(]*))?\)$/s.exec(plain);
	assert.equal(amount, bytes(Number(number)), title);
	return [Number(row), name, Number(number), before, share].join("\n");
}).sort();

test("the command's SVG has the page's boxes, upside down and beside another run", { skip }, () => visit(pageOf("two", unpacked("torch-training"), unpacked("torch-oom")), { hash: "doc=1&view=flame&weigh=peak&other=0" }, async (page) => {
	const [before, after] = ["torch-training", "torch-oom"].map((name) => join(room, `${name}.json`)), seen = [];
	await page.waitForFunction(() => gpumem.docs.filter(Boolean).length === 2);
	for (const [button, words] of [["Who allocates", ["--invert", after]], ["Difference", ["--invert", before, after]], ["Who allocates", [before, after]]]) {
		await page.getByRole("button", { name: button }).click();
		await settle(page);
		const shown = await page.evaluate(() => Object.fromEntries(["labels", "weight", "depth", "before", "total"].map((key) => [key, gpumem.view.data[key]?.length ? [...gpumem.view.data[key]] : gpumem.view.data[key]])));
		const found = boxesOf(gpumem("flame", "--weigh", "peak", "--device", "0", ...words)), width = (n) => (shown.weight[n] / shown.total) * 1200;
		const wanted = shown.labels.map((label, n) => n && width(n) >= 0.2 ? [shown.depth[n] - 1, label, shown.weight[n], shown.before ? bytes(shown.before[n]) : "", ((100 * shown.weight[n]) / shown.total).toFixed(2)].join("\n") : null);
		assert.deepEqual(found, wanted.filter(Boolean).sort(), words.join(" "));
		assert.ok(found.length > 50);
		seen.push(found.join());
	}
	assert.equal(new Set(seen).size, 3);
}));

test("names of C++ in a file that is dropped are those of the command, without templates and parameters", async () => {
	const dropped = fileDocument(readFileSync(join(room, "gpumem-training.json")), "dropped"), [{ doc }] = await readPage(pools), namesOf = ({ stacks: { frames }, texts }) => Array.from(frames.name, (id) => texts[id]);
	const plain = (name) => {
		let short = "", depth = 0;
		for (const letter of name.replaceAll("(anonymous namespace)", "@").replace(/ \[clone.*$|\[abi:[^\]]*\]/g, ""))
			depth += letter === "<" ? 1 : letter === ">" ? -1 : (short += depth ? "" : letter, 0);
		return short.split("(")[0].split(" ").at(-1).replaceAll("@", "(anonymous namespace)");
	};
	const wanted = namesOf(doc), mangled = JSON.parse(readFileSync(join(room, "gpumem-training.json"))).frames.map(({ name }) => name);
	const cplusplus = namesOf(dropped).map((name, f) => [name, wanted[f]]).filter((_, f) => mangled[f].startsWith("_Z"));
	const alike = cplusplus.filter(([name, right]) => plain(name.replaceAll("<…>", "").replace(/::…$/, "")) === plain(right));
	assert.ok(cplusplus.length > 300 && alike.length > cplusplus.length * 0.95, `${alike.length} of ${cplusplus.length}`);
	assert.equal(demangle("_Z"), "_Z");
	for (let cut = 2; cut < mangled.find((name) => name.length > 400).length; cut += 7)
		assert.equal(typeof demangle(mangled.find((name) => name.length > 400).slice(0, cut)), "string");
});
