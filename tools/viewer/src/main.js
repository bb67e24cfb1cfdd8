/*
 * main.js - the page: opens what is in it, and puts up head, strip, view and side. Who owns what: README.md.
 */
/* global WORKER_TEXT, JOURNALS */
import { Asker } from "./ask.js";
import { Incoming } from "./incoming.js";
import { Selection } from "./selection.js";
import { Axis } from "./model/axis.js";
import { h, replace } from "./ui/dom.js";
import { Head } from "./ui/head.js";
import { Side } from "./ui/side.js";
import { Strip } from "./ui/strip.js";
import { keys } from "./ui/keys.js";
import { acceptDrops } from "./ui/drop.js";
import { VIEWS } from "./views/views.js";
import { WAYS } from "./model/groups.js";

class App {
	constructor(page) {
		this.page = page;
		this.asker = new Asker(WORKER_TEXT);
		this.incoming = new Incoming((number, text) => this.asker.ask("packPart", { number, text }));
		this.selection = new Selection();
		this.docs = [];
		this.views = new Map();
		this.readTheme();
		this.selection.listen((changed) => this.change(changed));
		matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.readTheme());
		acceptDrops(this);
	}

	get state() { return this.selection.state; }
	get doc() { return this.docs[this.state.doc]; }
	get source() { return this.doc?.sources[this.state.source]; }
	/* What each question to the worker names. */
	get of() { return { doc: this.state.doc, source: this.state.source }; }
	/* The length of the axis, and the window on it. */
	get span() { return this.state.mode === "order" ? this.source.events + 1 : this.source.length; }
	get window() { return { from: this.state.from ?? 0, to: this.state.to ?? this.span }; }
	/* The state that is looked at: where the cursor is, or the peak. */
	get moment() { return this.state.at ?? this.filtered?.peak ?? this.source.peak; }

	/* Where state @s is on the axis, and the state at place @x; undefined until the times are here. */
	place(s) { return this.axis?.place(this.state.mode, s); }
	stateAt(x) { return this.axis?.state(this.state.mode, x); }

	set(changes) { this.selection.set(changes); }
	ask(what, args, transfer) { return this.asker.ask(what, { ...this.of, ...args }, transfer); }

	fail(error) {
		clearTimeout(this.failing);
		this.message?.remove();
		this.message = h("div", { class: "message", role: "alert" }, String(error?.message ?? error));
		document.body.append(this.message);
		this.failing = setTimeout(() => this.message.remove(), 12000);
	}

	readTheme() {
		const wanted = this.selection.state.theme;
		this.dark = wanted ? wanted === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
		document.documentElement.dataset.theme = this.dark ? "dark" : "light";
		this.redraw?.();
	}

	/* Snapshots that lie in the page. */
	async openAll() {
		performance.mark("script");
		for (const { number, text } of this.incoming.rest()) {
			try {
				performance.mark("asked");
				const doc = await this.asker.ask("openPack", { number, text });
				performance.mark("open");
				this.add(doc);
			} catch (error) {
				this.fail(error);
			}
		}
		if (!this.docs.length)
			this.welcome();
	}

	/* A snapshot is open: the first is shown at once. */
	add(doc) {
		this.docs[doc.number] = doc;
		if (!this.head)
			this.build();
		else
			this.head.update(new Set(["docs"]));
		this.view?.update?.(new Set(["docs"]));
	}

	welcome() {
		replace(this.page, h("div", { class: "welcome" }, h("div", {},
			h("h1", {}, "Drop a snapshot here"),
			h("p", {}, `A snapshot of gpumem (JSON), ${JOURNALS ? "the journal of a process, " : ""}or PyTorch's (pickle or JSON). `,
				"Nothing leaves this computer: the page cannot make any request."),
			h("p", {}, "Or have one in the page from the start: ", h("code", {}, "gpumem view --open FILE")))));
	}

	/* What came by the address bar may be of another page, or nobody's. */
	hold() {
		const { state, source } = this, number = (value, most) => Number.isFinite(value) && value >= 0 && value <= most;
		if (!VIEWS.some((view) => view.name === state.view))
			state.view = VIEWS[0].name;
		if (!["time", "order"].includes(state.mode))
			state.mode = source.mode;
		if (!WAYS.includes(state.by))
			state.by = "site";
		if (!number(state.from, this.span) || !number(state.to, this.span * 1.001) || state.from >= state.to)
			state.from = state.to = null;
		if (state.at !== null && !(number(state.at, source.events) && Number.isInteger(state.at)))
			state.at = null;
		if (!(number(state.life, source.lives - 1) && Number.isInteger(state.life)))
			state.life = -1;
		state.terms = state.terms.filter((term) => !term.by || WAYS.includes(term.by));
	}

	/* The source that is looked at first is the one with the most events. */
	choose() {
		if (this.source)
			return;
		const doc = this.doc ? this.state.doc : this.docs.findIndex(Boolean);
		const { sources } = this.docs[doc];
		const pools = sources.filter((source) => source.level === "pool" && source.lives);
		const best = (pools.length ? pools : sources).reduce((a, b) => b.lives > a.lives ? b : a, sources[0]);
		Object.assign(this.state, { doc, source: best?.number ?? 0 });
	}

	build() {
		if (!location.hash.includes("source="))
			this.state.source = -1;
		this.choose();
		this.hold();
		this.strip = new Strip(this);
		this.head = new Head(this);
		this.side = new Side(this);
		this.stage = h("main", { class: "stage" });
		replace(this.page, this.head.element, this.strip.element,
			h("div", { class: "middle" }, this.stage, this.side.element));
		keys(this);
		this.show();
		this.watchSize();
		this.readAxis();
		if (this.state.terms.length)
			this.filter();
	}

	/* Draw anew when the page gets another size; the observer speaks at once, too, of the size that is drawn already. */
	watchSize() {
		let known = `${this.page.clientWidth} ${this.page.clientHeight}`;
		new ResizeObserver(() => {
			const now = `${this.page.clientWidth} ${this.page.clientHeight}`;
			if (now !== known)
				this.redraw();
			known = now;
		}).observe(this.page);
	}

	/* Put up the view that is chosen. Views are made once, and are told what changed while they are shown. */
	show() {
		const chosen = VIEWS.find((view) => view.name === this.state.view) ?? VIEWS[0];
		if (!this.views.has(chosen.name))
			this.views.set(chosen.name, new chosen.View(this));
		this.view = this.views.get(chosen.name);
		replace(this.stage, this.view.element);
		this.strip.element.hidden = chosen.timeless === true;
		this.makeRoom();
		this.redraw();
	}

	/* A wide view has the side only while an allocation is pinned; one without the strip never. */
	makeRoom() {
		const chosen = VIEWS.find((view) => view.name === this.state.view);
		this.side.element.hidden = chosen.timeless === true || (chosen.wide === true && this.state.life < 0);
	}

	/* The times of all events, for what is placed along the axis. */
	async readAxis() {
		this.axis = null;
		const of = this.of, { time } = await this.ask("times");
		if (of.doc !== this.state.doc || of.source !== this.state.source)
			return;
		this.axis = new Axis({ events: { time }, count: time.length }, this.doc.timeUs);
		this.tell(new Set(["axis"]));
	}

	async filter() {
		try {
			this.filtered = await this.ask("find", { terms: this.state.terms });
		} catch (error) {
			this.fail(error);
			this.set({ terms: [] });
			return;
		}
		if (!this.state.terms.length)
			this.filtered = null;
		this.tell(new Set(["filtered"]));
	}

	change(changed) {
		if (!this.head)
			return;
		if (changed.has("theme"))
			this.readTheme();
		if (changed.has("doc") || changed.has("source")) {
			this.choose();
			Object.assign(this.state, { from: null, to: null, at: null, life: -1, mode: this.source.mode });
			changed.add("mode");
			this.filtered = null;
			this.readAxis();
			if (this.state.terms.length)
				this.filter();
		}
		if (changed.has("address"))
			this.hold();
		/* A window is in the axis' own unit. */
		if (changed.has("mode") && !changed.has("from"))
			Object.assign(this.state, { from: null, to: null });
		if (changed.has("terms"))
			this.filter();
		if (changed.has("view"))
			this.show();
		this.makeRoom();
		this.tell(changed);
	}

	tell(changed) {
		for (const part of [this.head, this.view, this.strip, this.side])	/* what is looked at is asked for first */
			part?.update?.(changed);
	}

	/* A view has its first picture: for the benchmark, and for tests. */
	shown() {
		if (!this.firstPicture)
			requestAnimationFrame(() => { this.firstPicture = performance.now(); });
	}

	redraw() {
		this.tell(new Set(["size"]));
	}

	/* ---- what several parts do ---- */

	addTerm(term) {
		const { terms } = this.state;
		if (!terms.some((one) => JSON.stringify(one) === JSON.stringify(term)))
			this.set({ terms: [...terms, term] });
	}

	dropTerm(at) {
		this.set({ terms: this.state.terms.filter((_, i) => i !== at) });
	}

	/* The window @from to @to, held within the axis. */
	zoom(from, to) {
		const { span } = this, least = this.state.mode === "order" ? 4 : Math.min(span, 0.5);
		const length = Math.max(least, Math.min(span, to - from)), middle = (from + to) / 2;
		const begin = Math.max(0, Math.min(span - length, length === to - from ? from : middle - length / 2));
		if (begin <= 0 && begin + length >= span)
			this.set({ from: null, to: null });
		else
			this.set({ from: begin, to: begin + length });
	}
}

const app = new App(document.getElementById("page"));
globalThis.gpumem = app;		/* for who looks with the browser's tools, and for tests */
/* The script comes before the snapshots: while the browser reads those, the worker begins to unpack. */
if (document.readyState === "loading")
	document.addEventListener("DOMContentLoaded", () => app.openAll());
else
	app.openAll();
