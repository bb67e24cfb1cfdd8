/*
 * lives.js - the allocations of a source, each from its birth to its end: what events and tables say together.
 * The rules are those of tools/show/lives.c, so that every view says what `gpumem summary` and `leaks` say.
 *
 * Moments are states: state s is after the first s events, 0 to count. A life is there in state s if
 * born < s <= died: born is its event, -1 before the history; died is the event that ended it, count + 1 for what is
 * live in the tables at the end, count for what was there to the end by the events alone (its free was lost).
 * Lives are in the order of their births.
 */
import { ACT, SEGMENT_REGISTERED } from "./document.js";
import { lazy } from "./values.js";

const sequence = (count) => {
	const list = new Int32Array(count);
	for (let i = 0; i < count; i++)
		list[i] = i;
	return list;
};

/* Active blocks of the tables, as { block, segment } by number. */
const activeBlocks = (doc, source) => {
	const { segments, blocks } = source, found = [];
	const inactive = doc.texts.indexOf("inactive");
	for (let s = 0, b = 0; s < segments.addr.length; s++)
		for (let end = b + segments.blocks[s]; b < end; b++)
			if (blocks.state[b] !== inactive && blocks.size[b])
				found.push({ block: b, segment: s });
	return found;
};

/* The births and ends that the events have, by allocation; completed frees of what no event allocated. */
const fromEvents = (source) => {
	const { action, mate } = source.events, count = source.count;
	const lifeOf = new Int32Array(count), orphans = [];
	let allocs = 0;
	for (let i = 0; i < count; i++)
		allocs += action[i] === ACT.alloc ? 1 : 0;
	const born = new Int32Array(allocs), freed = new Int32Array(allocs).fill(-1), died = new Int32Array(allocs).fill(-1);
	allocs = 0;
	for (let i = 0; i < count; i++) {
		const a = action[i];
		if (a > ACT.free_completed)
			continue;
		const of = mate[i] ? lifeOf[i - mate[i]] : -1;
		if (a === ACT.alloc) {
			if (of >= 0 && died[of] < 0)
				died[of] = i;
			born[allocs] = i;
			lifeOf[i] = allocs++;
			continue;
		}
		lifeOf[i] = of;
		if (of < 0) {
			if (a === ACT.free_completed)
				orphans.push(i);
			continue;
		}
		if (a === ACT.free_requested || freed[of] < 0)
			freed[of] = i;
		if (a === ACT.free_completed)
			died[of] = i;
	}
	return { orphans, born, freed, died, allocs, lifeOf };
};

/* Columns of lives that are copied from their events or, of lives from before the history, from their blocks. */
const copyColumns = (lives, { events, segments, blocks }, before) => {
	const { early, count, born } = lives;
	const earlier = {
		addr: ({ row, block }) => row >= 0 ? events.addr[row] : blocks.addr[block],
		module: ({ row, block }) => row >= 0 ? events.module[row] : blocks.module[block],
		kind: ({ row, block }) => row >= 0 ? events.kind[row] : blocks.kind[block],
		stream: ({ row, segment }) => row >= 0 ? events.stream[row] : segments.stream[segment],
		thread: ({ row, block }) => row >= 0 ? -1 : blocks.thread[block],
	};
	for (const [name, of] of Object.entries(earlier))
		lazy(lives, name, () => {
			const column = new (name === "addr" ? Float64Array : Int32Array)(count), from = events[name];
			before.forEach((one, l) => { column[l] = of(one); });
			for (let l = early; l < count; l++)
				column[l] = from[born[l]];
			return column;
		});
};

/* The lives that events began. */
const fillLives = (lives, { events, count }, from) => {
	const { early, born, died, freed, size, stack, opens, closes } = lives, { size: sizes, stack: stacks } = events;
	for (let i = 0, l = early; i < from.born.length; i++, l++) {
		const row = from.born[i], end = from.died[i] < 0 ? count : from.died[i];
		born[l] = row;
		opens[row] = l;
		died[l] = end;
		if (end < count)
			closes[end] = l;
		if (from.freed[i] >= 0)
			freed[l] = from.freed[i];
		size[l] = Math.max(0, sizes[row]);
		stack[l] = stacks[row];
	}
};

/* @return columns by life, and counts; weight is size, or 0 of what does not count (imported, registered). */
export const livesOf = (doc, source) => {
	const { events, segments, blocks, count } = source;
	const { orphans, born, freed, died, allocs, lifeOf } = fromEvents(source);
	const active = activeBlocks(doc, source), allocated = doc.texts.indexOf("active_allocated");
	const ipc = doc.texts.indexOf("ipc");
	const before = [], matched = [], unweighed = [];
	for (const { block, segment } of active) {
		const life = blocks.event[block] ? lifeOf[blocks.event[block] - 1] : -1;
		const registered = segments.flags[segment] & SEGMENT_REGISTERED;
		if (life >= 0 && died[life] < 0) {
			died[life] = count + 1;
			matched.push(life, block);
			if (registered)
				unweighed.push(life);
		} else if (!registered) {
			before.push({ row: -1, block, segment, time: blocks.time[block] });
		}
	}
	for (const row of orphans)
		before.push({ row, block: -1, segment: -1, time: 0 });
	before.sort((a, b) => a.time - b.time || a.block - b.block || a.row - b.row);

	const early = before.length, all = early + allocs;
	const lives = {
		count: all, early, born: new Int32Array(all).fill(-1), died: new Int32Array(all),
		freed: new Int32Array(all).fill(count + 1), block: new Int32Array(all).fill(-1),
		size: new Float64Array(all), stack: new Int32Array(all), pending: new Uint8Array(all),
		opens: new Int32Array(count).fill(-1), closes: new Int32Array(count).fill(-1),
	};
	copyColumns(lives, source, before);
	before.forEach(({ row, block }, l) => {
		lives.died[l] = row >= 0 ? row : count + 1;
		lives.size[l] = Math.max(0, row >= 0 ? events.size[row] : blocks.requested[block]);
		lives.stack[l] = row >= 0 ? 0 : blocks.stack[block];
		lives.block[l] = block;
		lives.pending[l] = block >= 0 && blocks.state[block] !== allocated ? 1 : 0;
		if (row >= 0)
			lives.closes[lives.freed[l] = row] = l;
	});
	fillLives(lives, source, { born, freed, died });
	for (let i = 0; i < matched.length; i += 2) {
		const l = early + matched[i], block = matched[i + 1];
		lives.block[l] = block;
		lives.stack[l] ||= blocks.stack[block];
		lives.pending[l] = blocks.state[block] !== allocated ? 1 : 0;
	}
	lives.weight = ipc < 0 ? lives.size : lives.size.map((bytes, l) => lives.kind[l] === ipc ? 0 : bytes);
	for (const life of unweighed)
		lives.weight[early + life] = lives.size[early + life] = 0;
	return lives;
};

/* Is it there in state @s? */
export const lifeAt = (lives, l, s) => lives.born[l] < s && s <= lives.died[l];

/* Live in the tables at the end, and not freed: what `gpumem leaks` lists. */
export const isLeft = (lives, l, count) => lives.died[l] === count + 1 && !lives.pending[l];

export { sequence };
