/*
 * model.js - one source of a document with its lives, curves and groups, and the present filter. Costly parts are made
 * when they are first read. Runs in the worker, and in node for tests.
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

/* Decide the call sites of all sources of a level together: frames that all their stacks share are no call sites. */
const shareStacks = (stacks, models) => {
	const of = new Uint8Array(stacks.count);
	for (const { source, lives, counted } of models)
		for (const { stack } of counted ? [lives, counted.lives] : [lives])
			for (let l = 0; l < stack.length; l++)
				/* An index beyond the end is ignored. */
				of[stack[l]] |= source.device === null ? OF_HOST : OF_DEVICE;
	stacks.share(of);
};

/* Make the models of all sources of @doc, in their order. */
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

/* Make the models of whole GPUs, for the GPUs that have pools; @models are those of all sources of @doc. Their call
 * sites are decided together with those of GPUs without pools, as in the command. */
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

	/* The rows of the peak, filtered; null: the history shows who held the peak, or rows cannot answer the
	 * filter. */
	get atPeak() { return this.held?.weight ? this.held : null; }
	get peakBytes() { return this.atPeak?.total ?? this.curve.values[this.curve.peak]; }
	get peakState() { return this.atPeak?.place >= 0 ? this.all.peak : this.curve.peak; }

	/* Does the page open at the peak? Not if memory ran out, and not if only live memory can be seen. */
	get opensAtPeak() { return this.failed < 0 && (this.count > 0 || !this.lives.count); }

	/* Has the moment @at rows in place of lives? */
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

	/* Of each life, how many earlier ones had its address; PyTorch's page names blocks by this. */
	get generations() {
		const known = new Map();
		return this.generationList ??= Uint32Array.from(this.lives.addr, (addr) => {
			const next = known.get(addr) ?? 0;
			known.set(addr, next + 1);
			return next;
		});
	}

	/*
	 * The state at the refused call for which the snapshot was written, after its event if it has one; -1: no
	 * refused call on this device. In PyTorch's own snapshots it is the last refused call, if it is explained.
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

	/* The bytes that the refused call asked for; null: no such call. */
	get asked() {
		const { failed } = this;
		return failed < 0 ? null : this.doc.root.failure?.requested_bytes ?? this.source.events.size[failed - 1];
	}

	/* The refused call as the timeline draws it: on top of the reserved bytes. */
	get ghost() {
		const { failed, asked } = this;
		return failed < 0 ? null : { state: failed, base: this.reserved.values[failed], bytes: asked };
	}

	/* The state that @at names; null: that of the refused call, else the peak. */
	state(at) {
		if (at === null || at === "peak")
			return at === null && this.failed >= 0 ? this.failed : this.peakState;
		return Math.max(0, Math.min(this.count, at));
	}

	/* The states at the places @from and @to of the axis; null: the axis' ends. */
	states({ mode, from, to }) {
		return { from: from === null ? 0 : this.axis.state(mode, from), to: to === null ? this.count : this.axis.state(mode, to) };
	}

	/* Let only lives count that pass all @terms. */
	filter(terms) {
		const key = JSON.stringify(terms);
		if (key !== this.terms) {
			this.held?.filter(terms);
			this.setFilter(matchOf(this, terms));
		}
		this.terms = key;
	}

	/* Let only lives count that have a 1 in @match, by life; null: all. */
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

	/* Return the most live bytes, filtered and of all lives, and the reserved bytes of each of @width columns of
	 * the axis. */
	strip(mode, from, to, width) {
		const columns = this.axis.columns(mode, from, to, width);
		const of = (curve) => Float64Array.from(curve.highestOf(columns), (state) => curve.values[state]);
		const most = of(this.curve);
		return { most, all: this.match ? of(this.all) : most, reserved: of(this.reserved) };
	}
}
