#!/usr/bin/env node
/*
 * The pictures of the viewer in README.md and docs/: of a training and of an out-of-memory of PyTorch on an H200, whose
 * snapshots are in test/data/, and of app_training, a CUDA program of test/apps/.
 *
 * usage: node test/viewer/pictures.mjs [DIRECTORY]		(docs/viewer)
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { ROOT, openPage, settle, withBrowser } from "./browser.mjs";
import { DATA, pageOf, room, runApp } from "./documents.mjs";

const to = process.argv[2] ?? join(ROOT, "docs/viewer");
const unpacked = (name) => {
	const path = join(room, `${name}.json`);
	writeFileSync(path, gunzipSync(readFileSync(join(DATA, `${name}.json.gz`))));
	return path;
};
const training = pageOf("training", unpacked("torch-training")), oom = pageOf("oom", unpacked("torch-oom"));
const program = pageOf("program", runApp(["app_training", "--steps", "60", "--leak", "--small", "200"])("exit"));
/* name, page, what the address bar says, dark, and where the mouse is: shares of the canvas. */
const PICTURES = [
	["timeline", training, "", false, [0.44, 0.8]],
	["allocator", oom, "view=allocator", false, null],
	["flame", training, "view=flame", true, null],
	["tables", training, "view=tables", false, null],
	["program", program, "mode=time", true, null],
	["summary", oom, "view=summary", false, null],
	["compare", pageOf("two", unpacked("torch-training"), unpacked("torch-oom")), "view=compare", false, null],
];

await withBrowser(async (browser) => {
	for (const [name, page, hash, dark, mouse] of PICTURES) {
		const opened = await openPage(browser, page, { hash, dark, width: 1280, height: 800 });
		await settle(opened.page);
		if (mouse) {
			const box = await opened.page.locator(".canvas .top").boundingBox();
			await opened.page.mouse.click(box.x + box.width * mouse[0], box.y + box.height * mouse[1]);
			await opened.page.mouse.move(5, 400);
			await settle(opened.page);
		}
		await opened.page.screenshot({ path: join(to, `${name}.png`) });
		await opened.close();
	}
});
