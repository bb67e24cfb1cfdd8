/*
 * pack.js - a snapshot as `gpumem view` packs it: unpacked into the columns of a document (document.js).
 * The format is in README.md. Runs in the worker, and in node for tests.
 */
import { BadInput } from "./bad_input.js";

const MAGIC = "gpumem-view 1\n";

const fromBase64 = (text) => {
	if (Uint8Array.fromBase64)
		return Uint8Array.fromBase64(text);
	const raw = atob(text), bytes = new Uint8Array(raw.length);
	for (let i = 0; i < raw.length; i++)
		bytes[i] = raw.charCodeAt(i);
	return bytes;
};

export const gunzip = async (bytes) => {
	const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
	return new Uint8Array(await new Response(stream).arrayBuffer());
};

/* The differences of one column: its planes joined, its signs taken back. */
const join = (bytes, at, width, count) => {
	if (width <= 4) {
		const all = new Int32Array(count);
		for (let k = 0; k < width; k++) {
			const plane = bytes.subarray(at + k * count, at + (k + 1) * count), shift = 8 * k;
			for (let i = 0; i < count; i++)
				all[i] |= plane[i] << shift;
		}
		for (let i = 0; i < count; i++) {
			const v = all[i];
			all[i] = (v >>> 1) ^ -(v & 1);
		}
		return all;
	}
	const low = new Uint32Array(count), all = new Float64Array(count);
	for (let k = 0; k < 4; k++)
		for (let i = 0, from = at + k * count; i < count; i++)
			low[i] |= bytes[from + i] << (8 * k);
	for (let k = 4, scale = 2 ** 32; k < width; k++, scale *= 256)
		for (let i = 0, from = at + k * count; i < count; i++)
			all[i] += bytes[from + i] * scale;
	for (let i = 0; i < count; i++) {
		const v = all[i] + low[i];
		all[i] = low[i] & 1 ? -(v + 1) / 2 : v / 2;
	}
	return all;
};

/* Events come those of one action together: where each of them belongs. */
const orderOf = (action) => {
	const count = action.length, next = [0], order = new Uint32Array(count);
	for (let i = 0; i < count; i++)
		next[action[i] + 1] = (next[action[i] + 1] ?? 0) + 1;
	for (let t = 1; t < next.length; t++)
		next[t] = (next[t] ?? 0) + next[t - 1];
	for (let i = 0; i < count; i++)
		order[next[action[i]]++] = i;
	return order;
};

const reorder = (numbers, order) => {
	const found = new numbers.constructor(numbers.length);
	for (let i = 0; i < order.length; i++)
		found[order[i]] = numbers[i];
	return found;
};

/* The numbers of a column of its differences from what was to be expected, which @coding names. */
const resolve = (numbers, coding, of) => {
	const count = numbers.length;
	if (coding === "plain")
		return numbers;
	if (coding === "paired") {
		const { mates, completes } = of();
		for (let i = 0; i < count; i++)
			if (completes[i])
				numbers[i] += numbers[i - mates[i]];
		return numbers;
	}
	const wide = new Float64Array(count);
	let before = 0;
	if (coding === "delta") {
		for (let i = 0; i < count; i++)
			wide[i] = before += numbers[i];
	} else if (coding === "listed") {
		const { mates, addresses } = of();
		for (let i = 0; i < count; i++)
			wide[i] = mates[i] ? wide[i - mates[i]] : addresses[numbers[i] ? before - numbers[i] : before++];
	} else {
		const { mates } = of();
		for (let i = 0; i < count; i++)
			wide[i] = mates[i] ? numbers[i] + wide[i - mates[i]] : before += numbers[i];
	}
	return wide;
};

/* Bytes of a pack, unpacked, to { header, columns: Map of name to typed array }. */
export const readPack = (bytes) => {
	const text = new TextDecoder().decode(bytes.subarray(0, MAGIC.length));
	if (text !== MAGIC)
		throw new BadInput("this is no snapshot that gpumem view wrote, or one of another version");
	const view = new DataView(bytes.buffer, bytes.byteOffset);
	const length = view.getUint32(MAGIC.length, true), begin = MAGIC.length + 4;
	const header = JSON.parse(new TextDecoder().decode(bytes.subarray(begin, begin + length)));
	const columns = new Map();
	const completed = header.texts.indexOf("free_completed");
	let at = begin + length, order = null;
	for (const [name, coding, width, count, ordered] of header.columns) {
		if (at + width * count > bytes.length)
			throw new BadInput("the snapshot in this page is cut short");
		const prefix = `${name.split(".")[0]}.`;
		const numbers = join(bytes, at, width, count);
		const about = () => {
			const action = columns.get(`${prefix}action`), mates = columns.get(`${prefix}mate`);
			return {
				mates, addresses: columns.get(`${prefix}addresses`),
				completes: action.map((a, i) => a === completed && mates[i] ? 1 : 0),
			};
		};
		columns.set(name, resolve(ordered ? reorder(numbers, order) : numbers, coding, about));
		if (name === `${prefix}action`)
			order = orderOf(numbers);
		at += width * count;
	}
	return { header, columns };
};

export const readPackText = async (base64) => readPack(await gunzip(fromBase64(base64)));
