/* drop.js - files that are dropped onto the page. */
import { h } from "./dom.js";

export const acceptDrops = (app) => {
	const shade = h("div", { class: "drop", hidden: true }, "Drop snapshots here");
	document.body.append(shade);
	let depth = 0;
	const show = (by) => {
		depth = Math.max(0, depth + by);
		shade.hidden = depth === 0;
	};
	window.addEventListener("dragenter", (event) => { event.preventDefault(); show(1); });
	window.addEventListener("dragleave", () => show(-1));
	window.addEventListener("dragover", (event) => event.preventDefault());
	window.addEventListener("drop", async (event) => {
		event.preventDefault();
		depth = 0;
		show(0);
		for (const file of [...event.dataTransfer.files])
			await openFile(app, file);
	});
};

export const openFile = async (app, file) => {
	try {
		const doc = await app.asker.ask("openFile", { name: file.name, file });
		await app.add(doc);
		app.succeed("open");
		app.set({ doc: doc.number, source: -1 });
	} catch (error) {
		app.fail(error.message.includes(file.name) ? error : `${file.name}: ${error.message}`, "open");
	}
};
