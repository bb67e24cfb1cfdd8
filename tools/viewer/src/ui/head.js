/* head.js - the line at the top: the program, the source, the views, the filter, the theme. */
import { h, replace, toggle } from "./dom.js";
import { bytes, clock, count } from "./format.js";
import { openFile } from "./drop.js";
import { save } from "./save.js";
import { VIEWS } from "../views/views.js";
import { showHelp } from "./keys.js";

const titleOf = (doc) => {
	const { process } = doc;
	return process.command || doc.name;
};

const aboutOf = (doc) => {
	const { process } = doc;
	const parts = [
		process.rank !== null && process.rank !== undefined ? `rank ${process.rank}` : "",
		process.pid ? `pid ${process.pid}${process.host ? ` on ${process.host}` : ""}` : "",
		doc.reason, clock(doc.timeUs),
	];
	return parts.filter(Boolean).join(" · ");
};

/* Name a source. If the program has pools, the driver's level is marked as such. */
const sourceText = (source, doc) => {
	const driver = source.level === "driver" && source.device !== null && doc.sources.some(({ level }) => level === "pool");
	return `${source.name}${driver ? ", driver" : ""}${source.pending ? "" : `: peak ${bytes(source.peakBytes)}`}`;
};

export class Head {
	constructor(app) {
		this.app = app;
		this.name = h("span", { class: "name" });
		this.about = h("span", { class: "about" });
		this.snapshot = h("select", { "aria-label": "snapshot", onchange: () => app.set({ doc: Number(this.snapshot.value), source: -1 }) });
		this.source = h("select", { "aria-label": "device or pool", onchange: () => app.chooseSource(Number(this.source.value)) });
		this.tabs = h("nav", { class: "tabs", role: "tablist" }, VIEWS.map(({ name, title }, i) =>
			h("button", {
				type: "button", role: "tab", title: `${title} (${i + 1})`, "data-view": name,
				onclick: () => app.set({ view: name }),
			}, title)));
		this.field = h("input", {
			class: "field", type: "search", placeholder: "Filter: text, /regex/, 0x…",
			"aria-label": "filter", spellcheck: false,
			onkeydown: (event) => {
				if (event.key === "Enter" && this.field.value.trim() && app.addTerm(this.field.value.trim()))
					this.field.value = "";
			},
		});
		this.fold = toggle("ƒ", "User code first: frames of the interpreter, the allocator and the dispatcher are folded", () => app.set({ fold: 1 - app.state.fold }));
		this.fold.className = "icon";
		this.fold.setAttribute("aria-label", "user code first");
		this.theme = h("button", {
			class: "icon", type: "button", title: "Light or dark", "aria-label": "light or dark",
			onclick: () => app.set({ theme: app.dark ? "light" : "dark" }),
		}, "◐");
		const files = h("input", { type: "file", multiple: true, onchange: async () => {
			for (const file of files.files)
				await openFile(app, file);
			files.value = "";
		} });
		this.open = h("button", { class: "icon", type: "button", title: "Open snapshots, journals or histories", "aria-label": "open", onclick: () => files.click() }, "+");
		this.save = h("button", { class: "icon", type: "button", title: "Save this view: a table as CSV, a picture as PNG", "aria-label": "save", onclick: () => save(app) }, "⤓");
		this.help = h("button", { class: "icon", type: "button", title: "Keys (?)", "aria-label": "help", onclick: showHelp }, "?");
		this.element = h("header", { class: "head" },
			h("div", { class: "title" }, this.name, this.about), this.snapshot, this.source, this.tabs, this.field,
			this.open, this.save, this.fold, this.theme, this.help);
	}

	update() {
		const { app } = this, { doc } = app;
		this.fold.show(app.state.fold);
		if (this.shown !== app.state.view)
			for (const tab of this.tabs.children)
				tab.setAttribute("aria-selected", String(tab.dataset.view === app.state.view));
		this.shown = app.state.view;
		const key = `${app.docs.length} ${app.state.doc} ${app.state.source} ${app.source.lives}`;
		if (this.key === key)
			return;
		this.key = key;
		this.name.textContent = titleOf(doc);
		this.name.title = doc.process.command_line ?? doc.name;
		this.about.textContent = this.about.title = aboutOf(doc);
		document.title = `${titleOf(doc)} – gpumem`;
		replace(this.snapshot, app.docs.filter(Boolean).map((one) => h("option", {
			value: String(one.number), selected: one.number === app.state.doc, title: one.name,
		}, app.nameOf(one.number))));
		this.snapshot.title = doc.name;
		this.snapshot.hidden = app.docs.length < 2;
		this.element.classList.toggle("crowded", !this.snapshot.hidden);
		replace(this.source, doc.sources.map((source) => h("option", {
			value: String(source.number), selected: source.number === app.state.source,
			title: `${count(source.events)} events`,
		}, sourceText(source, doc))));
		this.source.hidden = doc.sources.length < 2;
	}
}
