/*
 * store.js - what the user looks at: the one state of all views. All of it is in the address, so an address that is
 * sent, reloaded or gone back to shows the same. Views keep no copy of it: they read it at each update.
 *
 *   doc, source   numbers of the snapshot and of the source in it; -1: the source with the most allocations
 *   view          the name of the view; "": of a crash the summary, else the timeline
 *   mode          the unit of the axis, "time" or "order" (of events); "": the one that shows more of this source
 *   from, to      the window, places on the axis (axis.js); null: all of it
 *   low, high     the range of bytes that the timeline shows; null: all
 *   at            the cursor: a state, or "peak"; null: when memory ran out, else the peak
 *   life          the allocation that is pinned; -1: none
 *   by            the way to group (groups.js), for colours and sums
 *   terms         the filter: texts that filter.js reads; in the address an "f" for each
 *   find          the text to look for in the flame graph and in tables
 *   order, first, last, events   of the allocator: the order of segments, the bytes in sight, the events to list
 *   weigh, path   of the flame graph: the meaning of the width; the function that fills the width, in the address a "z"
 *                 for each of its callers and itself
 *   invert, against   also of the flame graph: allocating functions first; beside the other snapshot. 0: no
 *   fold          1: user code first, frames of interpreter, allocator and dispatcher folded; 0: all frames
 *   table, sort, up   of tables: which table, the column to sort by, and 1 for the smallest first
 *   other, when   of the comparison: the other snapshot, -1: the next one; at the end or at the peak
 *   theme         "light", "dark" or "" (as the system says)
 */
import { parseTerm } from "./model/filter.js";
import { WAYS } from "./model/groups.js";

const FIRST = {
	doc: 0, source: -1, view: "", mode: "", from: null, to: null, low: null, high: null, at: null, life: -1, by: "site",
	terms: [], find: "", order: "size", first: null, last: null, events: "all", weigh: "live", invert: 0, against: 0, path: [], fold: 1, table: "groups", sort: "",
	up: 0, other: -1, when: "end", theme: "",
};
const WORDS = {
	view: ["", "timeline", "allocator", "flame", "tables", "summary", "compare"], mode: ["", "time", "order"], by: WAYS,
	order: ["size", "address", "free"], events: ["all", "raw", "blocks", "allocs", "segments", "refused", "annotations"],
	weigh: ["live", "peak", "end", "bytes", "count", "churn"], table: ["groups", "leaks", "longest", "segments"], when: ["end", "peak"],
	theme: ["", "light", "dark"],
};
const LISTS = { terms: "f", path: "z" };
/* Keys that change with every movement or letter. Only the value at rest becomes a step of Back. */
const PASSING = new Set(["from", "to", "low", "high", "first", "last", "at", "find"]);

const isTerm = (text) => {
	try {
		return parseTerm(text) !== null;
	} catch {
		return false;
	}
};

const valueOf = (key, text) => {
	const first = FIRST[key], value = Number(text);
	if (WORDS[key])
		return WORDS[key].includes(text) ? text : first;
	if (typeof first === "string" || (key === "at" && text === "peak"))
		return text;
	return text !== "" && Number.isFinite(value) ? value : first;
};

const parse = (hash) => {
	const params = new URLSearchParams(hash.replace(/^#/, "")), found = {};
	for (const [key, first] of Object.entries(FIRST))
		found[key] = LISTS[key] ? params.getAll(LISTS[key]) : params.has(key) ? valueOf(key, params.get(key)) : first;
	found.terms = found.terms.filter(isTerm);
	return found;
};

const format = (state) => {
	const params = new URLSearchParams();
	for (const [key, first] of Object.entries(FIRST))
		if (LISTS[key])
			state[key].forEach((text) => params.append(LISTS[key], text));
		else if (state[key] !== first && state[key] !== null)
			params.set(key, typeof state[key] === "number" ? String(state[key]) : state[key]);
	return params.toString();
};

const short = (number) => Number(number.toPrecision(15));
const isSame = (a, b) => Object.is(a, b) || (Array.isArray(a) && Array.isArray(b) && JSON.stringify(a) === JSON.stringify(b));

export class Store {
	/* @fit(state) corrects values that the snapshots do not have; @changed() is called after every change. */
	constructor(fit, changed) {
		this.fit = fit;
		this.changed = changed;
		this.state = parse(location.hash);
		window.addEventListener("popstate", () => this.read());
	}

	/* Take the present state as the page's first: no step back leads before it. */
	begin() {
		this.fit(this.state);
		this.written = format(this.state);
	}

	set(wanted) {
		/* Round numbers as the address does. */
		const changes = Object.fromEntries(Object.entries(wanted).map(([key, value]) => [key, typeof value === "number" ? short(value) : value]));
		const keys = Object.keys(changes).filter((key) => !isSame(this.state[key], changes[key]));
		if (!keys.length)
			return;
		const passing = keys.every((key) => PASSING.has(key));
		if (!passing && this.timer)
			this.write();
		Object.assign(this.state, changes);
		this.fit(this.state);
		clearTimeout(this.timer);
		this.timer = passing ? setTimeout(() => this.rest(), 250) : 0;
		this.changed();
		if (!passing)
			this.write();
	}

	/* A movement has come to rest: views may ask questions that are too costly during it. */
	rest() {
		this.write();
		this.changed();
	}

	/* The address has changed, by Back or Forward or by hand. */
	read() {
		if (location.hash.slice(1) === this.written)
			return;
		clearTimeout(this.timer);
		this.timer = 0;
		Object.assign(this.state, parse(location.hash));
		this.begin();
		this.changed();
	}

	write() {
		const text = format(this.state);
		clearTimeout(this.timer);
		this.timer = 0;
		if (text === this.written)
			return;
		this.written = text;
		try {
			history.pushState(null, "", `#${text}`);
		} catch {
			location.hash = text;		/* some browsers refuse pushState() in a local file */
		}
	}
}
