/*
 * curve.js - bytes in every state: the live bytes of lives, and the bytes of the driver's segments. A curve finds the
 * highest state of any range quickly.
 */
import { ACT } from "./document.js";

const STEP = 64;

class Curve {
	/* @values: bytes by state. */
	constructor(values) {
		this.values = values;
		const blocks = Math.ceil(values.length / STEP);
		this.best = new Uint32Array(blocks);
		for (let b = 0; b < blocks; b++)
			this.best[b] = this.scan(b * STEP, Math.min(values.length, (b + 1) * STEP) - 1);
		this.peak = this.highest(0, values.length - 1);
	}

	scan(from, to) {
		const { values } = this;
		let best = from;
		for (let s = from + 1; s <= to; s++)
			if (values[s] > values[best])
				best = s;
		return best;
	}

	/* Return the first state of @from to @to, both included, with the most bytes. */
	highest(from, to) {
		const { values } = this;
		const first = Math.ceil(from / STEP), last = Math.floor((to + 1) / STEP);
		if (first >= last)
			return this.scan(from, to);
		let best = from < first * STEP ? this.scan(from, first * STEP - 1) : this.best[first];
		for (let b = first; b < last; b++)
			if (values[this.best[b]] > values[best])
				best = this.best[b];
		if (last * STEP <= to) {
			const end = this.scan(last * STEP, to);
			if (values[end] > values[best])
				best = end;
		}
		return best;
	}

	/* Return the highest state of each column of Axis.columns(). */
	highestOf({ first, last }) {
		return first.map((from, x) => this.highest(from, last[x]));
	}
}

/* Return the curve of the live bytes; @weight: bytes by life. */
export const liveCurve = ({ born, closes, early }, weight, count) => {
	const values = new Float64Array(count + 1);
	let sum = 0, next = 0;
	for (; next < early; next++)
		sum += weight[next];
	values[0] = sum;
	for (let i = 0; i < count; i++) {
		if (born[next] === i)
			sum += weight[next++];
		if (closes[i] >= 0)
			sum -= weight[closes[i]];
		values[i + 1] = sum;
	}
	return new Curve(values);
};

/* Return the curve of the bytes in segments, computed backwards from the tables' segments at the end. */
export const reservedCurve = (source) => {
	const { action, size } = source.events, { segments, count } = source;
	const values = new Float64Array(count + 1);
	let sum = 0;
	for (let s = 0; s < segments.size.length; s++)
		sum += segments.size[s];
	let end = count + 1;
	for (let i = count; i > 0; i--) {
		const a = action[i - 1];
		if (a < ACT.segment_alloc || a > ACT.segment_unmap)
			continue;
		values.fill(Math.max(0, sum), i, end);
		end = i;
		sum -= a === ACT.segment_alloc || a === ACT.segment_map ? size[i - 1] : -size[i - 1];
	}
	return new Curve(values.fill(Math.max(0, sum), 0, end));
};
