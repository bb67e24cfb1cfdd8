/*
 * lives.js - the allocations (lives) of a source, each from its birth to its end, from events and tables together. The
 * rules are those of tools/show/lives.c, so every view agrees with `gpumem summary` and `gpumem leaks`.
 *
 * Moments are states: state s, 0 to count, is after the first s events. A life is there in state s if born < s <= died.
 * born is the event of its birth, -1 before the history. died is the event of its end; count + 1 if it is live in the
 * tables at the end; count if the tables do not have it and no event ended it (its free was lost). Lives are in the
 * order of their births. about and closes, by event: the life that the event is about, and the life that it ends; -1:
 * none.
 */
import { ACT, SEGMENT_REGISTERED } from "./document.js";
import { lazy } from "./values.js";

const sequence = (count) => {
	const list = new Int32Array(count);
	for (let i = 0; i < count; i++)
		list[i] = i;
	return list;
};

/* Return the active blocks of the tables, as { block, segment }. */
const activeBlocks = (doc, source) => {
	const { segments, blocks } = source, found = [];
	const inactive = doc.texts.indexOf("inactive");
	for (let s = 0, b = 0; s < segments.addr.length; s++)
		for (let end = b + segments.blocks[s]; b < end; b++)
			if (blocks.state[b] !== inactive && blocks.size[b])
				found.push({ block: b, segment: s });
	return found;
};

/*
 * Find the lives that the events show. By allocation: born, freed (the request) and died, as lives have them. By event:
 * about and closes. orphans: completed frees of allocations from before the history. mated: some allocation has a mate.
 */
const fromEvents = ({ events: { action, mate }, count }) => {
	const about = new Int32Array(count).fill(-1), closes = new Int32Array(count).fill(-1), orphans = [];
	const born = new Int32Array(count), freed = new Int32Array(count), died = new Int32Array(count);
	let allocs = 0, mated = false;
	for (let i = 0; i < count; i++) {
		const a = action[i];
		if (a > ACT.free_completed)
			continue;
		const of = mate[i] ? about[i - mate[i]] : -1;
		if (a === ACT.alloc) {
			mated ||= mate[i] !== 0;
			if (of >= 0 && died[of] === count)
				closes[died[of] = i] = of;
			born[allocs] = i;
			freed[allocs] = count + 1;
			died[allocs] = count;
			about[i] = allocs++;
			continue;
		}
		about[i] = of;
		if (of < 0) {
			if (a === ACT.free_completed)
				orphans.push(i);
			continue;
		}
		if (a === ACT.free_requested || freed[of] > count)
			freed[of] = i;
		if (a === ACT.free_completed)
			closes[died[of] = i] = of;
	}
	const all = (column) => column.subarray(0, allocs);
	return { orphans, born: all(born), freed: all(freed), died: all(died), allocs, about, closes, mated };
};

/* Make column @name of lives from the events of their births; for lives from before the history (@before), from their
 * block or from the event of their end. */
const columnOf = (name, { early, count }, { level, events, segments, blocks, births }, before, { born, mated }) => {
	const earlier = {
		addr: ({ row, block }) => row >= 0 ? events.addr[row] : blocks.addr[block],
		size: ({ row, block }) => row >= 0 ? events.size[row] : blocks.requested[block],
		/* A free in a pool has the stack of its allocation. */
		stack: ({ row, block }) => row < 0 ? blocks.stack[block] : level === "pool" || events.pool?.[row] ? events.stack[row] : 0,
		module: ({ row, block }) => row >= 0 ? events.module[row] : blocks.module[block],
		kind: ({ row, block }) => row >= 0 ? events.kind[row] : blocks.kind[block],
		stream: ({ row, segment }) => row >= 0 ? events.stream[row] : segments.stream[segment],
		thread: ({ row, block }) => row >= 0 ? -1 : blocks.thread[block],
	}[name];
	const column = new (name === "addr" || name === "size" ? Float64Array : Int32Array)(count);
	before.forEach((one, l) => { column[l] = earlier(one); });
	const later = born.length && !mated ? births?.(name) : null;
	if (later) {
		column.set(later, early);
	} else {
		const from = events[name];
		for (let i = 0; i < born.length; i++)
			column[early + i] = from[born[i]];
	}
	return column;
};

/* Return the lives of @source, as columns. weight is size, or 0 for memory that does not count (imported,
 * registered). */
export const livesOf = (doc, source) => {
	const { segments, blocks, count } = source, found = fromEvents(source);
	const { orphans, born, freed, died, allocs, about, closes } = found;
	const active = activeBlocks(doc, source), allocated = doc.texts.indexOf("active_allocated");
	const ipc = doc.texts.indexOf("ipc");
	const before = [], matched = [], unweighed = [];
	for (const { block, segment } of active) {
		const life = blocks.event[block] ? about[blocks.event[block] - 1] : -1;
		const registered = segments.flags[segment] & SEGMENT_REGISTERED;
		if (life >= 0 && died[life] === count) {
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
	/* Lives from before the history come first. */
	const behind = (column, first) => {
		if (!early)
			return column;
		const longer = new Int32Array(all).fill(first);
		longer.set(column, early);
		return longer;
	};
	const lives = {
		count: all, early, born: behind(born, -1), died: behind(died, count + 1), freed: behind(freed, count + 1),
		block: new Int32Array(all).fill(-1), pending: new Uint8Array(all), about, closes,
	};
	if (early)
		for (let i = 0; i < count; i++) {
			about[i] += about[i] >= 0 ? early : 0;
			closes[i] += closes[i] >= 0 ? early : 0;
		}
	const column = (name) => columnOf(name, lives, source, before, found);
	lives.size = column("size").map((bytes) => Math.max(0, bytes));
	lives.stack = column("stack");
	for (const name of ["addr", "module", "kind", "stream", "thread"])
		lazy(lives, name, () => column(name));
	before.forEach(({ row, block }, l) => {
		lives.block[l] = block;
		lives.pending[l] = block >= 0 && blocks.state[block] !== allocated ? 1 : 0;
		if (row >= 0)
			about[row] = closes[lives.died[l] = lives.freed[l] = row] = l;
	});
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

/* Is life @l there in state @s? */
export const lifeAt = (lives, l, s) => lives.born[l] < s && s <= lives.died[l];

/* Is life @l live in the tables at the end, and not freed? `gpumem leaks` lists such lives. */
export const isLeft = (lives, l, count) => lives.died[l] === count + 1 && !lives.pending[l];

export { sequence };
