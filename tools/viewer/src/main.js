/*
 * main.js - the App: opens the snapshots in the page, and builds head, strip, view and side. README.md says who owns
 * what.
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
	/* A short name of snapshot @number. */
	nameOf(number) {
		const there = this.docs.filter(Boolean);
		if (this.named?.length !== there.length)
			this.named = shortNames(there.map(({ name }) => name));
		return this.named[there.findIndex((one) => one.number === number)] ?? "";
	}

	/* The members that every question to the worker has. */
	get of() { return { doc: this.state.doc, source: this.state.source, terms: this.state.terms }; }
	/* The length of the axis; the window on it; the window as the worker takes it, where null is the whole axis. */
	get span() { return this.state.mode === "order" ? this.source.events + 1 : this.source.length; }
	get window() { return { from: this.state.from ?? 0, to: this.state.to ?? this.span }; }
	get part() { return { mode: this.state.mode, from: this.state.from, to: this.state.to }; }
	/* The worker's numbers of the filtered lives; null: no filter, or no answer yet. */
	get filtered() { return this.state.terms.length && this.found?.of === JSON.stringify(this.of) ? this.found : null; }
	/* The state at the cursor. */
	get moment() {
		const { at } = this.state, of = this.filtered ?? this.source;
		return at === null ? of.focus : at === "peak" ? of.peak : at;
	}

	/* What is known of a peak that the history does not show (heldAbout); null: the history shows the peak. */
	get held() {
		const { held } = this.filtered ?? this.source;
		return held?.known && !held.shown ? held : null;
	}
	get looksAtHeld() { return this.held !== null && (this.state.at === "peak" || (this.state.at === null && this.held.first)); }

	/* The refused call at which this source opens: the bytes that it asked for, and a short reason; null: none. */
	get refusal() {
		const { asked } = this.source, { failure } = this.doc, { refused_by: by, cached_bytes: idle } = failure ?? {};
		const reason = !failure ? "" : by && by !== "driver" ? `by ${by}` : idle >= asked ? "enough was idle, in pieces too small" : "more than was free";
		return Number.isFinite(asked) ? { asked, reason } : null;
	}

	/* The snapshot to compare with: the chosen one, else the next; -1: there is no other. */
	get partner() {
		const { other, doc } = this.state, numbers = this.docs.filter(Boolean).map((one) => one.number).filter((one) => one !== doc);
		return numbers.includes(other) ? other : numbers.find((one) => one > doc) ?? numbers[0] ?? -1;
	}

	/* The place of state @s on the axis; the state at place @x. undefined until the times have arrived. */
	place(s) { return this.axis?.place(this.state.mode, s); }
	stateAt(x) { return this.axis?.state(this.state.mode, x); }

	/* Change the state. A new source or axis resets the window, because places and bytes of the old one mean
	 * nothing there. */
	set(changes) {
		const { state } = this, other = (key) => key in changes && changes[key] !== state[key];
		const window = { from: null, to: null, low: null, high: null, first: null, last: null };
		if (other("doc") || other("source"))
			this.store.set({ ...window, at: null, life: -1, mode: "", path: [], ...changes });
		else
			this.store.set(other("mode") ? { ...window, ...changes } : changes);
	}

	ask(what, args, transfer) { return this.asker.ask(what, { ...this.of, ...args }, transfer); }

	/* Asker.latest(), but ignore answers about a source that the user has left. */
	wants(what, then) {
		return this.asker.latest(what, (answer, args) => {
			this.succeed(what);
			if (args.doc !== this.state.doc || args.source !== this.state.source)
				return false;
			return then(answer, args);
		}, (error) => this.fail(error, what));
	}

	/* Show an error of @what until @what succeeds or the user clicks it away. */
	fail(error, what) {
		this.message?.remove();
		this.message = h("div", { class: "message", role: "alert", title: "click to close", onclick: () => this.message.remove() },
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

	/* Open the snapshots in the page. Show the one that the address names, or the first, as soon as it is open. */
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

	/* Make the sources of whole GPUs, which are pending until one is chosen. */
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

	/* Correct a state that the snapshots do not have, because the address may come from another page. The first
	 * source to be shown is the pool with the most allocations, or without pools the device. */
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
		/* Text around a picture changes the height of the picture. */
		this.resized = new ResizeObserver(() => this.update());
		this.update();
		this.resized.observe(this.page);
	}

	/* Something has changed: update every part that is shown. Each reads the store, and asks the worker for what is
	 * missing. */
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
		/* The view comes early, because its questions are the most urgent. */
		for (const part of [this.head, this.view, this.strip, this.side, this.chips])
			part.update();
		if (state.terms.length)
			this.wantFound(this.of);
	}

	/* Ask once for the times of the source's events, and make the axis. */
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

	/* A view has drawn its first picture. The benchmark and tests read the time. */
	shown() {
		if (!this.firstPicture)
			requestAnimationFrame(() => { this.firstPicture = performance.now(); });
	}

	/* ---- for several parts ---- */

	/* Add @term to the filter. Return false if it is no term. */
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

	/* Choose the source of @device (null: the host), at the present level if it has one. */
	chooseDevice(device) {
		const all = this.doc.sources.filter((source) => source.device === device && !source.pending);
		if (!all.length)
			throw new Error(`this snapshot has nothing of ${device === null ? "the host" : `GPU ${device}`}`);
		this.set({ source: (all.find(({ level }) => level === this.source.level) ?? all.at(-1)).number });
	}

	/* Set the window to @from .. @to, within the axis. */
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
globalThis.gpumem = app;		/* for tests and the browser's console */
/* The script comes before the snapshots, so the worker unpacks while the browser still reads. */
if (document.readyState === "loading")
	document.addEventListener("DOMContentLoaded", () => app.openAll());
else
	app.openAll();
