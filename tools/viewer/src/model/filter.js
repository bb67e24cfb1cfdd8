/*
 * filter.js - the filter: terms that the user types or clicks, and the lives that pass them.
 *
 *   text  "text"  /regex/i      a frame, file, module, kind, stream or thread contains it; an address; a block's name,
 *                               b7f0012000_3
 *   KEY:text  KEY=text          KEY contains the text, or is it: site, stack, module, stream, size, kind, thread,
 *                               phase, class, segment; frame
 *   size>64MiB  size<=4096      also >=, <, =
 *   alive@MOMENT  alive@A..B    live at peak, end, a time (1.5s, 20ms) or an event (#123); live from A to B throughout
 *   -TERM                       lives that do not pass TERM
 *
 * A life passes one of the terms KEY=text that have the same KEY, and all other terms.
 */
import { BadInput } from "./bad_input.js";
import { WAYS, streamText } from "./groups.js";

const UNITS = { "": 1, b: 1, k: 2 ** 10, kib: 2 ** 10, m: 2 ** 20, mib: 2 ** 20, g: 2 ** 30, gib: 2 ** 30, t: 2 ** 40, tib: 2 ** 40,
	kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12 };
const bytesOf = (text) => {
	const found = /^([0-9.]+)\s*([a-z]*)$/i.exec(text), unit = UNITS[found?.[2].toLowerCase()];
	return found && unit && Number.isFinite(Number(found[1])) ? Number(found[1]) * unit : null;
};
const TIMES = { us: 1, "µs": 1, ms: 1e3, s: 1e6, min: 60e6, h: 3600e6 };
const COMPARE = { ">": (a, b) => a > b, "<": (a, b) => a < b, ">=": (a, b) => a >= b, "<=": (a, b) => a <= b, "=": (a, b) => a === b };

/* Return a function that tests a value for @text, ignoring case, or for /a regular expression/; @plain: text only. */
export const testOf = (text, plain = false) => {
	const regex = plain ? null : /^\/(.+)\/(i?)$/s.exec(text);
	if (regex) {
		const made = new RegExp(regex[1], regex[2]);
		return (value) => made.test(value);
	}
	const low = text.toLowerCase();
	return (value) => value.toLowerCase().includes(low);
};

const momentOf = (text) => {
	const event = /^#(\d+)$/.exec(text), time = /^([0-9.]+)\s*(us|µs|ms|s|min|h)$/.exec(text);
	if (!event && !time && text !== "peak" && text !== "end")
		throw new BadInput(`${text}: no moment; there are peak, end, a time as 1.5s, and an event as #123`);
	return { text, event: event ? Number(event[1]) : null, time: time ? Number(time[1]) * TIMES[time[2]] : null };
};

/* Parse a term to { not, what, ... }. Throws BadInput, or SyntaxError for a bad regular expression. */
export const parseTerm = (term) => {
	const not = /^-\S/.test(term), text = (not ? term.slice(1) : term).trim();
	const size = /^size\s*(>=|<=|>|<|=)\s*(.+)$/i.exec(text), alive = /^alive@(.+?)(?:\.\.(.+))?$/i.exec(text);
	const key = /^([a-z]+)([:=])(.*)$/s.exec(text), literal = /^"(.*)"$/s.exec(text);
	if (!text)
		throw new BadInput("nothing to filter by");
	if (size && (size[1] !== "=" || bytesOf(size[2]) !== null)) {
		const limit = bytesOf(size[2]);
		if (limit === null)
			throw new BadInput(`${size[2]}: no size; one is written as 64MiB`);
		return { not, what: "size", passes: (bytes) => COMPARE[size[1]](bytes, limit) };
	}
	if (alive)
		return { not, what: "alive", from: momentOf(alive[1]), to: momentOf(alive[2] ?? alive[1]) };
	if (key && (WAYS.includes(key[1]) || ["frame", "segment"].includes(key[1]))) {
		const test = key[2] === "=" ? null : testOf(key[1] === "stream" && key[3] === "0" ? "default stream" : key[3]);
		return { not, what: key[1] === "frame" ? "frame" : "by", by: key[1], is: test ? null : key[3], test };
	}
	if (literal)
		return { not, what: "text", test: testOf(literal[1], true), address: -1, generation: -1 };
	const named = /^b([0-9a-f]+)_(\d+)$/i.exec(text), address = /^(?:0x)?([0-9a-f]{5,16})$/i.exec(text);
	return {
		not, what: "text", test: testOf(text), address: named || address ? Number(`0x${(named ?? address)[1]}`) : -1,
		generation: named ? Number(named[2]) : -1,
	};
};

/* ---- lives that pass ---------------------------------------------------------------------------- */

const stateOf = ({ all, axis, count }, { text, event, time }) =>
	event !== null ? Math.min(count, event) : time !== null ? axis.state("time", time) : text === "peak" ? all.peak : count;

/* Return a function that says whether life l passes the term @of, apart from its "-". */
const passing = (model, of) => {
	const { lives, stacks, doc } = model;
	switch (of.what) {
	case "size":
		return (l) => of.passes(lives.size[l]);
	case "alive": {
		if (model.isHeld === true)
			return () => true;		/* rows are of the peak, and only alive@peak comes here */
		/* A peak that the history does not show counts as before all states. */
		const states = [of.from, of.to].map((moment) => moment.text === "peak" && model.held?.place < 0 ? -1 : stateOf(model, moment));
		const first = Math.min(...states), last = Math.max(...states), there = (l, s) => lives.born[l] < s && s <= lives.died[l];
		return (l) => first < 0 ? model.held.hadLife(model, l) && (last < 0 || there(l, last)) : lives.born[l] < first && last <= lives.died[l];
	}
	case "by": {
		const { group, names } = model.grouped(of.by), passes = names.map((name) => of.test ? of.test(name) : name === of.is);
		return (l) => passes[group[l]];
	}
	case "frame": {
		const has = of.test ? stacks.matching(of.test) : stacks.calling(of.is);
		return (l) => has[lives.stack[l]] === 1;
	}
	default: {
		const { test, address, generation } = of, has = stacks.matching(test), modules = doc.modules.map(test), kinds = doc.texts.map(test);
		const streams = doc.numbers.map((value) => test(streamText(value))), threads = doc.numbers.map((value) => test(`thread ${value}`));
		return (l) => generation >= 0 ? lives.addr[l] === address && model.generations[l] === generation :
			has[lives.stack[l]] || modules[lives.module[l]] || kinds[lives.kind[l]] || streams[lives.stream[l]] ||
			threads[lives.thread[l]] || (address >= 0 && lives.addr[l] <= address && address < lives.addr[l] + Math.max(1, lives.size[l]));
	}
	}
};

/* Find the lives of @model that pass all @terms. Return a byte by life; null without terms. */
export const matchOf = (model, terms) => {
	if (!terms.length)
		return null;
	const match = new Uint8Array(model.lives.count), every = [], some = new Map();
	for (const of of terms.map(parseTerm)) {
		const passes = passing(model, of);
		if (of.not || of.what !== "by" || of.test)
			every.push(of.not ? (l) => !passes(l) : passes);
		else
			some.set(of.by, [...some.get(of.by) ?? [], passes]);
	}
	for (const list of some.values())
		every.push(list.length === 1 ? list[0] : (l) => list.some((passes) => passes(l)));
	for (let l = 0; l < match.length; l++)
		match[l] = every.every((passes) => passes(l)) ? 1 : 0;
	return match;
};
