/*
 * main.js - the page: opens what is in it, and puts up head, strip, view and side. Who owns what: README.md.
 */
/* global WORKER_TEXT, JOURNALS */
import { Asker } from "./ask.js";
import { Incoming } from "./incoming.js";
import { Store } from "./store.js";
import { Axis } from "./model/axis.js";
import { parseTerm } from "./model/filter.js";
import { h, replace } from "./ui/dom.js";
import { shortNames } from "./ui/format.js";
import { Chips } from "./ui/chips.js";
import { Head } from "./ui/head.js";
import { Side } from "./ui/side.js";
import { Strip } from "./ui/strip.js";
import { keys } from "./ui/keys.js";
import { acceptDrops } from "./ui/drop.js";
import { VIEWS } from "./views/views.js";

const DARK = matchMedia("(prefers-color-scheme: dark)");

class App {
	constructor(page) {
		this.page = page;
		this.asker = new Asker(WORKER_TEXT);
		this.incoming = new Incoming((number, text) => this.asker.ask("packPart", { number, text }));
		this.docs = [];
		this.views = new Map();
		this.store = new Store((state) => this.fit(state), () => this.update());
		this.wantFound = this.wants("find", (found, args) => {
			this.found = { ...found, of: JSON.stringify(args) };
			this.update();
		});
		this.readTheme();
		DARK.addEventListener("change", () => this.update());
		acceptDrops(this);
	}

	get state() { return this.store.state; }
	get doc() { return this.docs[this.state.doc]; }
	get source() { return this.doc?.sources[this.state.source]; }
	/* What snapshot @number is called where there is little room. */
	nameOf(number) {
		const there = this.docs.filter(Boolean);
		if (this.named?.length !== there.length)
			this.named = shortNames(there.map(({ name }) => name));
		return this.named[there.findIndex((one) => one.number === number)] ?? "";
	}

	/* What each question to the worker names. */
	get of() { return { doc: this.state.doc, source: this.state.source, terms: this.state.terms }; }
	/* The length of the axis, the window on it, and the same for the worker: null is all of it. */
	get span() { return this.state.mode === "order" ? this.source.events + 1 : this.source.length; }
	get window() { return { from: this.state.from ?? 0, to: this.state.to ?? this.span }; }
	get part() { return { mode: this.state.mode, from: this.state.from, to: this.state.to }; }
	/* What the filter leaves; null: there is none, or it is not known yet. */
	get filtered() { return this.state.terms.length && this.found?.of === JSON.stringify(this.of) ? this.found : null; }
	/* The state that is looked at. */
	get moment() {
		const { at } = this.state, of = this.filtered ?? this.source;
		return at === null ? of.focus : at === "peak" ? of.peak : at;
	}

	/* Of a peak that the history does not show: what is known of it (heldAbout). null: the history shows the peak. */
	get held() {
		const { held } = this.filtered ?? this.source;
		return held?.known && !held.shown ? held : null;
	}
	get looksAtHeld() { return this.held !== null && (this.state.at === "peak" || (this.state.at === null && this.held.first)); }

	/* The refused call that this source opens at: what it asked for, and why it was refused in a few words; null: there is none. */
	get refusal() {
		const { asked } = this.source, { failure } = this.doc, { refused_by: by, cached_bytes: idle } = failure ?? {};
		const reason = !failure ? "" : by && by !== "driver" ? `by ${by}` : idle >= asked ? "enough was idle, in pieces too small" : "more than was free";
		return Number.isFinite(asked) ? { asked, reason } : null;
	}

	/* The snapshot that this one is compared with: the one that is chosen, or the next; -1: there is none. */
	get partner() {
		const { other, doc } = this.state, numbers = this.docs.filter(Boolean).map((one) => one.number).filter((one) => one !== doc);
		return numbers.includes(other) ? other : numbers.find((one) => one > doc) ?? numbers[0] ?? -1;
	}

	/* Where state @s is on the axis, and the state at place @x; undefined until the times are here. */
	place(s) { return this.axis?.place(this.state.mode, s); }
	stateAt(x) { return this.axis?.state(this.state.mode, x); }

	/* Another source or another axis has a window of its own. */
	set(changes) {
		const { state } = this, other = (key) => key in changes && changes[key] !== state[key];
		const window = { from: null, to: null, low: null, high: null, first: null, last: null };
		if (other("doc") || other("source"))
			this.store.set({ ...window, at: null, life: -1, mode: "", path: [], ...changes });
		else
			this.store.set(other("mode") ? { ...window, ...changes } : changes);
	}

	ask(what, args, transfer) { return this.asker.ask(what, { ...this.of, ...args }, transfer); }

	/* Asker.latest(), whose answers are of what is looked at. */
	wants(what, then) {
		return this.asker.latest(what, (answer, args) => {
			this.succeed(what);
			if (args.doc !== this.state.doc || args.source !== this.state.source)
				return false;
			return then(answer, args);
		}, (error) => this.fail(error, what));
	}

	/* Say what went wrong with @what, until it goes well or the user has seen it. */
	fail(error, what) {
		this.message?.remove();
		this.message = h("div", { class: "message", role: "alert", title: "click: away with it", onclick: () => this.message.remove() },
			String(error?.message ?? error));
		this.message.about = what;
		document.body.append(this.message);
	}

	succeed(what) {
		if (this.message?.about === what)
			this.message.remove();
	}

	readTheme() {
		const { theme } = this.state;
		const dark = theme ? theme === "dark" : DARK.matches;
		if (this.dark !== dark)
			document.documentElement.dataset.theme = dark ? "dark" : "light";
		this.dark = dark;
	}

	/* Snapshots that lie in the page. The first is shown at once, or the one that the address names. */
	async openAll() {
		performance.mark("script");
		for (const { number, text } of this.incoming.rest()) {
			try {
				performance.mark("asked");
				const doc = await this.asker.ask("openPack", { number, text });
				performance.mark("open");
				await this.add(doc, doc.number >= this.state.doc);
			} catch (error) {
				this.fail(error, "open");
			}
		}
		if (!this.docs.length)
			this.welcome();
		else if (!this.head)
			this.build();
	}

	async add(doc, ready = true) {
		if (doc.sources[this.state.source]?.pending && this.state.doc === doc.number)
			await this.makeWholes(doc);
		this.docs[doc.number] = doc;
		if (this.head)
			this.update();
		else if (ready)
			this.build();
	}

	/* Whole GPUs are put together when one is asked for. */
	async makeWholes(doc) {
		for (const source of await this.asker.ask("wholes", { doc: doc.number }))
			doc.sources[source.number] = source;
	}

	async chooseSource(number) {
		if (this.doc.sources[number].pending)
			await this.makeWholes(this.doc);
		this.set({ source: number });
	}

	welcome() {
		replace(this.page, h("div", { class: "welcome" }, h("div", {},
			h("h1", {}, "Drop a snapshot here"),
			h("p", {}, `A snapshot of gpumem (JSON), ${JOURNALS ? "the journal of a process, " : ""}or PyTorch's (pickle or JSON). `,
				"Nothing leaves this computer: the page cannot make any request."),
			h("p", {}, "Or have one in the page from the start: ", h("code", {}, "gpumem view --open FILE")))));
	}

	/* What the address names may be another page's. The source that is looked at first is the one with the most allocations. */
	fit(state) {
		if (!this.docs.length)
			return;
		if (!this.docs[state.doc])
			state.doc = this.docs.findIndex(Boolean);
		const { sources } = this.docs[state.doc];
		if (!sources[state.source] || sources[state.source].pending) {
			const pools = sources.filter(({ level, lives }) => level === "pool" && lives);
			state.source = (pools.length ? pools : sources).reduce((a, b) => b.lives > a.lives ? b : a).number;
		}
		const source = sources[state.source], is = (value, most) => Number.isInteger(value) && value >= 0 && value <= most;
		const isPart = (from, to, most) => from !== null && to !== null && from >= 0 && from < to && to <= most;
		state.mode ||= source.mode;
		state.view ||= this.docs[state.doc].crash?.wish === false ? "summary" : "timeline";
		if (!isPart(state.from, state.to, (state.mode === "order" ? source.events + 1 : source.length) * 1.001))
			state.from = state.to = null;
		if (!isPart(state.low, state.high, 2 ** 60))
			state.low = state.high = null;
		if (!isPart(state.first, state.last, 2 ** 60))
			state.first = state.last = null;
		if (state.at !== "peak" && !is(state.at, source.events))
			state.at = null;
		if (!is(state.life, source.lives - 1))
			state.life = -1;
	}

	build() {
		this.store.begin();
		this.strip = new Strip(this);
		this.head = new Head(this);
		this.chips = new Chips(this);
		this.side = new Side(this);
		this.stage = h("main", { class: "stage" });
		replace(this.page, this.head.element, this.strip.element, this.chips.element,
			h("div", { class: "middle" }, this.stage, this.side.element));
		keys(this);
		this.resized = new ResizeObserver(() => this.update());		/* lines of text above and below a picture come and go */
		this.update();
		this.resized.observe(this.page);
	}

	/* Something is another: every part that is shown asks the store, and the worker for what it has not. */
	update() {
		this.readTheme();
		if (!this.head)
			return;
		const { state } = this, chosen = VIEWS.find(({ name }) => name === state.view);
		if (!this.views.has(chosen.name)) {
			const view = new chosen.View(this);
			this.views.set(chosen.name, view);
			view.element.querySelectorAll(".canvas").forEach((one) => this.resized.observe(one));
		}
		this.view = this.views.get(chosen.name);
		if (this.stage.firstChild !== this.view.element)
			replace(this.stage, this.view.element);
		this.strip.element.hidden = chosen.timeless === true;
		this.side.element.hidden = chosen.timeless === true || (chosen.wide === true && state.life < 0);
		this.readAxis();
		for (const part of [this.head, this.view, this.strip, this.side, this.chips])	/* what is looked at is asked for first */
			part.update();
		if (state.terms.length)
			this.wantFound(this.of);
	}

	/* The times of all events, for what is placed along the axis. */
	async readAxis() {
		const of = `${this.state.doc} ${this.state.source}`;
		if (this.axisOf === of)
			return;
		this.axisOf = of;
		this.axis = null;
		const { time } = await this.ask("times");
		if (this.axisOf !== of)
			return;
		this.axis = new Axis({ events: { time }, count: time.length }, this.doc.timeUs);
		this.update();
	}

	/* A view has its first picture: for the benchmark, and for tests. */
	shown() {
		if (!this.firstPicture)
			requestAnimationFrame(() => { this.firstPicture = performance.now(); });
	}

	/* ---- what several parts do ---- */

	/* Filter by @term, too; whether it is one. */
	addTerm(term) {
		const { terms } = this.state, text = term.replace(/^(-?alive@)cursor$/, this.looksAtHeld ? "$1peak" : `$1#${this.moment}`), device = /^device:(\d+|host)$/.exec(text);
		try {
			if (device)
				this.chooseDevice(device[1] === "host" ? null : Number(device[1]));
			else if (parseTerm(text) && !terms.includes(text))
				this.set({ terms: [...terms, text] });
		} catch (error) {
			this.fail(error, "filter");
			return false;
		}
		this.succeed("filter");
		return true;
	}

	/* The source of @device at the level that is looked at, or else the one that tells most. */
	chooseDevice(device) {
		const all = this.doc.sources.filter((source) => source.device === device && !source.pending);
		if (!all.length)
			throw new Error(`this snapshot has nothing of ${device === null ? "the host" : `GPU ${device}`}`);
		this.set({ source: (all.find(({ level }) => level === this.source.level) ?? all.at(-1)).number });
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
