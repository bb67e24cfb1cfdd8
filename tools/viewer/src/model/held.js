/*
 * held.js - who held the memory at the peak, as the library counted it when the peak happened (`at_peak` of a
 * snapshot), by the rules of tools/show/lives.c. A row has the bytes of one stack, module and kind of memory; nothing
 * more is known of its blocks. A model has such rows if its history does not show the peak.
 */
import { matchOf, parseTerm } from "./filter.js";
import { groupLives, streamText } from "./groups.js";
import { index, isObject, list, number, text } from "./values.js";

const WAYS = new Set(["site", "stack", "module", "kind"]);
const NONE = { names: ["(not known)"] };
const LATE_US = 1000;		/* the peak's end is stamped a little after the event */

/* Return the snapshot's object for the peak of @source, if it has one. */
const peakOf = ({ root }, { device, level, pool, at_peak: given }) => given !== undefined ? given : level === "pool" ? pool?.at_peak :
	device === null ? root.host?.at_peak : (root.devices ?? []).find((one) => one?.device === device)?.at_peak;

const sumOf = (peak) => list(peak?.sites).reduce((sum, row) => sum + Math.max(0, number(row?.bytes)), 0);

/* Return the peak of a whole GPU: the rows of its pools and of the memory outside them, each at its own peak. null: the
 * history is complete, so its highest moment is the peak; or no peak is known. */
export const wholePeak = (driver, pools) => {
	const { doc } = driver, peaks = [driver, ...pools].map(({ source }) => peakOf(doc, source)), history = doc.root.history ?? {};
	const isWhole = ["dropped", "filtered_small", "filtered_actions", "paused"].every((name) => !number(history[name])) &&
		pools.every(({ all, count }, i) => all.values[all.highest(0, count)] === sumOf(peaks[i + 1]));
	if (isWhole || !peaks.some(isObject))
		return null;
	return { sites: peaks.flatMap((peak, p) => list(peak?.sites).filter((row) => p > 0 || row?.of_pool !== true)) };
};

/* The rows in the form of a model, for groupLives() and matchOf(). */
class Held {
	constructor({ doc, source, stacks }, peak) {
		const rows = list(peak.sites).filter((row) => isObject(row) && row.kind !== "ipc"), count = rows.length;
		const size = Float64Array.from(rows, (row) => Math.max(0, number(row.bytes))), kindOf = (kind) => {
			const known = doc.texts.indexOf(kind);
			return known >= 0 ? known : doc.texts.push(kind) - 1;
		};
		Object.assign(this, { doc, source, stacks, groups: new Map(), isHeld: true, bytes: size.reduce((sum, one) => sum + one, 0) });
		this.timeUs = peak.time_us === null ? null : Number.isFinite(peak.time_us) ? peak.time_us : undefined;
		this.lives = {
			count, size, weight: size, stack: Int32Array.from(rows, (row) => index(row.stack)), module: Int32Array.from(rows, (row) => index(row.module)),
			kind: Int32Array.from(rows, (row) => kindOf(text(row.kind))), addr: new Float64Array(count).fill(-1),
			stream: new Int32Array(count).fill(-1), thread: new Int32Array(count).fill(-1),
		};
		this.filter([]);
	}

	grouped(by) {
		if (!this.groups.has(by)) {
			const made = WAYS.has(by) ? groupLives(this, by) : { ...NONE, group: new Uint32Array(this.lives.count) };
			this.groups.set(by, { labels: made.names, ...made });
		}
		return this.groups.get(by);
	}

	/* Find the state of @model at this peak (place; -1: not in the history), and make it the model's peak. Return
	 * whether the history shows who held the memory then. It does not if an allocation was live of which it has
	 * only the end. */
	placeIn(model) {
		const { lives, all } = model, s = this.place = this.stateIn(model);
		all.peak = s >= 0 ? s : all.peak;
		for (let l = 0; l < lives.early; l++)
			if (lives.block[l] < 0 && lives.weight[l] && s <= lives.died[l])
				return false;
		return s >= 0;
	}

	stateIn({ all: { values, peak }, count, axis }) {
		const { timeUs, bytes } = this;
		if (timeUs === undefined || (timeUs !== null && (!count || timeUs < axis.begin)) || bytes > values[peak])
			return -1;
		if (values[peak] === bytes)
			return peak;
		/* The peak was reset: the history has higher moments before that. */
		let s = timeUs === null ? count : axis.state("time", timeUs - axis.begin + LATE_US);
		while (s >= 0 && values[s] !== bytes)
			s--;
		while (s > 0 && values[s - 1] === bytes)
			s--;
		return s;
	}

	/* Was life @l of @model there? Known only of lives that are still there and older; others count as not
	 * there. */
	hadLife({ lives, count, source: { blocks } }, l) {
		if (this.timeUs === null)
			return lives.died[l] === count + 1;
		return lives.born[l] < 0 && lives.block[l] >= 0 && blocks.time[lives.block[l]] > 0 && blocks.time[lives.block[l]] <= this.timeUs;
	}

	/* Can rows answer @of, a term of the filter? */
	knows(of) {
		switch (of.what) {
		case "by":
			return WAYS.has(of.by);
		case "frame":
			return true;
		case "alive":
			return of.from.text === "peak" && of.to.text === "peak";
		case "text":
			return of.address < 0 && !this.doc.numbers.some((value) => of.test(streamText(value)) || of.test(`thread ${value}`));
		default:
			return false;
		}
	}

	/* Let only rows count that pass all @terms; weight is null if rows cannot answer a term. */
	filter(terms) {
		const match = terms.map(parseTerm).every((of) => this.knows(of)) ? matchOf(this, terms) : undefined, { size } = this.lives;
		this.match = match ?? null;
		this.weight = match === undefined ? null : match ? size.map((one, l) => match[l] ? one : 0) : size;
		this.total = this.weight?.reduce((sum, one) => sum + one, 0) ?? 0;
	}
}

/* Return the rows of the peak of @model; null: the library did not count them. */
export const heldOf = (model) => {
	const peak = peakOf(model.doc, model.source);
	return isObject(peak) ? new Held(model, peak) : null;
};
