/* events.js - the list of events beside the allocator's state: filtered as everything is, and by what they do. */
import { h } from "../ui/dom.js";
import { brief, bytes, count, duration } from "../ui/format.js";
import { VirtualList } from "../ui/vlist.js";

const CHOICES = [
	["all events", []], ["allocations and frees", ["alloc", "free_requested", "free_completed"]], ["allocations", ["alloc"]],
	["segments", ["segment_alloc", "segment_free", "segment_map", "segment_unmap"]], ["refused", ["oom"]],
	["annotations", ["annotate"]],
];
const SIGN = { alloc: "+", free_requested: "–", free_completed: "–", segment_alloc: "+", segment_map: "+", segment_free: "–",
	segment_unmap: "–" };

const SHORT = { free_requested: "free", free_completed: "freed", segment_alloc: "segment", segment_free: "segment",
	segment_map: "map", segment_unmap: "unmap" };

export class Events {
	constructor(app) {
		this.app = app;
		this.rows = new Map();
		this.actions = [];
		this.choice = h("select", { "aria-label": "which events", onchange: () => this.choose() },
			CHOICES.map(([name], i) => h("option", { value: String(i) }, name)));
		this.number = h("span", { class: "soft" });
		this.list = new VirtualList({
			rowHeight: 26, label: "events", row: (i) => this.row(i), range: (first, many) => this.see(first, many),
		});
		this.list.element.addEventListener("keydown", (event) => this.key(event));
		this.element = h("section", { class: "events" }, h("div", { class: "events-head" }, this.choice, this.number),
			this.list.element);
		this.want = app.asker.latest("events", (answer, args) => this.take(answer, args), (error) => app.fail(error));
	}

	choose() {
		this.actions = CHOICES[Number(this.choice.value)][1];
		this.restart();
	}

	/* Everything about the list may be another: begin where the cursor is. */
	restart() {
		this.rows.clear();
		this.fresh = true;
		this.ask(0, 60);
	}

	ask(first, many) {
		this.want({ ...this.app.of, actions: this.actions, first: Math.max(0, first), count: many, near: this.app.moment - 1 });
	}

	see(first, many) {
		for (let i = first; i < first + many; i++)
			if (!this.rows.has(i)) {
				this.ask(first - 40, many + 80);
				return;
			}
	}

	take(answer, args) {
		if (args.actions !== this.actions || args.doc !== this.app.state.doc || args.source !== this.app.state.source)
			return;
		if (this.rows.size > 4000)
			this.rows.clear();
		answer.rows.forEach((row, i) => this.rows.set(answer.first + i, row));
		this.number.textContent = answer.all === this.app.source.events ? count(answer.all) :
			`${count(answer.all)} of ${count(this.app.source.events)}`;
		this.near = answer.near;
		if (this.list.count !== answer.all || this.fresh)
			this.list.setCount(answer.all);
		else
			this.list.paint();
		if (this.fresh || this.following) {
			this.fresh = this.following = false;
			this.list.reveal(this.near);
		}
	}

	update(changed) {
		const has = (...keys) => keys.some((key) => changed.has(key));
		if (has("doc", "source", "filtered"))
			this.restart();
		else if (has("size") && !this.rows.size)
			this.restart();
		else if (has("at", "axis")) {
			this.following = true;
			this.ask(Math.floor(this.list.first) - 40, 120);
		} else if (has("size", "life")) {
			this.list.paint();
		}
	}

	row(i) {
		const row = this.rows.get(i), { app } = this;
		if (!row)
			return null;
		const chosen = row.row + 1 === app.moment, sign = SIGN[row.action] ?? "";
		return h("div", {
			class: `vlist-row event ${row.action}${chosen ? " chosen" : ""}${row.life >= 0 && row.life === app.state.life ? " pinned" : ""}`,
			role: "option", "aria-selected": String(chosen), title: `${row.action}, ${row.name}`,
			onclick: () => app.set({ at: row.row + 1, life: row.life }),
		}, h("span", { class: "when" }, duration(row.time)), h("span", { class: "does" }, SHORT[row.action] ?? row.action),
		h("span", { class: "much" }, row.action === "annotate" ? "" : `${sign} ${bytes(row.size)}`), h("span", { class: "what" }, brief(row.name)));
	}

	/* The next or the previous of those that are listed. */
	key(event) {
		const by = { ArrowDown: 1, ArrowUp: -1, PageDown: this.list.inSight, PageUp: -this.list.inSight }[event.key];
		if (!by)
			return;
		event.preventDefault();
		event.stopPropagation();
		const row = this.rows.get(Math.max(0, Math.min(this.list.count - 1, this.near + by)));
		if (row)
			this.app.set({ at: row.row + 1, life: row.life });
	}
}

