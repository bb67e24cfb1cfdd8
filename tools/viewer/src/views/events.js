/* events.js - the list of events beside the allocator, filtered as all views are, and by the kind of event. */
import { h } from "../ui/dom.js";
import { brief, bytes, count, duration } from "../ui/format.js";
import { VirtualList } from "../ui/vlist.js";

const CHOICES = [["all", "all events"], ["raw", "all records"], ["blocks", "allocations and frees"], ["allocs", "allocations"], ["segments", "segments"],
	["refused", "refused"], ["annotations", "annotations"]];
const SIGN = { alloc: "+", free_requested: "–", free_completed: "–", segment_alloc: "+", segment_map: "+", segment_free: "–",
	segment_unmap: "–" };

const SHORT = { free_requested: "free", free_completed: "free", segment_alloc: "segment", segment_free: "segment",
	segment_map: "map", segment_unmap: "unmap" };

export class Events {
	constructor(app) {
		this.app = app;
		this.choice = h("select", { "aria-label": "which events", onchange: () => app.set({ events: this.choice.value }) },
			CHOICES.map(([value, text]) => h("option", { value }, text)));
		this.number = h("span", { class: "soft" });
		this.list = new VirtualList({
			rowHeight: 42, label: "events", row: (row, i) => this.row(row, i), ask: (first, many) => this.ask(first, many),
		});
		this.list.element.addEventListener("keydown", (event) => this.key(event));
		this.element = h("section", { class: "events" }, h("div", { class: "events-head" }, this.choice, this.number),
			this.list.element);
		this.want = app.wants("events", (answer, args) => this.take(answer, args));
	}

	/* The question to the worker, without the range of rows and the cursor. */
	get wanted() { return { ...this.app.of, which: this.app.state.events }; }

	ask(first, many) { this.want({ ...this.wanted, first, count: many, at: this.app.state.at }); }

	take(answer, { first: _, count: many, at, ...of }) {
		if (JSON.stringify(of) !== this.listed)
			return;
		this.number.textContent = answer.all === this.app.source.events ? count(answer.all) :
			`${count(answer.all)} of ${count(this.app.source.events)}`;
		this.near = answer.near;
		this.list.take(answer.first, answer.rows, answer.all);
		if (this.following && at === this.at) {
			this.following = false;
			this.list.reveal(this.near);
		}
	}

	/* A new list begins at the cursor; a cursor that moves is scrolled into sight. */
	update() {
		const listed = JSON.stringify(this.wanted), { at, events } = this.app.state;
		this.choice.value = events;
		this.list.empty.textContent = this.app.source.events ? "No event passes the filter." : "No history was recorded.";
		if (this.listed !== listed)
			this.list.rows.clear();
		if (this.listed !== listed || this.at !== at) {
			Object.assign(this, { listed, at, following: true });
			this.ask(Math.max(0, Math.floor(this.list.first) - 40), 120);
		}
		this.list.paint();
	}

	row(row, i) {
		const { app } = this;
		const chosen = i === this.near, sign = SIGN[row.action] ?? "", waits = row.waited > 0 ? `, done ${duration(row.waited)} later` : "";
		return h("div", {
			class: `vlist-row event ${row.action}${chosen ? " chosen" : ""}${row.life >= 0 && row.life === app.state.life ? " pinned" : ""}`,
			role: "option", "aria-selected": String(chosen), title: `${row.action}, ${row.name}`,
			onclick: () => app.set({ at: row.row + 1, life: row.life }),
		}, h("div", {}, h("span", { class: "when" }, duration(row.time)), h("span", { class: "does" }, SHORT[row.action] ?? row.action),
			h("code", {}, row.block), h("span", { class: "much" }, row.action === "annotate" ? "" : `${sign} ${bytes(row.size)}`)),
		h("div", { class: "what" }, [row.action === "annotate" ? "" : row.stream, brief(row.name)].filter(Boolean).join(" · ") + waits));
	}

	/* Move the cursor to the next or previous event of the list. */
	key(event) {
		const by = { ArrowDown: 1, ArrowUp: -1, PageDown: this.list.inSight, PageUp: -this.list.inSight }[event.key];
		if (!by)
			return;
		event.preventDefault();
		event.stopPropagation();
		const row = this.list.rows.get(Math.max(0, Math.min(this.list.count - 1, this.near + by)));
		if (row)
			this.app.set({ at: row.row + 1, life: row.life });
	}
}

