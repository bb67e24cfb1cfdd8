/*
 * whole.js - a whole GPU as a source: the blocks of its pools in place of the pools' pieces, and all other memory of
 * the driver, by the rules of tools/read/level.c. A block of the driver's is a pool's piece if the pool reported an
 * address in it while the block lived.
 */
import { ACT, BLOCK_COLUMNS, EVENT_COLUMNS, SEGMENT_COLUMNS } from "./document.js";
import { wholePeak } from "./held.js";
import { countBefore, lazy } from "./values.js";

const WIDE = new Set(["time", "addr", "size", "requested", "handle"]);

/* All addresses that @pools reported, with their times, and the memory that the pools hold at the end. */
class Words {
	constructor(pools) {
		const addr = [], time = [];
		this.spans = [];
		const add = (address, at) => { addr.push(address); time.push(at); };
		for (const { source: { events, segments, blocks, count } } of pools) {
			for (let i = 0; i < count; i++)
				if (events.action[i] !== ACT.oom)
					add(events.addr[i], events.time[i]);
			segments.addr.forEach((address, s) => {
				add(address, Infinity);
				if (segments.size[s] > 0)
					this.spans.push([address, address + segments.size[s]]);
			});
			blocks.addr.forEach((address) => add(address, Infinity));
		}
		const order = Uint32Array.from(addr, (_, i) => i).sort((a, b) => addr[a] - addr[b] || time[a] - time[b] || 0);
		this.addr = Float64Array.from(order, (i) => addr[i]);
		this.time = Float64Array.from(order, (i) => time[i]);
		this.spans.sort((a, b) => a[0] - b[0]);
	}

	from(addr, time) {
		return countBefore(this.addr.length, (i) => this.addr[i] < addr || (this.addr[i] === addr && this.time[i] < time));
	}

	/* Did a pool report an address in [@addr, @addr + @size) between the times @from and @to? With @to of Infinity:
	 * or does a pool hold all of it at the end? */
	isPiece(addr, size, from, to) {
		const held = ([low, high]) => low <= addr && addr + size <= high;
		if (to === Infinity && size > 0 && this.spans.some(held))
			return true;
		for (let at = this.from(addr, from); at < this.addr.length && this.addr[at] < addr + Math.max(1, size);) {
			if (this.time[at] >= from && this.time[at] <= to)
				return true;
			at = this.time[at] < from ? this.from(this.addr[at], from) : this.from(this.addr[at] + 1, from);
		}
		return false;
	}
}

/* Find the events of @driver that are about pools' pieces. Return a byte by event. */
const piecesOf = ({ source: { events, count }, lives }, words) => {
	const { action, addr, size, time } = events, { about, born, freed, died, early } = lives, gone = new Uint8Array(count);
	const endOf = (l) => died[l] < count && action[died[l]] === ACT.free_completed ? time[died[l]] : freed[l] < count ? time[freed[l]] : Infinity;
	const isGone = new Uint8Array(lives.count);
	for (let l = early; l < lives.count; l++)
		isGone[l] = words.isPiece(lives.addr[l], size[born[l]], time[born[l]], endOf(l)) ? 1 : 0;
	/* Memory that moves, as expandable memory does when it is mapped, is a piece in both places or in none. */
	for (let i = 2; i + 1 < count; i++)
		if (action[i] === ACT.segment_map && action[i - 2] === ACT.free_completed && action[i - 1] === ACT.segment_unmap && action[i + 1] === ACT.alloc &&
				addr[i + 1] === addr[i] && time[i - 2] === time[i] && time[i + 1] === time[i]) {
			const before = about[i - 2], after = about[i + 1];
			if (before >= 0 && (isGone[before] || isGone[after]))
				isGone[before] = isGone[after] = 1;
		}
	for (let i = 0; i < count; i++)
		if (action[i] <= ACT.free_completed)
			gone[i] = about[i] >= early ? isGone[about[i]] : words.isPiece(addr[i], size[i], -Infinity, time[i]) ? 1 : 0;
	return gone;
};

/* Return the sources for whole GPUs in @doc: one for each GPU that has pools. */
export const wholeNames = ({ sources }) => sources.filter(({ level, device }) => level === "driver" && device !== null &&
	sources.some((one) => one.level === "pool" && one.device === device)).map(({ device }) => ({ device, level: "whole", name: `GPU ${device}, whole` }));

/* Make the source of the whole GPU of @driver and its @pools, all of them models. */
export const wholeOf = (driver, pools) => {
	const words = new Words(pools), parts = [driver.source, ...pools.map(({ source }) => source)], gone = piecesOf(driver, words);
	const actions = parts.map(({ events }) => events.action);
	const keeps = (p, i) => p ? actions[p][i] <= ACT.free_completed || actions[p][i] === ACT.oom : !gone[i];
	/* Merge the events by time, the driver's first. part and row: the part of each event and its row there; places:
	 * the reverse, by part and row. */
	const most = parts.reduce((sum, { count }) => sum + count, 0), part = new Uint8Array(most), row = new Uint32Array(most);
	const places = parts.map(({ count }) => new Int32Array(count).fill(-1)), next = parts.map(() => -1), times = parts.map(({ events }) => events.time);
	const advance = (p) => {
		do
			next[p]++;
		while (next[p] < parts[p].count && !keeps(p, next[p]));
		return next[p] < parts[p].count ? times[p][next[p]] : Infinity;
	};
	const heads = parts.map((_, p) => advance(p));
	let count = 0;
	for (;;) {
		let best = -1;
		for (let p = 0; p < heads.length; p++)
			if (next[p] < places[p].length && (best < 0 || heads[p] < heads[best]))
				best = p;
		if (best < 0)
			break;
		places[best][next[best]] = count;
		part[count] = best;
		row[count++] = next[best];
		heads[best] = advance(best);
	}
	const events = {};
	for (const name of EVENT_COLUMNS)
		lazy(events, name, () => {
			const from = parts.map((one) => one.events[name]), column = new (name === "action" ? Uint8Array : WIDE.has(name) ? Float64Array : Int32Array)(count);
			for (let i = 0; i < count; i++) {
				const value = from[part[i]][row[i]];
				column[i] = name !== "mate" || !value ? value : i - places[part[i]][row[i] - value];
				if (name === "mate" && column[i] > i)
					column[i] = 0;		/* its mate was left out */
			}
			return column;
		});
	lazy(events, "pool", () => part.subarray(0, count));
	/* Segments of pools are within the driver's: they keep their blocks, but no bytes of their own. */
	const inactive = driver.doc.texts.indexOf("inactive"), chosen = [], counts = [];
	parts.forEach(({ segments, blocks }, p) => {
		for (let s = 0, b = 0; s < segments.addr.length; s++) {
			const before = chosen.length;
			for (let end = b + segments.blocks[s]; b < end; b++)
				if (blocks.state[b] !== inactive && (p || !words.isPiece(blocks.addr[b], blocks.size[b], blocks.time[b], Infinity)))
					chosen.push([p, b]);
			counts.push(chosen.length - before);
		}
	});
	const gather = (names, make) => Object.fromEntries(names.map((name) => [name, make(name, WIDE.has(name) ? Float64Array : Int32Array)]));
	const segments = gather(SEGMENT_COLUMNS, (name, Column) => Column.from(name === "blocks" ? counts :
		parts.flatMap((one, p) => Array.from(one.segments[name], (value) => name === "size" && p ? 0 : value))));
	const blocks = gather(BLOCK_COLUMNS, (name, Column) => Column.from(chosen, ([p, b]) => {
		const value = parts[p].blocks[name][b];
		return name === "event" && value ? places[p][value - 1] + 1 : value;
	}));
	const { device, dropped } = driver.source;
	return { device, level: "whole", dropped, name: `GPU ${device}, whole`, events, segments, blocks, count, at_peak: wholePeak(driver, pools) };
};
