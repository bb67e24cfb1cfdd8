/*
 * axis.js - the axis of the timeline: time in microseconds since the first event, or the order of events. State s takes
 * the places from its event to the next one; in the order of events that is [s, s + 1).
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
		/* The axis ends a little behind the last event. Without a duration it has 1 us. */
		this.length = Math.max(this.end - this.begin, (last - this.begin) * 1.005, 1);
	}

	/* The length of the axis, in its own unit. */
	span(mode) {
		return mode === "order" ? this.count + 1 : this.length;
	}

	/* The mode that shows more at first: "order" if four fifths of the events are in less than a fifth of the
	 * time. */
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
	 * Return the first and the last state in each of @width columns of the axis from @from to @to. A state of no
	 * duration, as between two events of one microsecond, is in the column of its moment, which may be the column's
	 * left edge. The last result is kept, because a picture and the lines over it ask for the same.
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

	/* The place where state @s begins. */
	place(mode, s) {
		if (mode === "order" || !this.count)
			return mode === "order" ? s : 0;
		return s ? this.time[s - 1] - this.begin : 0;
	}

	/* Return how many events are before place @x, or (@included) not after it. @x is not added to the beginning,
	 * because the sum would be rounded: microseconds since 1970 leave no room for fractions. */
	rowsUntil(x, included) {
		return countBefore(this.count, (i) => included ? this.time[i] - this.begin <= x : this.time[i] - this.begin < x);
	}
}
