/*
 * worker.js - the worker, which has the models and does everything that takes time: read snapshots, draw, sum.
 *
 * A question is { id, what, args }, the answer { id, result } or { id, error }. Each question is a function of
 * `answers`, in one of the files here. Its result goes to the page; arrays are moved, not copied.
 */
import { openPack, openFile, packPart, wholes } from "./open.js";
import { frame, legend, strip } from "./pictures.js";
import { life, moment, find, marks, times } from "./details.js";
import { compare } from "./compare.js";
import { flame } from "./flame.js";
import { allocator, events } from "./state.js";
import { table } from "./tables.js";

export const answers = {
	openPack, openFile, packPart, wholes, frame, legend, strip, life, moment, find, marks, times,
	allocator, compare, events, flame, table,
};

const buffersOf = (value, found = new Set(), depth = 0) => {
	if (ArrayBuffer.isView(value))
		found.add(value.buffer);
	else if (typeof ImageBitmap !== "undefined" && value instanceof ImageBitmap)
		found.add(value);
	else if (value && typeof value === "object" && depth < 3)
		for (const member of Object.values(value))
			buffersOf(member, found, depth + 1);
	return found;
};

self.onmessage = async ({ data: { id, what, args } }) => {
	try {
		const result = await answers[what](args);
		self.postMessage({ id, result }, [...buffersOf(result)]);
	} catch (error) {
		self.postMessage({ id, error: String(error?.message ?? error), kind: error?.constructor?.name });
	}
};
