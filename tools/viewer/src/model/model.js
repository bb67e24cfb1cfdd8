/*
 * model.js - one source of one document, ready to be asked: its lives, curves, groups and the filter that is set.
 * What is costly is made when it is first asked for. Runs in the worker, and in node for tests.
 */
import { Axis } from "./axis.js";
import { matchOf } from "./filter.js";
import { ACT } from "./document.js";
import { heldOf } from "./held.js";
import { liveCurve, reservedCurve } from "./curve.js";
import { groupLives, phasesOf } from "./groups.js";
import { livesOf } from "./lives.js";
import { OF_DEVICE, OF_HOST, Stacks } from "./stacks.js";
import { rangesOf, rangesOfLives } from "./segments.js";
import { wholeOf } from "./whole.js";
import { Stripes, draw, edgeOf, paleOf } from "./raster.js";

/* The call sites of all sources of a level are decided together: what all their stacks share is left out. */
const shareStacks = (stacks, models) => {
	const of = new Uint8Array(stacks.count);
	for (const { source, lives, counted } of models)
		for (const { stack } of counted ? [lives, counted.lives] : [lives])
			for (let l = 0; l < stack.length; l++)
				of[stack[l]] |= source.device === null ? OF_HOST : OF_DEVICE;	/* beyond its end nothing is kept */
	stacks.share(of);
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
		shareStacks(level.stacks, level.models);
	return models;
};

/* The models of whole GPUs, where @models, those of all sources of @doc, have pools. Their call sites are decided together
 * with those of what has no pool, as the command does. */
export const wholesOf = (doc, models) => {
	const driver = models.filter(({ source }) => source.level === "driver"), stacks = new Stacks(doc);
	const poolsOf = ({ source: { device } }) => models.filter(({ source }) => source.level === "pool" && source.device === device);
	const made = driver.map((model) => {
		const pools = poolsOf(model);
		return pools.length ? new Model(doc, wholeOf(model, pools), stacks) : model;
	});
	shareStacks(stacks, made);
	return made.filter((model) => model.source.level === "whole");
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
		this.terms = "[]";
		this.setFilter(null);
		this.counted = heldOf(this);
		this.held = this.counted?.placeIn(this) ? null : this.counted;
	}

	/* The rows of the peak that the filter leaves, where the history does not show who held it; null: it does. */
	get atPeak() { return this.held?.weight ? this.held : null; }
	get peakBytes() { return this.atPeak?.total ?? this.curve.values[this.curve.peak]; }
	get peakState() { return this.atPeak?.place >= 0 ? this.all.peak : this.curve.peak; }

	/* Is the peak what is looked at first? Not where memory ran out, nor where what is live is all that can be seen. */
	get opensAtPeak() { return this.failed < 0 && (this.count > 0 || !this.lives.count); }

	/* Does what @at names have rows in the place of lives? */
	isHeld(at) { return this.atPeak !== null && (at === "peak" || (at === null && this.opensAtPeak)); }

	get reserved() { return this.reservedCurve ??= reservedCurve(this.source); }
	get ranges() { return this.rangeList ??= rangesOf(this); }
	get places() { return this.placeList ??= rangesOfLives(this); }
	get phases() { return this.phaseList ??= phasesOf(this.doc, this.source); }
	get all() { return this.allCurve ??= liveCurve(this.lives, this.lives.weight, this.count); }

	grouped(by) {
		if (!this.groups.has(by)) {
			const made = groupLives(this, by);
			this.groups.set(by, { labels: made.names, ...made });
		}
		return this.groups.get(by);
	}

	/* Of each life how many had its address before: PyTorch's page calls it so. */
	get generations() {
		const known = new Map();
		return this.generationList ??= Uint32Array.from(this.lives.addr, (addr) => {
			const next = known.get(addr) ?? 0;
			known.set(addr, next + 1);
			return next;
		});
	}

	/*
	 * The state at the refused call that the snapshot is of, after its event where it has one; -1: it is of none of this
	 * device. Of PyTorch's own snapshots the last such call is explained.
	 */
	get failed() {
		const { source, doc: { root: { failure }, explanation } } = this, { action, time } = source.events;
		const explained = this.doc.root.reason === "pytorch" && explanation?.device === source.device;
		if (this.failedAt !== undefined)
			return this.failedAt;
		this.failedAt = -1;
		if (!this.count || (failure ? failure.type !== "oom" || failure.device !== source.device : !explained))
			return -1;
		for (let i = this.count - 1; i >= 0 && (!failure || time[i] > failure.time_us - 5000); i--)
			if (action[i] === ACT.oom)
				return this.failedAt = i + 1;
		return this.failedAt = failure ? this.axis.state("time", failure.time_us - this.axis.begin) : -1;
	}

	/* What the refused call asked for; null: there is none. */
	get asked() {
		const { failed } = this;
		return failed < 0 ? null : this.doc.root.failure?.requested_bytes ?? this.source.events.size[failed - 1];
	}

	/* The refused call, as it is drawn: upon what the driver had given. */
	get ghost() {
		const { failed, asked } = this;
		return failed < 0 ? null : { state: failed, base: this.reserved.values[failed], bytes: asked };
	}

	/* The state that @at names: null is what is asked for first, the refused call or the peak. */
	state(at) {
		if (at === null || at === "peak")
			return at === null && this.failed >= 0 ? this.failed : this.peakState;
		return Math.max(0, Math.min(this.count, at));
	}

	/* The states from the place @from to @to of the axis; null: of all of it. */
	states({ mode, from, to }) {
		return { from: from === null ? 0 : this.axis.state(mode, from), to: to === null ? this.count : this.axis.state(mode, to) };
	}

	/* Let only lives count that all @terms leave. */
	filter(terms) {
		const key = JSON.stringify(terms);
		if (key !== this.terms) {
			this.held?.filter(terms);
			this.setFilter(matchOf(this, terms));
		}
		this.terms = key;
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
