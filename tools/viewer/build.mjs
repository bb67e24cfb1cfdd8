/*
 * build.mjs - make the page: one HTML file with its styles, its script and its worker in it.
 *
 * usage: node tools/viewer/build.mjs OUTPUT [READER]
 *
 * READER is the reader of journals, a WebAssembly module: without one, or if it is empty, the page says whose journals are.
 * The policy in the page allows this very script and these very styles, by their hashes, and no request at all; and
 * with a reader to compile such modules.
 */
import { createHash } from "node:crypto";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const [,, output, module] = process.argv;
if (!output) {
	console.error("usage: node tools/viewer/build.mjs OUTPUT [READER]");
	process.exit(2);
}

const bundle = async (entry, define = {}) => {
	const result = await build({
		entryPoints: [join(here, "src", entry)], bundle: true, minify: true, write: false, format: "iife",
		target: ["chrome109", "firefox115", "safari16.4"], charset: "ascii", legalComments: "none", define,
	});
	return result.outputFiles[0].text;
};
/* What would end a script in HTML, or begin a comment there, is written so that it does not. */
const safe = (text) => text.replaceAll("</script", "<\\/script").replaceAll("<!--", "\\x3c!--");
const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

const wasm = module ? readFileSync(module) : "";
const reader = wasm.length ? gzipSync(wasm, { level: 9 }).toString("base64") : "";
const worker = await bundle("work/worker.js", { JOURNAL_READER: JSON.stringify(reader) });
const script = safe(await bundle("main.js", { WORKER_TEXT: JSON.stringify(worker), JOURNALS: JSON.stringify(reader !== "") }));
const style = (await build({
	entryPoints: [join(here, "page/style.css")], minify: true, write: false, bundle: true,
})).outputFiles[0].text.trim();
const policy = [
	"default-src 'none'", `script-src ${hash(script)} blob:${reader ? " 'wasm-unsafe-eval'" : ""}`, `style-src ${hash(style)}`, "worker-src blob:",
	"img-src data: blob:", "base-uri 'none'", "form-action 'none'",
].join("; ");
const page = readFileSync(join(here, "page/page.html"), "utf8")
	.replace("@POLICY@", () => policy).replace("@STYLE@", () => style).replace("@SCRIPT@", () => script);
/* Two makes at once do not see half a page. */
writeFileSync(`${output}.${process.pid}`, page);
renameSync(`${output}.${process.pid}`, output);
