/*
 * axis.js - what lies along the timeline: real time in microseconds since the first event, or the order of events.
 * State s takes the place from its event to the next; in the order of events that is [s, s + 1).
 */
import { countBefore } from "./values.js";

export class Axis {
	constructor(source, end) {
		const { time } = source.events, count = source.count;
		this.count = count;
		this.time = time;
		this.begin = count ? time[0] : end || 0;
		const last = count ? time[count - 1] : this.begin;
		this.end = Math.max(last, end || 0);
		/* A picture of one moment is a second wide; one with events ends a little behind the last. */
		this.length = Math.max(this.end - this.begin, (last - this.begin) * 1.005, 1);
	}

	/* How long the axis is, in its own unit. */
	span(mode) {
		return mode === "order" ? this.count + 1 : this.length;
	}

	/* What shows more at first: where four fifths of the events are in less than a fifth of the time, their order. */
	get mode() {
		const { count, time } = this, window = Math.ceil(count * 0.8);
		for (let i = 0; i + window <= count; i += Math.max(1, count >> 8))
			if (count > 20 && time[i + window - 1] - time[i] < 0.2 * this.length)
				return "order";
		return "time";
	}

	/* The state at place @x. */
	state(mode, x) {
		if (mode === "order")
			return Math.max(0, Math.min(this.count, Math.floor(x)));
		return this.rowsUntil(x, true);
	}

	/* The last state that begins before place @x. */
	stateBefore(mode, x) {
		if (mode === "order")
			return Math.max(0, Math.min(this.count, Math.ceil(x) - 1));
		return this.rowsUntil(x, false);
	}

	/*
	 * The first and the last state that is in each of @width columns of the axis from @from to @to. One that ends when it
	 * begins, as between two events of one microsecond, is in the column that this moment is in, be it at its left edge.
	 * The last are kept: a picture and the lines over it have the same.
	 */
	columns(mode, from, to, width) {
		const key = `${mode} ${from} ${to} ${width}`;
		if (this.kept?.key === key)
			return this.kept;
		const first = new Int32Array(width), last = new Int32Array(width);
		for (let x = 0; x < width; x++) {
			const left = from + ((to - from) * x) / width;
			first[x] = Math.min(this.state(mode, left), this.stateBefore(mode, left) + 1);
			last[x] = Math.max(first[x], this.stateBefore(mode, from + ((to - from) * (x + 1)) / width));
		}
		return this.kept = { key, first, last };
	}

	/* Where state @s begins. */
	place(mode, s) {
		if (mode === "order" || !this.count)
			return mode === "order" ? s : 0;
		return s ? this.time[s - 1] - this.begin : 0;
	}

	/* How many events are before @x, or not after it. A sum of @x and the beginning would be rounded: microseconds
	 * since 1970 leave no room for parts of one. */
	rowsUntil(x, included) {
		return countBefore(this.count, (i) => included ? this.time[i] - this.begin <= x : this.time[i] - this.begin < x);
	}
}
