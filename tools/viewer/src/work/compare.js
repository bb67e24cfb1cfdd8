/* compare.js - the difference of two snapshots by group, as `gpumem diff` prints it. */
import { isLeft, lifeAt } from "../model/lives.js";
import { modelOf, openDocuments, wholes } from "./open.js";

/* Return the source of document @other that corresponds to the source of @model; -1: there is none. */
export const matching = (model, other) => {
	const { source } = model;
	if (source.level === "whole" && openDocuments()[other])
		wholes({ doc: other });
	const { models } = openDocuments()[other] ?? { models: [] };
	const alike = (test) => models.findIndex((one) => test(one.source));
	const same = alike((one) => one.name === source.name && one.level === source.level);
	return same >= 0 ? same : alike((one) => one.device === source.device && one.level === source.level);
};

/* Add to @rows, by the name of the group, the bytes and blocks of @model, under the keys @bytes and @blocks. */
const addTo = (rows, model, { by, when }, bytes, blocks) => {
	const held = when === "peak" ? model.atPeak : null, { lives, weight } = held ?? model, { group, names } = (held ?? model).grouped(by), { peak } = model.curve;
	for (let l = 0; l < lives.count; l++) {
		const there = held ? true : when === "peak" ? lifeAt(lives, l, peak) : isLeft(lives, l, model.count);
		if (!there || !weight[l])
			continue;
		/* Each snapshot decides its call sites alone, so a stack is matched by the hash at the end of its
		 * name. */
		const name = names[group[l]], key = by === "stack" ? name.slice(-8) : name;
		if (!rows.has(key))
			rows.set(key, { name, a: 0, b: 0, blocksA: 0, blocksB: 0 });
		const row = rows.get(key);
		row[bytes] += weight[l];
		row[blocks] += held ? NaN : 1;
	}
};

/* Return, for each snapshot with a source that corresponds to @model's, its numbers and its curve in @width columns. */
const sidesOf = (model, { doc, source, terms }, width) => openDocuments().map((entry, number) => {
	const at = !entry ? -1 : number === doc ? source : matching(model, number);
	if (at < 0)
		return null;
	const one = modelOf({ doc: number, source: at, terms }), { curve, axis } = one;
	return {
		doc: number, name: one.source.name, peak: one.peakBytes, end: curve.values[one.count], length: axis.length,
		curve: width > 0 ? one.strip("time", 0, axis.length, width).most : null,
	};
}).filter(Boolean);

/*
 * Compare a source with the same of snapshot @other, grouped by @by. @when: "end", memory that is live and not freed,
 * or "peak", each at its own peak. Return the rows that differ, the largest growth first.
 */
export const compare = ({ other, by, when, width, ...of }) => {
	const model = modelOf(of), number = matching(model, other), rows = new Map(), sides = sidesOf(model, of, width);
	if (number < 0)
		return { other, source: -1, rows: [], same: 0, a: 0, b: 0, sides };
	addTo(rows, model, { by, when }, "a", "blocksA");
	addTo(rows, modelOf({ ...of, doc: other, source: number }), { by, when }, "b", "blocksB");
	const all = [...rows.values()], differ = all.filter((row) => row.a !== row.b || Math.abs(row.blocksA - row.blocksB) > 0);
	differ.sort((x, y) => (y.b - y.a) - (x.b - x.a) || (x.name < y.name ? -1 : 1));
	return {
		other, source: number, sides, rows: differ, same: all.length - differ.length,
		a: all.reduce((sum, row) => sum + row.a, 0), b: all.reduce((sum, row) => sum + row.b, 0),
	};
};
