/*
 * model.js - one source of one document, ready to be asked: its lives, curves, groups and the filter that is set.
 * What is costly is made when it is first asked for. Runs in the worker, and in node for tests.
 */
import { Axis } from "./axis.js";
import { liveCurve, reservedCurve } from "./curve.js";
import { groupLives, phasesOf } from "./groups.js";
import { livesOf, sequence } from "./lives.js";
import { Stacks } from "./stacks.js";
import { Stripes, draw, edgeOf, paleOf } from "./raster.js";

/* The call sites of all sources of a level are decided together: what all their stacks share is left out. */
const shareStacks = (doc, stacks, models) => {
	const used = new Uint8Array(stacks.count);
	for (const { lives: { stack } } of models)
		for (let l = 0; l < stack.length; l++)
			used[stack[l]] = 1;		/* beyond its end nothing is kept */
	for (const failure of doc.root.failures ?? [])
		used[failure?.stack] = 1;
	stacks.share(sequence(stacks.count).filter((id) => id > 0 && used[id]));
};

/* The models of all sources of @doc, in their order. */
export const modelsOf = (doc) => {
	const levels = new Map();
	const models = doc.sources.map((source) => {
		if (!levels.has(source.level))
			levels.set(source.level, { stacks: new Stacks(doc), models: [] });
		const level = levels.get(source.level), model = new Model(doc, source, level.stacks);
		level.models.push(model);
		return model;
	});
	for (const level of levels.values())
		shareStacks(doc, level.stacks, level.models);
	return models;
};

export class Model {
	constructor(doc, source, stacks) {
		this.doc = doc;
		this.source = source;
		this.stacks = stacks;
		this.count = source.count;
		this.lives = livesOf(doc, source);
		this.axis = new Axis(source, doc.root.time_us ?? 0);
		this.groups = new Map();
		this.setFilter(null);
	}

	get reserved() { return this.reservedCurve ??= reservedCurve(this.source); }
	get phases() { return this.phaseList ??= phasesOf(this.doc, this.source); }
	get all() { return this.allCurve ??= liveCurve(this.lives, this.lives.weight, this.count); }

	grouped(by) {
		if (!this.groups.has(by))
			this.groups.set(by, groupLives(this, by));
		return this.groups.get(by);
	}

	/* Let only lives with @match (bytes by life) count; null: all. */
	setFilter(match) {
		const { weight, count } = this.lives;
		this.match = match;
		this.weight = weight;
		if (match) {
			this.weight = new Float64Array(count);
			for (let l = 0; l < count; l++)
				this.weight[l] = match[l] ? weight[l] : 0;
		}
		this.stripes = new Stripes(this.lives, this.weight);
		this.curve = match ? liveCurve(this.lives, this.weight, this.count) : this.all;
	}

	/* Bytes by group of @by: what @share(life) says that each has. */
	sums(by, share) {
		const { group, names } = this.grouped(by), { count } = this.lives;
		const bytes = new Float64Array(names.length), counts = new Float64Array(names.length);
		for (let l = 0; l < count; l++) {
			if (!share(l) || (this.match && !this.match[l]))
				continue;
			bytes[group[l]] += this.weight[l];
			counts[group[l]]++;
		}
		return { bytes, counts, names, group };
	}

	draw(view, color) {
		const { background } = view;
		return draw(this.stripes, this.curve, this.axis, { color, edge: edgeOf, pale: paleOf(background) }, view);
	}

	/* The most and the reserved bytes of each of @width columns of the axis. */
	strip(mode, from, to, width) {
		const columns = this.axis.columns(mode, from, to, width);
		const of = (curve) => Float64Array.from(curve.highestOf(columns), (state) => curve.values[state]);
		const most = of(this.curve);
		return { most, all: this.match ? of(this.all) : most, reserved: of(this.reserved) };
	}
}
