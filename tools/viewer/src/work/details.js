/*
 * details.js - what the page shows of one allocation, of one moment, and along the axis; and the filter.
 */
import { ACT, ACTIONS } from "../model/document.js";
import { notesOf, streamText } from "../model/groups.js";
import { baseName } from "../model/stacks.js";
import { modelOf } from "./open.js";
import { testOf } from "./search.js";

const eventOf = (model, row) => {
	const { events } = model.source, { doc } = model;
	return {
		row, action: ACTIONS[events.action[row]], time: events.time[row] - model.axis.begin,
		thread: doc.numbers[events.thread[row]], stream: streamText(doc.numbers[events.stream[row]]),
		module: baseName(doc.modules[events.module[row]] ?? ""), stack: model.stacks.lines(events.stack[row]),
	};
};

/* All that is known of life @life. */
export const life = ({ doc, source, life: l }) => {
	const model = modelOf({ doc, source }), { lives, count, stacks } = model;
	if (!(l >= 0 && l < lives.count))
		return null;
	const born = lives.born[l], died = lives.died[l], freed = lives.freed[l], block = lives.block[l];
	const { events, blocks } = model.source;
	const { stack } = events, endOf = (row) => ({ ...eventOf(model, row), hasOwnStack: stack[row] !== lives.stack[l] || !stack[row] });
	const beganAt = born >= 0 ? events.time[born] : block >= 0 ? blocks.time[block] : 0;
	return {
		life: l, addr: lives.addr[l], size: lives.size[l], blockSize: block >= 0 ? blocks.size[block] : 0,
		kind: model.doc.texts[lives.kind[l]], stream: streamText(model.doc.numbers[lives.stream[l]]),
		module: model.doc.modules[lives.module[l]] ?? "", site: stacks.siteText(lives.stack[l]),
		thread: lives.thread[l] >= 0 ? model.doc.numbers[lives.thread[l]] : null,
		phase: born >= 0 ? model.phases.names[model.phases.phase[born]] : "",
		born: born >= 0 ? born + 1 : 0, bornTime: beganAt ? beganAt - model.axis.begin : null, before: born < 0,
		died: Math.min(died, count), ended: died < count ? endOf(died) : null, lost: died === count,
		freed: freed < count ? endOf(freed) : null, pending: lives.pending[l] === 1,
		lifetime: died < count && beganAt ? events.time[died] - beganAt : null,
		stack: stacks.lines(lives.stack[l]),
	};
};

/* What is there in state @state, and its event. */
export const moment = ({ doc, source, state, by, most }) => {
	const model = modelOf({ doc, source }), { lives, curve, count } = model;
	const s = Math.max(0, Math.min(count, state));
	const { bytes, counts, names } = model.sums(by, (l) => lives.born[l] < s && s <= lives.died[l]);
	const order = names.map((_, i) => i).filter((i) => counts[i]).sort((a, b) => bytes[b] - bytes[a]);
	let blocks = 0;
	for (const i of order)
		blocks += counts[i];
	return {
		state: s, bytes: curve.values[s], reserved: model.reserved.values[s], blocks,
		event: s ? eventOf(model, s - 1) : null, others: Math.max(0, order.length - most),
		top: order.slice(0, most).map((i) => ({ name: names[i], bytes: bytes[i], count: counts[i] })),
	};
};

/* The times of all events, in microseconds since 1970: the page's own copy. */
export const times = ({ doc, source }) => ({ time: Float64Array.from(modelOf({ doc, source }).source.events.time) });

/* What lies along the axis: calls that were refused, snapshots, and the ranges of annotations. */
export const marks = ({ doc, source }) => {
	const model = modelOf({ doc, source }), { events } = model.source, { action } = events;
	const points = [], ranges = [], open = new Map();
	for (let i = 0; i < model.count; i++)
		if (action[i] === ACT.oom)
			points.push({ what: "oom", state: i + 1, bytes: events.size[i], free: events.addr[i] });
		else if (action[i] === ACT.snapshot)
			points.push({ what: "snapshot", state: i + 1, bytes: events.size[i] });
	for (const { row, note, thread } of notesOf(model.doc, model.source)) {
		const key = note.range ? `#${note.range}` : `${thread} ${note.domain ?? ""}`;
		const stack = open.get(key) ?? [], state = row + (model.source.level === "pool" ? 0 : 1);
		open.set(key, stack);
		if (note.stage === "START") {
			stack.push({ name: note.name, from: state, depth: note.range ? 0 : stack.length });
		} else if (note.stage === "END") {
			const began = stack.pop();
			ranges.push({ name: began?.name ?? note.name, from: began?.from ?? 0, to: state, depth: began?.depth ?? 0 });
		} else {
			points.push({ what: "mark", state, name: note.name });
		}
	}
	for (const stack of open.values())
		for (const began of stack)
			ranges.push({ name: began.name, from: began.from, to: model.count, depth: began.depth });
	ranges.sort((a, b) => a.from - b.from || b.to - a.to);
	return { points, ranges };
};

/* ---- the filter --------------------------------------------------------------------------------- */

/* Lives by one term: { by, is } of a group, { frame } of a frame's label, or { text } of whatever they have. */
const matchTerm = (model, term) => {
	const { lives, stacks, doc } = model, found = new Uint8Array(lives.count);
	if (term.by) {
		const { group, names } = model.grouped(term.by);
		for (let l = 0; l < found.length; l++)
			found[l] = names[group[l]] === term.is ? 1 : 0;
		return found;
	}
	if (term.frame) {
		const has = stacks.calling(term.frame);
		for (let l = 0; l < found.length; l++)
			found[l] = has[lives.stack[l]] ?? 0;
		return found;
	}
	const test = testOf(term.text);
	const has = stacks.matching(test), modules = doc.modules.map(test), kinds = doc.texts.map(test);
	const streams = doc.numbers.map((value) => test(streamText(value)));
	const address = /^0x[0-9a-f]+$/i.test(term.text) ? Number(term.text) : -1;
	for (let l = 0; l < found.length; l++)
		found[l] = has[lives.stack[l]] || modules[lives.module[l]] || kinds[lives.kind[l]] || streams[lives.stream[l]] ||
			(address >= 0 && lives.addr[l] <= address && address < lives.addr[l] + lives.size[l]) ? 1 : 0;
	return found;
};

/* Let only lives count that all @terms have; says how many. */
export const find = ({ doc, source, terms }) => {
	const model = modelOf({ doc, source });
	let match = null;
	for (const term of terms) {
		const one = matchTerm(model, term);
		if (match)
			for (let l = 0; l < match.length; l++)
				match[l] &= one[l];
		else
			match = one;
	}
	model.setFilter(match);
	let lives = model.lives.count;
	if (match) {
		lives = 0;
		for (let l = 0; l < match.length; l++)
			lives += match[l];
	}
	const { curve } = model;
	return { lives, peak: curve.peak, peakBytes: curve.values[curve.peak], endBytes: curve.values[model.count] };
};
