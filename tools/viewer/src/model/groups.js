/*
 * groups.js - lives by what they have in common: call site, stack, module, stream, size, kind, thread, or the phase
 * (range of an annotation) that they were born in. Each way gives every life a number, and every number a text.
 */
import { baseName } from "./stacks.js";
import { bytes } from "../ui/format.js";
import { ACT } from "./document.js";

export const WAYS = ["site", "module", "stream", "size", "kind", "thread", "phase", "stack"];

/*
 * Numbers for the keys of all lives, in the order in which they first appear. Keys that are called alike are one, unless
 * @apart.
 */
const number = (count, keyOf, textOf, apart = false) => {
	const group = new Uint32Array(count), known = new Map(), called = new Map(), keys = [], names = [];
	for (let l = 0; l < count; l++) {
		const key = keyOf(l);
		let at = known.get(key);
		if (at === undefined) {
			const text = textOf(key);
			at = apart ? undefined : called.get(text);
			if (at === undefined) {
				at = names.length;
				names.push(text);
				keys.push(key);
				called.set(text, at);
			}
			known.set(key, at);
		}
		group[l] = at;
	}
	return { group, names, keys };
};

/* Sizes are grouped as `gpumem summary --by size` does: up to 512, 1024 ... */
const sizeClass = (size) => {
	let limit = 512;
	while (limit < size && limit < 2 ** 62)
		limit *= 2;
	return limit;
};

const hex = (value) => value < 0 ? BigInt.asUintN(64, BigInt(value)).toString(16) : value.toString(16);
export const streamText = (value) => value === 0 ? "default stream" : `stream 0x${hex(value)}`;

/*
 * The range that each event is in, by thread: ranges of one thread and domain nest, ranges with a number are
 * everybody's. The text is that of the innermost.
 */
export const phasesOf = (doc, source) => {
	const { action, annotation, thread } = source.events, { count } = source;
	const list = doc.root.annotations ?? [];
	const phase = new Int32Array(count), names = ["(no phase)"], ids = new Map();
	const stacks = new Map(), everybody = [];
	const idOf = (name) => {
		if (!ids.has(name)) {
			ids.set(name, names.length);
			names.push(name || "(unnamed)");
		}
		return ids.get(name);
	};
	for (let i = 0; i < count; i++) {
		const note = action[i] === ACT.annotate && annotation[i] ? list[annotation[i] - 1] : null;
		if (!stacks.has(thread[i]))
			stacks.set(thread[i], []);
		const open = stacks.get(thread[i]), where = note?.range ? everybody : open;
		if (note?.stage === "START") {
			where.push({ id: idOf(note.name), domain: note.domain, range: note.range });
		} else if (note?.stage === "END") {
			for (let k = where.length; k--;)
				if (where[k].range === note.range && (note.range || where[k].domain === note.domain)) {
					where.splice(k, 1);
					break;
				}
		}
		phase[i] = (open.at(-1) ?? everybody.at(-1))?.id ?? 0;
	}
	return { phase, names };
};

export const groupLives = (model, by) => {
	const { lives, stacks, doc, source } = model, { count } = lives;
	switch (by) {
	case "site":
		return number(count, (l) => stacks.site(lives.stack[l]), (f) => f < 0 ? "(no stack)" : stacks.label(f));
	case "stack":
		return number(count, (l) => lives.stack[l], (id) => stacks.siteText(id), true);
	case "module":
		return number(count, (l) => lives.module[l], (id) => baseName(doc.modules[id] ?? "") || "(unknown)");
	case "stream":
		return number(count, (l) => lives.stream[l], (id) => streamText(doc.numbers[id]));
	case "thread":
		return number(count, (l) => lives.thread[l], (id) => id < 0 ? "(unknown)" : `thread ${doc.numbers[id]}`);
	case "kind":
		return number(count, (l) => lives.kind[l], (id) => doc.texts[id] || "(unknown)");
	case "size":
		return number(count, (l) => sizeClass(lives.size[l]), (limit) => `up to ${bytes(limit)}`);
	case "phase": {
		const { phase, names } = model.phases;
		return number(count, (l) => lives.born[l] < 0 ? 0 : phase[lives.born[l]], (id) => names[id]);
	}
	default:
		throw new Error(`no way to group: ${by}`);
	}
};
