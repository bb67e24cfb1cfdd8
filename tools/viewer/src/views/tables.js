/*
 * tables.js - tables of sums by call site, module, stream and so on, of single allocations and of segments, sorted by
 * any column and searched in all frames of all stacks. A click on a row filters every view by it, or pins the
 * allocation.
 */
import { h, replace } from "../ui/dom.js";
import { brief, bytes, count, duration, plural } from "../ui/format.js";
import { VirtualList } from "../ui/vlist.js";

const GROUPS = [["site", "Call sites"], ["stack", "Stacks"], ["module", "Modules"], ["stream", "Streams"], ["size", "Sizes"],
	["kind", "Kinds"], ["thread", "Threads"], ["phase", "Phases"], ["class", "Classes"]];
/* The name of each tab, and the changes to the store that it makes. */
const TABS = [
	...GROUPS.map(([by, title]) => [title, { table: "groups", by, sort: "" }]), ["Never freed", { table: "leaks", sort: "" }],
	["Longest-lived", { table: "longest", sort: "" }], ["Churn", { table: "groups", by: "site", sort: "allocs" }],
	["Segments", { table: "segments", sort: "" }],
];
const SORTS = { groups: "live", leaks: "size", longest: "lifetime", segments: "size" };

const GROUP_COLUMNS = [
	["label", "name", brief], ["live", "at the cursor", bytes], ["blocks", "blocks", count], ["peak", "at the peak", bytes],
	["left", "never freed", bytes], ["bytes", "allocated", bytes], ["allocs", "allocations", count], ["longest", "longest life", (us) => us ? duration(us) : "–"],
];
/* Shorten a stream to the last digits of its handle, in which streams differ. */
const shortStream = (name) => name.replace(/ ?stream ?/, "").replace(/^(0x).{10,}(.{6})$/, "$1…$2");
const LIFE_COLUMNS = [
	["label", "call site", brief], ["size", "size", bytes], ["lifetime", "lived", duration], ["born", "from", duration],
	["addr", "address", (name) => name], ["kind", "kind", (value) => value], ["stream", "stream", shortStream],
];
const SEGMENT_COLUMNS = [
	["label", "segment", (name) => name], ["size", "size", bytes], ["live", "live", bytes], ["free", "free", bytes], ["blocks", "blocks", count],
	["kind", "kind", (value) => value], ["stream", "stream", shortStream], ["pool", "private pool", (value) => value || "–"],
];
const UNSORTED = new Set(["label", "addr", "kind", "stream"]);

export class Tables {
	constructor(app) {
		this.app = app;
		this.tabs = h("nav", { class: "subtabs", "aria-label": "tables" }, TABS.map(([title, sets]) =>
			h("button", { type: "button", onclick: () => app.set({ ...sets, up: 0 }) }, title)));
		this.search = h("input", { class: "field", type: "search", placeholder: "Search frames and blocks", "aria-label": "search in the table",
			oninput: () => app.set({ find: this.search.value }) });
		this.note = h("span", { class: "soft" });
		this.head = h("div", { class: "table-head", role: "row" });
		this.list = new VirtualList({
			rowHeight: 28, label: "rows", row: (row) => this.row(row), ask: (first, many) => this.ask(first, many),
		});
		this.element = h("div", { class: "stage" }, h("div", { class: "tools" }, this.tabs), h("div", { class: "tools" }, this.search, this.note),
			h("div", { class: "table" }, this.head, this.list.element));
		this.want = app.asker.latest("table", (answer, args) => this.take(answer, args), (error) => { this.note.textContent = error.message; });
	}

	get isLives() { return ["leaks", "longest"].includes(this.app.state.table); }
	/* The kind of rows: "groups", "segments" or "lives". */
	get rowsAre() { return this.isLives ? "lives" : this.app.state.table; }
	get columns() { return { groups: GROUP_COLUMNS, segments: SEGMENT_COLUMNS, lives: LIFE_COLUMNS }[this.rowsAre]; }
	get sort() {
		const { sort, table } = this.app.state;
		return this.columns.some(([key]) => key === sort) && !(this.isLives && UNSORTED.has(sort)) ? sort : SORTS[table];
	}
	/* The question to the worker, without the range of rows. */
	get wanted() {
		const { app } = this, { table, by, up, find, at } = app.state;
		return { ...app.of, what: table, by, sort: this.sort, up: up === 1, search: find.trim(), at, window: app.part };
	}

	mark() {
		const { state } = this.app, { sort } = this;
		const pressed = TABS.findLastIndex(([, sets]) => sets.table === state.table && (sets.by ?? state.by) === state.by && (!sets.sort || sets.sort === sort));
		[...this.tabs.children].forEach((tab, i) => tab.setAttribute("aria-pressed", String(i === pressed)));
		this.head.className = `table-head ${this.rowsAre}`;
		replace(this.head, this.columns.map(([key, title]) => h("button", {
			type: "button", disabled: this.isLives && UNSORTED.has(key),
			"aria-sort": key === sort ? state.up ? "ascending" : "descending" : "none",
			onclick: () => this.app.set({ sort: key, up: Number(key === sort ? !state.up : key === "label") }),
		}, title, key === sort ? state.up ? " ↑" : " ↓" : "")));
	}

	update() {
		const asked = JSON.stringify(this.wanted);
		if (document.activeElement !== this.search)
			this.search.value = this.app.state.find;
		if (this.asked === asked) {
			this.list.paint();
			return;
		}
		this.asked = asked;
		this.mark();
		this.list.rows.clear();
		this.ask(0, 80);
	}

	async rowsToSave() { return (await this.app.ask("table", { ...this.wanted, first: 0, count: 1e9 })).rows.map(({ example: _, ...row }) => row); }

	ask(first, many) { this.want({ ...this.wanted, first, count: many }); }

	take(answer, { first: _, count: many, ...of }) {
		if (JSON.stringify(of) !== this.asked)
			return;
		this.sums = answer.sums;
		const { sums } = answer;
		this.note.textContent = this.isLives ? `${plural(answer.all, "allocation")}, ${bytes(sums.size ?? 0)}` :
			this.rowsAre === "segments" ? `${plural(answer.all, "segment")} at the cursor: ${bytes(sums.size ?? 0)}, of which ${bytes(sums.free ?? 0)} are free` :
			`${plural(answer.all, "row")}: ${bytes(sums.live ?? 0)} at the cursor, ${bytes(sums.peak ?? 0)} at the peak`;
		this.list.empty.textContent = this.app.state.terms.length || of.search ? "No allocation passes the filter and the search." :
			{ segments: "Nothing was live or reserved.", leaks: "Everything was freed." }[of.what] ?? "No allocation was recorded.";
		this.list.take(answer.first, answer.rows, answer.all);
		this.app.shown();
	}

	row(row) {
		const { app } = this;
		const most = { live: this.sums?.live, peak: this.sums?.peak, left: this.sums?.left, bytes: this.sums?.bytes, size: this.sums?.size };
		return h("div", {
			class: `vlist-row ${this.rowsAre}${(row.life !== undefined && row.life === app.state.life) || app.state.terms.includes(this.termOf(row)) ? " chosen" : ""}`, role: "option",
			title: row.name ?? row.label, onclick: () => this.pick(row),
		}, this.columns.map(([key, , text]) => h("span", {
			class: key === "label" ? "what" : "much", ...(key === "stream" ? { title: row.stream } : {}),
			vars: most[key] ? { "--share": `${(100 * row[key]) / most[key]}%` } : {},
		}, text(row[key]))));
	}

	/* Return the term of the filter for @row; "": the row is one allocation. */
	termOf({ name, example }) {
		const { rowsAre } = this;
		return rowsAre === "groups" ? `${this.app.state.by}=${name}` : rowsAre === "segments" && example < 0 ? `segment=${name}` : "";
	}

	pick(row) {
		const { app } = this, term = this.termOf(row);
		if (!term || (this.rowsAre === "groups" && app.state.by === "stack"))
			app.set({ life: row.life ?? row.example });
		if (term)
			app.addTerm(term);
	}
}
