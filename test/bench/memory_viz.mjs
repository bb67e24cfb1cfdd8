/*
 * memory_viz.mjs - pytorch.org/memory_viz for the benchmark of the viewer: its script, torch/utils/viz/MemoryViz.js of
 * PyTorch's repository (an installed PyTorch has its address alone), opens the pickle that `gpumem convert` makes, in
 * the browser that ours is measured in.
 *
 * The script asks a server on the internet for d3; it gets npm's here. Page and pickle come from a server on loopback.
 */
import { execFileSync } from "node:child_process";
import { createReadStream, existsSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { ROOT, rest } from "../viewer/browser.mjs";

const D3 = join(ROOT, "build/bench");

/* Why it cannot be measured; "" if it can. */
export const missingViz = (script) => !existsSync(script) ? `${script} is not there` :
	existsSync(join(D3, "node_modules/d3/package.json")) ? "" :
		"d3 is missing: npm install --no-save --prefix build/bench d3@5.16.0";

/* All parts of d3 as one module: they share the event that is being handled. */
const bundleD3 = async () => {
	const { build } = await import(pathToFileURL(join(ROOT, "tools/viewer/node_modules/esbuild/lib/main.js")));
	const made = await build({
		stdin: { contents: 'export * from "d3";', resolveDir: D3 }, bundle: true, minify: true, write: false, format: "esm",
	});
	return made.outputFiles[0].text;
};

const serve = async (script, pickle) => {
	const page = '<!doctype html><meta charset="utf-8"><title>memory_viz</title><body><script type="module">' +
		'import { add_remote_files } from "./MemoryViz.js"; globalThis.openPickle = () => add_remote_files([{ name: "pickle", url: "pickle" }]);</script>';
	const server = createServer((request, response) => {
		const found = { "/": ["text/html", page], "/MemoryViz.js": ["text/javascript", readFileSync(script)], "/pickle": ["application/octet-stream", null] }[request.url];
		response.writeHead(found ? 200 : 404, { "Content-Type": found?.[0] ?? "text/plain" });
		if (request.url === "/pickle")
			createReadStream(pickle).pipe(response);
		else
			response.end(found?.[1]);
	});
	await new Promise((done) => { server.listen(0, "127.0.0.1", done); });
	return server;
};

/* Until @view has drawn the pickle at @address: { ms, shapes } of it, or { why } not. */
const timeView = async (browser, address, d3, view, what, limit) => {
	const context = await browser.newContext({ viewport: { width: 1920, height: 900 } }), page = await context.newPage();
	let stop;
	const ended = new Promise((done) => { stop = done; });
	page.on("crash", () => stop({ why: "the tab crashed" }));
	page.on("pageerror", (error) => stop({ why: `an error: ${error.message}` }));
	await page.route("https://cdn.skypack.dev/**", (route) => route.fulfill({ contentType: "text/javascript", body: d3, headers: { "Access-Control-Allow-Origin": "*" } }));
	await page.goto(address);
	await page.waitForFunction(() => globalThis.openPickle);
	await rest(browser);
	const timer = setTimeout(() => stop({ why: `not drawn within ${limit} s` }), limit * 1000);
	const drawn = page.evaluate(([name, selector]) => new Promise((done) => {
		const choice = document.querySelectorAll("select")[1], frame = () => new Promise(requestAnimationFrame);
		choice.value = name;
		const began = performance.now();
		new MutationObserver(async (_, observer) => {
			if (!document.querySelector(selector))
				return;
			observer.disconnect();
			await frame();
			await frame();		/* the frame before it is painted */
			done({ ms: performance.now() - began, shapes: document.querySelectorAll(selector).length });
		}).observe(document.body, { childList: true, subtree: true });
		globalThis.openPickle();
	}), [view, what]).catch((error) => ({ why: /crash/i.test(error.message) ? "the tab crashed" : `an error: ${error.message.split("\n")[0]}` }));
	const result = await Promise.race([drawn, ended]);
	clearTimeout(timer);
	return { ...result, close: () => context.close() };
};

/* What it takes with the snapshot at @path; a browser by @launch for each view, which @limit (seconds) ends. */
export const timeViz = async (launch, gpumem, script, path, pickle, limit) => {
	execFileSync(gpumem, ["convert", "--no-limit", "--to", "pickle", "-o", pickle, path]);
	const d3 = await bundleD3(), server = await serve(script, pickle), found = { bytes: statSync(pickle).size };
	const address = `http://127.0.0.1:${server.address().port}/`;
	try {
		for (const [key, view, what] of [["timeline", "Active Memory Timeline", "svg polygon"], ["state", "Allocator State History", "svg rect"]]) {
			const browser = await launch();
			try {
				found[key] = await timeView(browser, address, d3, view, what, limit);
			} finally {
				await browser.close();
			}
		}
	} finally {
		server.closeAllConnections();
		server.close();
	}
	return found;
};
