/*
 * details.js - answers about one allocation, one moment, the marks along the axis, and the filter.
 */
import { ACT, ACTIONS } from "../model/document.js";
import { notesOf, streamText } from "../model/groups.js";
import { baseName } from "../model/stacks.js";
import { blockName, segmentName } from "../ui/format.js";
import { heldAbout, modelOf, momentsOf } from "./open.js";
import { lifeAt } from "../model/lives.js";

const eventOf = (model, row) => {
	const { events } = model.source, { doc } = model;
	return {
		row, action: ACTIONS[events.action[row]], time: events.time[row] - model.axis.begin,
		thread: doc.numbers[events.thread[row]], stream: streamText(doc.numbers[events.stream[row]]),
		module: baseName(doc.modules[events.module[row]] ?? ""), stack: model.stacks.lines(events.stack[row]),
	};
};

/* Return all that is known of life @life; null: there is no such life. */
export const life = ({ doc, source, life: l }) => {
	const model = modelOf({ doc, source }), { lives, count, stacks } = model;
	if (!(l >= 0 && l < lives.count))
		return null;
	const born = lives.born[l], died = lives.died[l], freed = lives.freed[l], block = lives.block[l];
	const { events, blocks } = model.source;
	const { stack } = events, endOf = (row) => ({ ...eventOf(model, row), hasOwnStack: stack[row] !== lives.stack[l] || !stack[row] });
	const place = model.places[l], beganAt = born >= 0 ? events.time[born] : block >= 0 ? blocks.time[block] : 0;
	return {
		segment: place ? { name: segmentName(place.base), priv: place.priv ?? "unknown" } : null, life: l, addr: lives.addr[l], name: blockName(lives.addr[l], model.generations[l]), size: lives.size[l], blockSize: block >= 0 ? blocks.size[block] : 0,
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

const blocksAt = ({ lives, match }, s) => {
	let sum = 0;
	for (let l = 0; l < lives.count; l++)
		sum += (!match || match[l]) && lifeAt(lives, l, s) ? 1 : 0;
	return sum;
};

/* Return the memory at the moment @at, by group, and its event. */
export const moment = ({ at, by, most, ...of }) => {
	const model = modelOf(of), held = model.isHeld(at) ? model.atPeak : null, isUnseen = held?.place < 0, from = held ?? model, { lives, weight, match } = from, s = model.state(at);
	const { group, names, labels } = from.grouped(by), bytes = new Float64Array(names.length), counts = new Float64Array(names.length);
	for (let l = 0; l < lives.count; l++)
		if ((!match || match[l]) && (held || lifeAt(lives, l, s))) {
			bytes[group[l]] += weight[l];
			counts[group[l]]++;
		}
	const order = names.map((_, i) => i).filter((i) => counts[i]).sort((a, b) => bytes[b] - bytes[a]);
	return {
		state: isUnseen ? -1 : s, peak: model.peakState, failed: model.failed, lives: match ? match.indexOf(1) + 1 : lives.count,
		bytes: held ? held.total : model.curve.values[s], reserved: isUnseen ? null : model.reserved.values[s],
		blocks: isUnseen ? null : blocksAt(model, s), held: heldAbout(model),
		event: s && !isUnseen ? eventOf(model, s - 1) : null, others: Math.max(0, order.length - most),
		top: order.slice(0, most).map((i) => ({ name: names[i], label: labels[i], bytes: bytes[i], count: held ? null : counts[i] })),
	};
};

/* Return a copy of the times of all events, in microseconds since 1970. */
export const times = ({ doc, source }) => ({ time: Float64Array.from(modelOf({ doc, source }).source.events.time) });

/* Return the marks along the axis: refused calls, snapshots, marks and ranges of annotations. */
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
	const { ghost } = model;
	if (ghost && !points.some(({ what, state }) => what === "oom" && state === ghost.state))
		points.push({ what: "oom", ...ghost });
	return { points, ranges, ghost };
};

/* Return how many lives pass the filter, and their moments (momentsOf). */
export const find = (args) => {
	const model = modelOf(args), { match } = model;
	const lives = match ? match.reduce((sum, one) => sum + one, 0) : model.lives.count;
	return { lives, ...momentsOf(model) };
};
