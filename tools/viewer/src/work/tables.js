/* tables.js - make, search and sort the tables: lives summed by group, single lives, segments. */
import { streamText } from "../model/groups.js";
import { isLeft, lifeAt } from "../model/lives.js";
import { blockName, hex } from "../ui/format.js";
import { segmentsAt } from "../model/segments.js";
import { modelOf } from "./open.js";
import { testOf } from "../model/filter.js";

/* Sum by group the memory that is live in state @at and at the peak, left at the end, and allocated and freed between
 * the states @from and @to. */
const sumGroups = (model, by, { at, from, to }) => {
	const { group, names } = model.grouped(by), { lives, weight, count } = model;
	const { born, died } = lives, n = names.length, make = () => new Float64Array(n), peak = model.peakState;
	const sums = { live: make(), blocks: make(), peak: make(), left: make(), leftBlocks: make(), bytes: make(), allocs: make(), freed: make(), example: new Int32Array(n).fill(-1), longest: make() };
	const { time } = model.source.events;
	for (let l = 0; l < lives.count; l++) {
		if (model.match && !model.match[l])
			continue;
		const g = group[l];
		if (sums.example[g] < 0)
			sums.example[g] = l;
		if (lifeAt(lives, l, at)) {
			sums.live[g] += weight[l];
			sums.blocks[g]++;
		}
		if (lifeAt(lives, l, peak))
			sums.peak[g] += weight[l];
		if (isLeft(lives, l, count)) {
			sums.left[g] += weight[l];
			sums.leftBlocks[g]++;
		}
		if (born[l] >= from && born[l] < to) {
			sums.bytes[g] += weight[l];
			sums.allocs[g]++;
		}
		if (died[l] >= from && died[l] < to)
			sums.freed[g] += weight[l];
		if (born[l] >= 0 && died[l] < count)
			sums.longest[g] = Math.max(sums.longest[g], time[died[l]] - time[born[l]]);
	}
	return sums;
};

/* Replace the sums at a peak that the history does not show by those of the peak's rows. @rows: by group. */
const addHeld = (model, { by, moment }, rows) => {
	const held = model.atPeak, { group, names, labels } = held.grouped(by), known = new Map(rows.map((row) => [row.name, row])), there = model.isHeld(moment);
	for (const row of rows) {
		row.peak = 0;
		if (there)
			Object.assign(row, { live: 0, blocks: null });
	}
	for (let l = 0; l < held.lives.count; l++) {
		if (!held.weight[l])
			continue;
		const name = names[group[l]];
		if (!known.has(name)) {
			known.set(name, { name, label: labels[group[l]], live: 0, blocks: there ? null : 0, peak: 0, left: 0, leftBlocks: 0, bytes: 0, allocs: 0, freed: 0, example: -1, longest: 0 });
			rows.push(known.get(name));
		}
		const row = known.get(name);
		row.peak += held.weight[l];
		if (there)
			row.live = row.peak;
	}
	return rows;
};

/* Return a function that says whether a life has @search in a frame, its name or its address. Names are made only if
 * @search may be one. */
const searched = ({ lives, stacks, generations }, search) => {
	const test = testOf(search), has = stacks.matching(test), isName = generations && /^(b|0x)?[0-9a-f]{5,16}(_\d*)?$/i.test(search);
	const ends = /_\d+$/.test(search) ? "\n" : "";		/* a complete name finds one block only */
	const named = isName ? testOf(search + ends, true) : null;
	return (l) => has[lives.stack[l]] === 1 || (named?.(`${blockName(lives.addr[l], generations[l])}\n${hex(lives.addr[l])}`) ?? false);
};

const groupRows = (model, args) => {
	const { names, labels } = model.grouped(args.by), sums = sumGroups(model, args.by, args), rows = [];
	for (let g = 0; g < names.length; g++)
		if (sums.example[g] >= 0)
			rows.push({ name: names[g], label: labels[g], ...Object.fromEntries(Object.entries(sums).map(([key, list]) => [key, list[g]])) });
	if (model.atPeak)
		addHeld(model, args, rows);
	if (!args.search)
		return rows;
	/* Search all stacks of a group, not only the one that is shown. */
	const test = testOf(args.search), found = new Set();
	for (const one of [model, model.atPeak].filter(Boolean)) {
		const groups = one.grouped(args.by), has = searched(one, args.search);
		for (let l = 0; l < one.lives.count; l++)
			if (has(l))
				found.add(groups.names[groups.group[l]]);
	}
	return rows.filter(({ name }) => test(name) || found.has(name));
};

/* Return single lives: those never freed ("leaks"), or all, to find the longest. */
const lifeRows = (model, { what, search }) => {
	const { lives, weight, count } = model, { time } = model.source.events, rows = [];
	const last = Math.max(model.axis.end, count ? time[count - 1] : 0);
	const has = search ? searched(model, search) : () => true;
	for (let l = 0; l < lives.count; l++) {
		if ((model.match && !model.match[l]) || !weight[l] || !has(l) ||
				(what === "leaks" && !isLeft(lives, l, count)))
			continue;
		const block = lives.block[l];
		const begin = lives.born[l] >= 0 ? time[lives.born[l]] : block >= 0 ? model.source.blocks.time[block] || model.axis.begin : model.axis.begin;
		const end = lives.died[l] < count ? time[lives.died[l]] : last;
		rows.push({ life: l, size: weight[l], lifetime: Math.max(0, end - begin), born: begin - model.axis.begin, ended: lives.died[l] < count ? 1 : 0 });
	}
	return rows;
};

/* Return the segments of state @at; with a filter, those with a life that passes, or that the filter names. */
const segmentRows = (model, { at, search, terms }) => {
	const { doc, match } = model, test = search ? testOf(search) : () => true, rows = [];
	for (const { name, addr, size, stream, kind, priv, stray, blocks } of segmentsAt(model, at)) {
		const mine = blocks.filter(({ life }) => !match || match[life]), isChosen = terms.includes(`segment=${name}`);
		const row = { name, label: name, size, live: 0, free: size, blocks: mine.length, kind: stray ? "no segment" : doc.texts[kind] ?? "", stream: streamText(doc.numbers[stream] ?? 0), pool: priv ?? "unknown" };
		for (const block of blocks)
			row.free -= block.size;
		for (const { requested, waiting } of mine)
			row.live += waiting ? 0 : requested;
		if ((!match || mine.length || isChosen) && (test(`${name}\n${hex(addr)}\n${row.stream}\n${row.kind}`) || (priv && test(`private pool ${priv}`))))
			rows.push({ ...row, example: stray ? blocks[0].life : -1 });
	}
	return rows;
};

const complete = (model, row) => row.life === undefined ? row : {
	...row, label: model.stacks.siteText(model.lives.stack[row.life]), addr: blockName(model.lives.addr[row.life], model.generations[row.life]),
	stream: streamText(model.doc.numbers[model.lives.stream[row.life]]), kind: model.doc.texts[model.lives.kind[row.life]],
};

/* Return @count rows from @first on, sorted by @sort, the largest first unless @up, and the sums of all rows. */
export const table = (args) => {
	const model = modelOf(args), { what, sort, up, first, count } = args, at = model.state(args.at);
	const key = JSON.stringify([what, args.by, args.at, at, args.window, args.search, sort, up]);
	if (model.tableKey !== key || model.tableMatch !== model.match) {
		const rows = what === "groups" ? groupRows(model, { ...args, at, moment: args.at, ...model.states(args.window) }) : what === "segments" ? segmentRows(model, { ...args, at }) : lifeRows(model, args);
		const sign = up ? 1 : -1;
		if (rows.length && typeof rows[0][sort] === "string")
			rows.sort((a, b) => sign * (a[sort] < b[sort] ? -1 : a[sort] > b[sort] ? 1 : 0));
		else
			rows.sort((a, b) => sign * (a[sort] - b[sort]) || (a.life ?? 0) - (b.life ?? 0));
		model.tableKey = key;
		model.tableMatch = model.match;
		model.tableRows = rows;
		model.tableSums = {};
		for (const row of rows)
			for (const [name, value] of Object.entries(row))
				if (typeof value === "number")
					model.tableSums[name] = (model.tableSums[name] ?? 0) + value;
	}
	return {
		all: model.tableRows.length, first, sums: model.tableSums,
		rows: model.tableRows.slice(first, first + count).map((row) => complete(model, row)),
	};
};
