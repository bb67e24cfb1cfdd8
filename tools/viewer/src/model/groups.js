/*
 * groups.js - group lives by call site, stack, module, stream, size, kind, thread, the phase (range of an annotation)
 * in which they were born, the class that the program gave them as a label, or the segment in which they were. Each way
 * gives every life the number of its group, and every group a name.
 */
import { baseName } from "./stacks.js";
import { bytes, segmentName } from "../ui/format.js";
import { ACT } from "./document.js";

export const WAYS = ["site", "module", "stream", "size", "kind", "thread", "phase", "class", "stack"];

/*
 * Number the values of @column (by life), in the order in which they first appear. Values outside 0 .. @limit - 1 share
 * a number; so do values with the same text.
 */
const number = (column, limit, textOf) => {
	const group = new Uint32Array(column.length), known = new Int32Array(limit + 1).fill(-1), called = new Map(), names = [];
	for (let l = 0; l < column.length; l++) {
		const value = column[l], slot = value >= 0 && value < limit ? value : limit;
		if (known[slot] < 0) {
			const text = textOf(value);
			if (!called.has(text)) {
				called.set(text, names.length);
				names.push(text);
			}
			known[slot] = called.get(text);
		}
		group[l] = known[slot];
	}
	return { group, names };
};

/* Number texts in the same way. */
const numberTexts = (texts) => {
	const ids = new Map(texts.map((text) => [text, 0])), names = [...ids.keys()];
	names.forEach((name, i) => ids.set(name, i));
	return { group: Uint32Array.from(texts, (text) => ids.get(text)), names };
};

/* Sizes are grouped as in `gpumem summary --by size`: up to 512, 1024 ... A group's value is the number of
 * doublings. */
const MOST_DOUBLINGS = 53;
const doublings = (size) => {
	let found = 0;
	for (let limit = 512; limit < size && found < MOST_DOUBLINGS; limit *= 2)
		found++;
	return found;
};

const hex = (value) => BigInt.asUintN(64, BigInt(value)).toString(16);
/* @value: a number, or the text of a number that is too large. */
export const streamText = (value) => value === undefined ? "(unknown)" : value === 0 ? "default stream" : `stream 0x${hex(value)}`;

/*
 * Return the annotations among the events of @source, as { row, note, thread }; the note comes before event row. A pool
 * has no annotations of its own: it gets those of its device, placed by their times.
 */
export const notesOf = (doc, source) => {
	const all = doc.root.annotations ?? [], found = [];
	if (!all.length)
		return found;
	const { action, annotation, thread, time } = source.events;
	for (let i = 0; i < source.count; i++)
		if (action[i] === ACT.annotate && annotation[i] && all[annotation[i] - 1])
			found.push({ row: i, note: all[annotation[i] - 1], thread: thread[i] });
	if (source.level !== "pool")
		return found;
	const mine = all.filter((note) => note?.device === source.device).sort((a, b) => a.time_us - b.time_us);
	let row = 0;
	for (const note of mine) {
		while (row < source.count && time[row] < note.time_us)
			row++;
		found.push({ row, note, thread: doc.numbers.indexOf(note.thread) });
	}
	return found;
};

/*
 * Return the phase of each event: the name of the innermost range that is open in its thread. Ranges of one thread and
 * domain nest; ranges with a number count for all threads. A thread without an open range takes that of the leading
 * thread, which is the main thread or else the first that has ranges: PyTorch runs backward in threads of its own,
 * while the leading thread waits within a range.
 */
export const phasesOf = (doc, source) => {
	const { thread } = source.events, { count } = source;
	const phase = new Int32Array(count), names = ["(no phase)"], ids = new Map();
	const stacks = new Map(), everybody = [];
	const idOf = (name) => {
		if (!ids.has(name)) {
			ids.set(name, names.length);
			names.push(name || "(unnamed)");
		}
		return ids.get(name);
	};
	const openOf = (of) => {
		if (!stacks.has(of))
			stacks.set(of, []);
		return stacks.get(of);
	};
	const notes = notesOf(doc, source), ranged = notes.filter(({ note }) => note.stage === "START" && !note.range), main = doc.root.process?.pid;
	const leader = (ranged.find(({ thread: by }) => doc.numbers[by] === main) ?? ranged[0])?.thread;
	for (let i = 0, next = 0; i < count; i++) {
		for (; next < notes.length && notes[next].row <= i; next++) {
			const { note, thread: by } = notes[next], where = note.range ? everybody : openOf(by);
			if (note.stage === "START") {
				where.push({ id: idOf(note.name), domain: note.domain, range: note.range });
			} else if (note.stage === "END") {
				const at = where.findLastIndex((one) => one.range === note.range && (note.range || one.domain === note.domain));
				if (at >= 0)
					where.splice(at, 1);
			}
		}
		phase[i] = (openOf(thread[i]).at(-1) ?? openOf(leader).at(-1) ?? everybody.at(-1))?.id ?? 0;
	}
	return { phase, names };
};

/*
 * Group by stack as tools/show/groups.c does, by properties that are the same in every run: functions, modules, lines
 * of Python and the kind of memory; for a stack without frames, the module that asked.
 */
const byStack = ({ lives, stacks, doc }) => {
	const known = new Map(), list = [];
	const column = Uint32Array.from(lives.stack, (id, l) => {
		const kind = lives.kind[l], asked = stacks.site(id) < 0 ? lives.module[l] : 0;
		const value = (id * doc.texts.length + kind) * (doc.modules.length + 1) + asked;
		if (!known.has(value)) {
			known.set(value, list.length);
			list.push({ id, about: `${doc.texts[kind]}\n${stacks.site(id) < 0 ? doc.modules[asked] : ""}` });
		}
		return known.get(value);
	});
	const found = number(column, list.length, (i) => stacks.stackText(list[i].id, list[i].about)), ids = [];
	found.group.forEach((g, l) => { ids[g] = lives.stack[l]; });
	return { ...found, labels: toldApart(stacks, ids) };
};

/* Return labels of the stacks @ids: the call site and, to tell stacks of one call site apart, the first frame that
 * differs. */
const toldApart = (stacks, ids) => {
	const paths = ids.map((id, g) => ({ g, site: stacks.siteText(id), path: stacks.list(id).map((f) => stacks.label(f)) }));
	const labels = paths.map(({ site }) => site), join = ({ site, path }) => `${site}\n${path.join("\n")}`;
	const alike = (one, other) => {
		let same = 0;
		while (one.site === other?.site && same < one.path.length && one.path[same] === other.path[same])
			same++;
		return one.site === other?.site ? same : -1;
	};
	paths.map((one) => ({ ...one, key: join(one) })).sort((a, b) => a.key < b.key ? -1 : 1).forEach((one, i, sorted) => {
		const at = Math.max(alike(one, sorted[i - 1]), alike(one, sorted[i + 1]));
		if (at >= 0 && one.path.length)
			labels[one.g] = `${one.site} ← ${one.path[Math.min(at, one.path.length - 1)]}`;
	});
	return labels;
};

/* Return { group: of each life, names: of each group } and, if they differ from names, short labels. */
export const groupLives = (model, by) => {
	const { lives, stacks, doc, source } = model;
	switch (by) {
	case "site":
		return number(lives.stack, stacks.count, (id) => stacks.siteText(id));
	case "stack":
		return byStack(model);
	case "module":
		return number(lives.module, doc.modules.length, (id) => baseName(doc.modules[id] ?? "") || "(unknown)");
	case "stream":
		return number(lives.stream, doc.numbers.length, (id) => streamText(doc.numbers[id]));
	case "thread":
		return number(lives.thread, doc.numbers.length, (id) => id < 0 ? "(unknown)" : `thread ${doc.numbers[id]}`);
	case "kind":
		return number(lives.kind, doc.texts.length, (id) => doc.texts[id] || "(unknown)");
	case "size":
		return number(Uint8Array.from(lives.size, doublings), MOST_DOUBLINGS + 1, (times) => `up to ${bytes(512 * 2 ** times)}`);
	case "class": {
		const { blocks } = source, ended = doc.texts.length, left = source.count + 1;
		return number(lives.block.map((block, l) => lives.died[l] < left ? ended : block < 0 ? -1 : blocks.name[block]), ended + 1, (id) =>
			id === ended ? "freed since (class not known)" : doc.texts[id] || "other");
	}
	case "segment":
		return numberTexts(model.places.map((range) => range ? segmentName(range.base) : "(no segment)"));
	case "phase": {
		const { phase, names } = model.phases;
		return number(lives.born.map((row) => row < 0 ? 0 : phase[row]), names.length, (id) => names[id]);
	}
	default:
		throw new Error(`no way to group: ${by}`);
	}
};
