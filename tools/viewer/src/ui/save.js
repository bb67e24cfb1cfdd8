/* save.js - save a view to a file: a table as CSV, everything else as a picture. */
const download = (blob, name) => {
	const url = URL.createObjectURL(blob), link = Object.assign(document.createElement("a"), { href: url, download: name });
	link.click();
	setTimeout(() => URL.revokeObjectURL(url), 10000);
};

/* Return a cell. A text that a spreadsheet would take for a formula gets a leading apostrophe. */
const cell = (value) => {
	const text = String(value ?? "");
	return /^[=+\-@\t]/.test(text) && typeof value === "string" ? `"'${text.replaceAll('"', '""')}"` : /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

/* Return @rows, objects with the same members, as CSV. */
export const csvOf = (rows) => {
	const keys = Object.keys(rows[0] ?? {});
	return [keys, ...rows.map((row) => keys.map((key) => row[key]))].map((row) => row.map(cell).join(",")).join("\n");
};

export const save = async (app) => {
	const { view } = app, name = `${(app.doc.process.command || app.doc.name).replace(/[^\w.-]+/g, "_").slice(0, 60)}.${app.state.view}`;
	try {
		if (view.rowsToSave)
			return download(new Blob([csvOf(await view.rowsToSave())], { type: "text/csv" }), `${name}.csv`);
		const canvases = [...view.element.querySelectorAll("canvas")].filter((one) => one.clientWidth), [first] = canvases;
		if (!first)
			throw new Error("there is no picture and no table in this view to save");
		const box = canvases.map((one) => one.getBoundingClientRect()), left = Math.min(...box.map((one) => one.left)), top = Math.min(...box.map((one) => one.top));
		const ratio = first.width / first.clientWidth, picture = document.createElement("canvas"), c = picture.getContext("2d");
		picture.width = (Math.max(...box.map((one) => one.right)) - left) * ratio;
		picture.height = (Math.max(...box.map((one) => one.bottom)) - top) * ratio;
		c.fillStyle = getComputedStyle(document.body).backgroundColor;
		c.fillRect(0, 0, picture.width, picture.height);
		canvases.forEach((one, i) => c.drawImage(one, (box[i].left - left) * ratio, (box[i].top - top) * ratio));
		download(await new Promise((done) => { picture.toBlob(done); }), `${name}.png`);
		app.succeed("save");
	} catch (error) {
		app.fail(error, "save");
	}
	return null;
};
