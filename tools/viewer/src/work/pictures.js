/*
 * pictures.js - answers for pictures: the timeline and its colours, the strip above every view, the legend.
 */
import { RANKS, groupColor, rankOf, shadeOf } from "../ui/color.js";
import { modelOf } from "./open.js";

const SHADES = 7;

/* Rank groups by their bytes at the peak, then by the bytes that they ever allocated, the largest first. */
const ranksOf = (model, by) => {
	const { group, names } = model.grouped(by), { lives, all } = model;
	const atPeak = new Float64Array(names.length), ever = new Float64Array(names.length);
	const moment = all.peak;
	for (let l = 0; l < lives.count; l++) {
		ever[group[l]] += lives.weight[l];
		if (lives.born[l] < moment && moment <= lives.died[l])
			atPeak[group[l]] += lives.weight[l];
	}
	const order = names.map((_, i) => i).sort((a, b) => atPeak[b] - atPeak[a] || ever[b] - ever[a]);
	const rank = new Uint32Array(names.length);
	order.forEach((g, i) => { rank[g] = i; });
	return { rank, order, atPeak, ever };
};

const ranked = (model, by) => {
	model.ranks ??= new Map();
	if (!model.ranks.has(by))
		model.ranks.set(by, ranksOf(model, by));
	return model.ranks.get(by);
};

/* Return a colour for each life, by its group. */
export const colorsOf = (model, by, dark) => {
	const key = `${by} ${dark}`;
	model.colors ??= new Map();
	if (!model.colors.has(key)) {
		const { group } = model.grouped(by), { rank } = ranked(model, by);
		const table = new Uint32Array(Math.min(RANKS, rank.length) * SHADES), first = rank.map((r) => rankOf(r) * SHADES);
		for (let i = 0; i < table.length; i++)
			table[i] = groupColor(Math.floor(i / SHADES), i % SHADES, dark);
		const color = new Uint32Array(model.lives.count);
		for (let l = 0; l < color.length; l++)
			color[l] = table[first[group[l]] + shadeOf(l)];
		if (model.colors.size > 3)
			model.colors.clear();
		model.colors.set(key, color);
	}
	return model.colors.get(key);
};

/* Return the upper end of the picture: a little above the live bytes, the reserved bytes if these are at most twice as
 * many, and the refused call if it is not too far above. */
const topOf = ({ most, reserved }, ghost) => {
	let live = 0, given = 0;
	for (let x = 0; x < most.length; x++) {
		live = Math.max(live, most[x]);
		given = Math.max(given, reserved[x]);
	}
	const top = given <= 2 * live ? Math.max(live, given) : live, upper = ghost ? ghost.base + ghost.bytes : 0;
	return Math.max(1, (upper <= 4 * top ? Math.max(top, upper) : top) * 1.06);
};

/* Draw the picture of @view (raster.js); without view.high, up to the highest bytes in it. */
export const frame = async ({ view, by, dark, ...of }) => {
	const model = modelOf(of);
	const began = performance.now();
	const lines = model.strip(view.mode, view.from, view.to, view.width);
	const { ghost } = model, place = ghost && model.axis.place(view.mode, ghost.state);
	view.high ??= topOf(lines, ghost && view.from <= place && place <= view.to ? ghost : null);
	const drawn = model.draw(view, colorsOf(model, by, dark));
	const data = new ImageData(new Uint8ClampedArray(drawn.pixels.buffer), view.width, view.height);
	const bitmap = await createImageBitmap(data);
	return { bitmap, ids: drawn.ids, states: drawn.states, edges: drawn.edges, lines, view, took: performance.now() - began };
};

export const strip = ({ mode, from, to, width, ...of }) => {
	const model = modelOf(of);
	return { ...model.strip(mode, from, to, width), mode, from, to, width };
};

/* Return the groups with the most bytes at the window's highest state, and how many others the window has. */
export const legend = ({ by, dark, most, window, ...of }) => {
	const model = modelOf(of);
	const { names, labels, group } = model.grouped(by), { rank } = ranked(model, by), { from, to } = model.states(window), { lives, curve } = model;
	const at = curve.highest(from, to), peak = new Float64Array(names.length), seen = new Uint8Array(names.length);
	for (let l = 0; l < lives.count; l++) {
		if (lives.born[l] >= to || lives.died[l] < from || !model.weight[l])
			continue;
		seen[group[l]] = 1;
		if (lives.born[l] < at && at <= lives.died[l])
			peak[group[l]] += model.weight[l];
	}
	const order = names.map((_, g) => g).filter((g) => seen[g]).sort((a, b) => peak[b] - peak[a] || rank[a] - rank[b]);
	return {
		by, others: Math.max(0, order.length - most),
		list: order.slice(0, most).map((g) => ({ name: names[g], label: labels[g], color: groupColor(rank[g], 3, dark), peak: peak[g] })),
	};
};
