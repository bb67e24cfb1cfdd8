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

/* The births and ends that the events have. */
const fromEvents = (source) => {
	const { action, mate } = source.events, count = source.count;
	const lifeOf = new Int32Array(count).fill(-1);
	const births = [], orphans = [];
	let allocs = 0;
	for (let i = 0; i < count; i++)
		allocs += action[i] === ACT.alloc;
	const born = new Int32Array(allocs), freed = new Int32Array(allocs).fill(-1), died = new Int32Array(allocs).fill(-1);
	allocs = 0;
	for (let i = 0; i < count; i++) {
		const a = action[i];
		const of = mate[i] ? lifeOf[i - mate[i]] : -1;
		if (a === ACT.alloc) {
			if (of >= 0 && died[of] < 0)
				died[of] = i;
			born[allocs] = i;
			lifeOf[i] = allocs++;
		} else if (a === ACT.free_requested) {
			if (of >= 0)
				freed[of] = i;
			lifeOf[i] = of;
		} else if (a === ACT.free_completed) {
			if (of >= 0) {
				died[of] = i;
				if (freed[of] < 0)
					freed[of] = i;
			} else {
				orphans.push(i);
			}
		}
	}
	return { births, orphans, born, freed, died, allocs };
};

/* @return columns by life, and counts; weight is size, or 0 of what does not count (imported, registered). */
export const livesOf = (doc, source) => {
	const { events, segments, blocks, count } = source;
	const { orphans, born, freed, died, allocs } = fromEvents(source);
	const active = activeBlocks(doc, source), allocated = doc.texts.indexOf("active_allocated");
	const ipc = doc.texts.indexOf("ipc");
	const open = new Map(), before = [], blockOf = new Int32Array(allocs).fill(-1);
	const unweighed = new Set(), pending = new Set();
	for (let l = 0; l < allocs; l++)
		if (died[l] < 0)
			open.set(events.addr[born[l]], l);
	for (const { block, segment } of active) {
		const life = open.get(blocks.addr[block]);
		const registered = segments.flags[segment] & SEGMENT_REGISTERED;
		if (life !== undefined) {
			open.delete(blocks.addr[block]);
			died[life] = count + 1;
			blockOf[life] = block;
			if (registered)
				unweighed.add(life);
			if (blocks.state[block] !== allocated)
				pending.add(life);
		} else if (!registered) {
			before.push({ row: -1, block, segment, time: blocks.time[block] });
		}
	}
	for (const life of open.values())
		died[life] = count;
	for (const row of orphans)
		before.push({ row, block: -1, segment: -1, time: 0 });
	before.sort((a, b) => a.time - b.time || a.block - b.block || a.row - b.row);

	const early = before.length, all = early + allocs;
	const lives = {
		count: all, early, born: new Int32Array(all).fill(-1), died: new Int32Array(all),
		freed: new Int32Array(all).fill(count + 1), block: new Int32Array(all).fill(-1),
		addr: new Float64Array(all), size: new Float64Array(all), weight: new Float64Array(all),
		stack: new Int32Array(all), module: new Int32Array(all), stream: new Int32Array(all),
		thread: new Int32Array(all), kind: new Int32Array(all), pending: new Uint8Array(all),
		opens: new Int32Array(count).fill(-1), closes: new Int32Array(count).fill(-1),
	};
	before.forEach(({ row, block, segment }, l) => {
		const from = row >= 0 ? row : block, columns = row >= 0 ? events : blocks;
		lives.died[l] = row >= 0 ? row : count + 1;
		lives.addr[l] = columns.addr[from];
		lives.size[l] = Math.max(0, row >= 0 ? events.size[row] : blocks.requested[block]);
		lives.kind[l] = columns.kind[from];
		lives.module[l] = columns.module[from];
		lives.stream[l] = row >= 0 ? events.stream[row] : segments.stream[segment];
		lives.thread[l] = row >= 0 ? -1 : blocks.thread[block];
		lives.stack[l] = row >= 0 ? 0 : blocks.stack[block];
		lives.block[l] = block;
		lives.pending[l] = block >= 0 && blocks.state[block] !== allocated ? 1 : 0;
		if (row >= 0)
			lives.freed[l] = row;
	});
	for (let i = 0; i < allocs; i++) {
		const l = early + i, row = born[i], block = blockOf[i];
		lives.born[l] = row;
		lives.died[l] = died[i];
		if (freed[i] >= 0)
			lives.freed[l] = freed[i];
		lives.block[l] = block;
		lives.addr[l] = events.addr[row];
		lives.size[l] = Math.max(0, events.size[row]);
		lives.kind[l] = events.kind[row];
		lives.module[l] = events.module[row];
		lives.stream[l] = events.stream[row];
		lives.thread[l] = events.thread[row];
		lives.stack[l] = events.stack[row] || (block >= 0 ? blocks.stack[block] : 0);
	}
	for (const life of pending)
		lives.pending[early + life] = 1;
	for (let l = 0; l < all; l++) {
		lives.weight[l] = lives.kind[l] === ipc ? 0 : lives.size[l];
		if (lives.born[l] >= 0)
			lives.opens[lives.born[l]] = l;
		if (lives.died[l] < count)
			lives.closes[lives.died[l]] = l;
	}
	for (const life of unweighed)
		lives.weight[early + life] = lives.size[early + life] = 0;
	return lives;
};

/* Is it there in state @s? */
export const lifeAt = (lives, l, s) => lives.born[l] < s && s <= lives.died[l];

/* Live in the tables at the end, and not freed: what `gpumem leaks` lists. */
export const isLeft = (lives, l, count) => lives.died[l] === count + 1 && !lives.pending[l];

export { sequence };
