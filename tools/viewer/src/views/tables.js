/*
 * tables.js - sums by call site, module, stream and so on, and allocations one by one: sorted by any column, searched
 * in all frames of all stacks. A click on a row filters every view by it, or pins the allocation.
 */
import { h, replace } from "../ui/dom.js";
import { brief, bytes, count, duration, hex, plural } from "../ui/format.js";
import { VirtualList } from "../ui/vlist.js";

const GROUPS = [["site", "Call sites"], ["stack", "Stacks"], ["module", "Modules"], ["stream", "Streams"], ["size", "Sizes"],
	["kind", "Kinds"], ["thread", "Threads"], ["phase", "Phases"]];
const LIVES = [["leaks", "Never freed"], ["longest", "Longest-lived"], ["churn", "Churn"]];

const GROUP_COLUMNS = [
	["name", "name", brief], ["live", "at the cursor", bytes], ["blocks", "blocks", count], ["peak", "at the peak", bytes],
	["left", "never freed", bytes], ["bytes", "allocated", bytes], ["allocs", "allocations", count], ["longest", "longest life", (us) => us ? duration(us) : "–"],
];
const LIFE_COLUMNS = [
	["name", "call site", brief], ["size", "size", bytes], ["lifetime", "lived", duration], ["born", "from", duration],
	["addr", "address", hex], ["kind", "kind", (value) => value], ["stream", "stream", (value) => value.replace(/ ?stream ?/, "")],
];
const UNSORTED = new Set(["addr", "kind", "stream"]);

export class Tables {
	constructor(app) {
		this.app = app;
		this.chosen = "site";
		this.sort = "live";
		this.up = false;
		this.rows = new Map();
		this.tabs = h("nav", { class: "subtabs", "aria-label": "tables" }, [...GROUPS, ...LIVES].map(([name, title]) =>
			h("button", { type: "button", "data-table": name, onclick: () => this.choose(name) }, title)));
		this.search = h("input", { class: "field", type: "search", placeholder: "Search all frames", "aria-label": "search in the table",
			oninput: () => this.restart() });
		this.note = h("span", { class: "soft" });
		this.head = h("div", { class: "table-head", role: "row" });
		this.list = new VirtualList({
			rowHeight: 28, label: "rows", row: (i) => this.row(i), range: (first, many) => this.see(first, many),
		});
		this.element = h("div", { class: "stage" }, h("div", { class: "tools" }, this.tabs), h("div", { class: "tools" }, this.search, this.note),
			h("div", { class: "table" }, this.head, this.list.element));
		this.want = app.asker.latest("table", (answer, args) => this.take(answer, args), (error) => this.complain(error));
		this.mark();
	}

	get isLives() { return this.chosen === "leaks" || this.chosen === "longest"; }
	get columns() { return this.isLives ? LIFE_COLUMNS : GROUP_COLUMNS; }

	choose(name) {
		this.chosen = name;
		this.sort = { leaks: "size", longest: "lifetime", churn: "allocs" }[name] ?? "live";
		this.up = false;
		this.mark();
		this.restart();
	}

	mark() {
		for (const tab of this.tabs.children)
			tab.setAttribute("aria-pressed", String(tab.dataset.table === this.chosen));
		this.head.className = `table-head ${this.isLives ? "lives" : "groups"}`;
		replace(this.head, this.columns.map(([key, title]) => h("button", {
			type: "button", disabled: UNSORTED.has(key) || (this.isLives && key === "name"),
			"aria-sort": key === this.sort ? this.up ? "ascending" : "descending" : "none", onclick: () => this.order(key),
		}, title, key === this.sort ? this.up ? " ↑" : " ↓" : "")));
	}

	order(key) {
		this.up = key === this.sort ? !this.up : key === "name";
		this.sort = key;
		this.mark();
		this.restart();
	}

	update(changed) {
		if (["doc", "source", "filtered", "at", "from", "to", "mode", "axis"].some((key) => changed.has(key)) ||
				(changed.has("size") && !this.rows.size))
			this.restart();
		else
			this.list.paint();
	}

	restart() {
		this.rows.clear();
		this.fresh = true;
		this.ask(0, 80);
	}

	ask(first, many) {
		const { app } = this, { from, to } = app.window;
		if (!app.axis)
			return;
		this.want({
			...app.of, what: this.isLives ? this.chosen : "groups", by: this.chosen === "churn" ? "site" : this.chosen, sort: this.sort,
			up: this.up, search: this.search.value.trim(), at: app.moment, from: app.state.from === null ? 0 : app.stateAt(from),
			to: app.state.to === null ? app.source.events : app.stateAt(to), first: Math.max(0, first), count: many,
		});
	}

	see(first, many) {
		for (let i = first; i < first + many; i++)
			if (!this.rows.has(i)) {
				this.ask(first - 40, many + 80);
				return;
			}
	}

	complain(error) {
		this.note.textContent = error.message;
	}

	take(answer, args) {
		if (args.doc !== this.app.state.doc || args.source !== this.app.state.source || args.sort !== this.sort)
			return;
		answer.rows.forEach((row, i) => this.rows.set(answer.first + i, row));
		this.sums = answer.sums;
		const { sums } = answer;
		this.note.textContent = this.isLives ? `${plural(answer.all, "allocation")}, ${bytes(sums.size ?? 0)}` :
			`${plural(answer.all, "row")}: ${bytes(sums.live ?? 0)} at the cursor, ${bytes(sums.peak ?? 0)} at the peak`;
		if (this.fresh || this.list.count !== answer.all) {
			this.fresh = false;
			this.list.setCount(answer.all);
		} else {
			this.list.paint();
		}
		this.app.shown();
	}

	row(i) {
		const row = this.rows.get(i), { app } = this;
		if (!row)
			return null;
		const most = { live: this.sums?.live, peak: this.sums?.peak, left: this.sums?.left, bytes: this.sums?.bytes, size: this.sums?.size };
		return h("div", {
			class: `vlist-row ${this.isLives ? "lives" : "groups"}${row.life !== undefined && row.life === app.state.life ? " chosen" : ""}`, role: "option",
			title: row.name, onclick: () => this.pick(row),
		}, this.columns.map(([key, , text]) => h("span", {
			class: key === "name" ? "what" : "much",
			vars: most[key] ? { "--share": `${(100 * row[key]) / most[key]}%` } : {},
		}, text(row[key]))));
	}

	pick(row) {
		const { app } = this;
		if (row.life !== undefined)
			app.set({ life: row.life });
		else if (this.chosen === "stack")
			app.set({ life: row.example });
		else
			app.addTerm({ by: this.chosen === "churn" ? "site" : this.chosen, is: row.name });
	}
}
