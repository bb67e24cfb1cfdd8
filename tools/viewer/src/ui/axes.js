/* axes.js - marks along an axis, at round numbers. */
import { count, moment, roundBytes } from "./format.js";

/* Return a step of 1, 2 or 5 times a power of ten that gives about @wanted marks. */
const decimal = (length, wanted) => {
	const raw = Math.max(length / Math.max(1, wanted), 1e-9), power = 10 ** Math.floor(Math.log10(raw));
	return [1, 2, 5, 10].map((k) => k * power).find((step) => step >= raw);
};

/* Steps from a minute on are those of clocks. */
const CLOCK = [60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400].map((seconds) => seconds * 1e6);
const timeStep = (length, wanted) => {
	const raw = length / Math.max(1, wanted);
	return raw <= 30e6 ? Math.max(1, decimal(length, wanted)) : CLOCK.find((step) => step >= raw) ?? decimal(length, wanted);
};

export const alongTicks = (mode, from, to, wanted) => {
	const step = mode === "order" ? Math.max(1, decimal(to - from, wanted)) : timeStep(to - from, wanted);
	const ticks = [];
	for (let at = Math.ceil(from / step) * step; at <= to; at += step)
		ticks.push({ at, text: mode === "order" ? count(at) : moment(at, step) });
	return ticks;
};

/* Return marks for bytes; their steps are powers of two. */
export const byteTicks = (low, high, wanted) => {
	const raw = Math.max(1, (high - low) / Math.max(1, wanted)), step = 2 ** Math.ceil(Math.log2(raw));
	const ticks = [];
	for (let at = Math.ceil(low / step) * step; at <= high; at += step)
		ticks.push({ at, text: roundBytes(at) });
	return ticks;
};
