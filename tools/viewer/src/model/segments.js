/*
 * segments.js - the driver's segments over time, and where the allocations are in them in any state.
 *
 * A range is a piece of memory from the event that added it to the event that removed it: a segment, or a mapped part
 * of an expandable segment. As with lives, a range is there in state s if born < s <= died. All pieces of an expandable
 * segment have the same base, the lowest address of any of them. priv is the private pool, such as a CUDA graph's; "":
 * none; undefined: unknown, because only the tables tell it, and the whole segment was given back before the end.
 */
import { ACT, SEGMENT_EXPANDABLE } from "./document.js";
import { hex, segmentName } from "../ui/format.js";
import { countBefore } from "./values.js";

const ROUND = 512;		/* sizes are rounded up to this if the tables do not have the block */

/* The open ranges, by address; they do not overlap. */
class Open {
	constructor() { this.list = []; }

	/* The first whose end is above @addr. */
	find(addr) { return countBefore(this.list.length, (i) => this.list[i].addr + this.list[i].size <= addr); }

	add(range) { this.list.splice(this.find(range.addr), 0, range); }

	at(addr) {
		const range = this.list[this.find(addr)];
		return range && range.addr <= addr ? range : undefined;
	}

	/* Remove the ranges that overlap [@from, @to). Return these whole ranges, as pieces, and the gaps between
	 * them. */
	take(from, to) {
		const first = this.find(from), pieces = [], gaps = [];
		let last = first, at = from;
		for (; last < this.list.length && this.list[last].addr < to; last++) {
			const range = this.list[last];
			if (range.addr > at)
				gaps.push([at, range.addr]);
			pieces.push(range);
			at = range.addr + range.size;
		}
		if (at < to)
			gaps.push([at, to]);
		this.list.splice(first, last - first);
		return { pieces, gaps };
	}
}

/* Kinds whose address may be a handle: such memory begins and ends as a whole, and has no neighbours. */
const WHOLE = new Set(["array", "external", "graph", "ipc", "vmm"]);

/* Join the pieces of expandable segments in @ranges: pieces that are adjacent at one time, and a piece with the range
 * that it is the rest of (left). Set base and priv of each. */
const joinPieces = (ranges) => {
	const ends = new Map(), rootOf = (one) => {
		while (one.of)
			one = one.of;
		return one;
	};
	const join = (one, other) => {
		const [low, high] = [rootOf(one), rootOf(other)].sort((a, b) => a.addr - b.addr);
		if (low !== high)
			high.of = low;
	};
	for (const one of ranges)
		ends.set(one.addr + one.size, [...ends.get(one.addr + one.size) ?? [], one]);
	for (const one of ranges) {
		if (one.left)
			join(one.left, one);
		for (const below of ends.get(one.addr) ?? [])
			if (below.stream === one.stream && Math.max(below.born, one.born) < Math.min(below.died, one.died))
				join(below, one);
	}
	for (const one of ranges)
		rootOf(one).known ??= one.priv;
	for (const one of ranges)
		Object.assign(one, { base: rootOf(one).addr, priv: rootOf(one).known });
};

export const rangesOf = ({ doc: { texts }, source }) => {
	const { action, addr, size, stream, kind } = source.events, { segments, count } = source;
	const found = [], open = new Open(), handles = new Map(), whole = texts.map((text) => WHOLE.has(text));
	const make = (row, at, bytes, more) => {
		const range = { addr: at, base: at, size: bytes, born: row, died: count + 1, ...more };
		found.push(range);
		return range;
	};
	const begin = (...what) => open.add(make(...what));
	/* End the ranges in [from, to). A part outside goes on as a new range; a gap was there since before the
	 * history. */
	const end = (row, from, to, more) => {
		const { pieces, gaps } = open.take(from, to);
		for (const piece of pieces) {
			const last = piece.addr + piece.size;
			piece.died = row;
			if (piece.addr < from)
				begin(row, piece.addr, from - piece.addr, { stream: piece.stream, kind: piece.kind, expandable: piece.expandable, left: piece });
			if (last > to)
				begin(row, to, last - to, { stream: piece.stream, kind: piece.kind, expandable: piece.expandable, left: piece });
		}
		for (const [low, high] of gaps)
			make(-1, low, high - low, more).died = row;
	};
	for (let i = 0; i < count; i++) {
		const a = action[i];
		if (a < ACT.segment_alloc || a > ACT.segment_unmap || !size[i])
			continue;
		const begins = a === ACT.segment_alloc || a === ACT.segment_map;
		const more = { stream: stream[i], kind: kind[i], expandable: a >= ACT.segment_map && !whole[kind[i]], handle: whole[kind[i]] };
		if (whole[kind[i]]) {
			const before = handles.get(addr[i]) ?? (begins ? null : make(-1, addr[i], size[i], more));
			if (before)
				before.died = i;
			handles.delete(addr[i]);
			if (begins)
				handles.set(addr[i], make(i, addr[i], size[i], more));
		} else if (begins) {
			const { pieces } = open.take(addr[i], addr[i] + size[i]);
			for (const piece of pieces)
				piece.died = i;		/* its end was lost */
			begin(i, addr[i], size[i], more);
		} else {
			end(i, addr[i], addr[i] + size[i], more);
		}
	}
	/* A segment of the tables that no event added was there before the history. */
	for (let s = 0; s < segments.addr.length; s++) {
		const from = segments.addr[s], to = from + segments.size[s];
		const priv = segments.pool0[s] || segments.pool1[s] ? `${segments.pool0[s]}, ${segments.pool1[s]}` : "";
		const more = { stream: segments.stream[s], kind: segments.kind[s], expandable: (segments.flags[s] & SEGMENT_EXPANDABLE) !== 0, priv };
		if (whole[more.kind]) {
			Object.assign(handles.get(from) ?? make(-1, from, segments.size[s], { ...more, handle: true }), { kept: true, priv });
			continue;
		}
		const { pieces, gaps } = open.take(from, to);
		for (const piece of pieces)
			Object.assign(piece, { kept: true, priv });
		for (const [low, high] of gaps)
			make(-1, low, high - low, more).kept = true;
	}
	for (const range of found)
		if (range.died === count + 1 && !range.kept)
			range.died = count;
	joinPieces(found.filter(({ expandable }) => expandable));
	return found.sort((a, b) => a.addr - b.addr || a.born - b.born);
};

/* Return the range in which each life of @model was when the life, or the history, began; undefined: in none. */
export const rangesOfLives = ({ lives, ranges }) => {
	const coming = [...ranges].sort((a, b) => a.born - b.born), going = [...ranges].sort((a, b) => a.died - b.died);
	const open = new Open(), handles = new Map(), found = [];
	for (let l = 0, first = 0, last = 0; l < lives.count; l++) {
		const s = Math.max(0, lives.born[l] + 1);
		for (; first < going.length && going[first].died < s; first++)
			if (handles.get(going[first].addr) === going[first])
				handles.delete(going[first].addr);
			else if (open.at(going[first].addr) === going[first])
				open.list.splice(open.find(going[first].addr), 1);
		for (; last < coming.length && coming[last].born < s; last++)
			if (coming[last].died >= s && coming[last].handle)
				handles.set(coming[last].addr, coming[last]);
			else if (coming[last].died >= s)
				open.add(coming[last]);
		found.push(handles.get(lives.addr[l]) ?? open.at(lives.addr[l]));
	}
	return found;
};

/*
 * Return the segments of state @s by address, { name, addr, size, stream, kind, expandable } with blocks { life, addr,
 * size (rounded), requested, waiting }. An allocation outside all segments gets a segment of its own, behind the
 * others.
 */
export const stateAt = (model, ranges, s) => {
	const { lives, source } = model, segments = [];
	for (const range of ranges) {
		if (!(range.born < s && s <= range.died))
			continue;
		const last = segments.at(-1);
		/* Adjacent mapped pieces are one segment. */
		if (last?.expandable && range.expandable && last.addr + last.size === range.addr && last.stream === range.stream)
			last.size += range.size;
		else
			segments.push({ ...range, name: segmentName(range.base), blocks: [] });
	}
	const strays = [];
	const find = (addr) => {
		const segment = segments[countBefore(segments.length, (i) => segments[i].addr <= addr) - 1];
		return segment && addr < segment.addr + segment.size ? segment : null;
	};
	for (let l = 0; l < lives.count; l++) {
		if (lives.born[l] >= s)
			break;
		if (lives.died[l] < s || !lives.weight[l])
			continue;
		const block = lives.block[l], addr = lives.addr[l], requested = lives.size[l];
		const size = block >= 0 ? Math.max(requested, source.blocks.size[block]) : Math.ceil(requested / ROUND) * ROUND;
		const one = { life: l, addr, size, requested, waiting: lives.freed[l] < s || (lives.pending[l] === 1 && s === model.count) };
		const segment = find(addr);
		if (segment)
			segment.blocks.push(one);
		else
			strays.push({ name: hex(addr), addr, size, stream: lives.stream[l], kind: lives.kind[l], expandable: false, priv: "", stray: true, blocks: [one] });
	}
	for (const segment of segments) {
		segment.blocks.sort((a, b) => a.addr - b.addr);
		for (let b = 0; b < segment.blocks.length; b++) {
			const end = segment.blocks[b + 1]?.addr ?? segment.addr + segment.size, one = segment.blocks[b];
			one.size = Math.max(0, Math.min(one.size, end - one.addr));
		}
	}
	return segments.concat(strays);
};

/* stateAt() with the ranges of @model. */
export const segmentsAt = (model, s) => stateAt(model, model.ranges, s);

/* Return sums over the segments of a state, in bytes: reserved, live, waiting, lost by rounding, free; the number of
 * holes and the largest; the number of segments and blocks. */
export const sumsOf = (segments) => {
	const sums = { reserved: 0, live: 0, waiting: 0, rounding: 0, free: 0, holes: 0, largest: 0, segments: segments.length, blocks: 0 };
	for (const { addr, size, blocks } of segments) {
		sums.reserved += size;
		let at = addr;
		const hole = (to) => {
			if (to <= at)
				return;
			sums.free += to - at;
			sums.holes++;
			sums.largest = Math.max(sums.largest, to - at);
		};
		for (const block of blocks) {
			hole(block.addr);
			at = Math.max(at, block.addr + block.size);
			sums.blocks++;
			sums[block.waiting ? "waiting" : "live"] += Math.min(block.requested, block.size);
			sums.rounding += Math.max(0, block.size - block.requested);
		}
		hole(addr + size);
	}
	return sums;
};
