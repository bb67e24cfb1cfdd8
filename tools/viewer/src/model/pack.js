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

/* The differences of one column: its planes joined, its signs taken back. One loop for each width: this is most of what
 * opening a large snapshot takes. */
const join = (bytes, at, width, count) => {
	if (width === 0)
		return new Int32Array(count);
	const plane = (k) => bytes.subarray(at + k * count, at + (k + 1) * count);
	if (width <= 4) {
		const all = new Int32Array(count), a = plane(0), b = width > 1 ? plane(1) : a, c = width > 2 ? plane(2) : a, d = width > 3 ? plane(3) : a;
		if (width === 1)
			for (let i = 0; i < count; i++)
				all[i] = (a[i] >>> 1) ^ -(a[i] & 1);
		else if (width === 2)
			for (let i = 0; i < count; i++)
				all[i] = ((a[i] | b[i] << 8) >>> 1) ^ -(a[i] & 1);
		else if (width === 3)
			for (let i = 0; i < count; i++)
				all[i] = ((a[i] | b[i] << 8 | c[i] << 16) >>> 1) ^ -(a[i] & 1);
		else
			for (let i = 0; i < count; i++)
				all[i] = ((a[i] | b[i] << 8 | c[i] << 16 | d[i] << 24) >>> 1) ^ -(a[i] & 1);
		return all;
	}
	const low = join32(plane(0), plane(1), plane(2), plane(3)), all = new Float64Array(count);
	for (let k = 4, scale = 2 ** 32; k < width; k++, scale *= 256)
		for (let i = 0, from = at + k * count; i < count; i++)
			all[i] += bytes[from + i] * scale;
	for (let i = 0; i < count; i++) {
		const v = all[i] + low[i];
		all[i] = low[i] & 1 ? -(v + 1) / 2 : v / 2;
	}
	return all;
};

const join32 = (a, b, c, d) => {
	const all = new Uint32Array(a.length);
	for (let i = 0; i < all.length; i++)
		all[i] = a[i] | b[i] << 8 | c[i] << 16 | d[i] << 24;
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

/* The numbers of a column of its differences from what was to be expected, which @coding names. Of events @of has the
 * mates, the addresses, and which of them complete a free. */
const resolve = (numbers, coding, base, of) => {
	const count = numbers.length, { mates, addresses, action, completed } = of;
	if (coding === "plain")
		return numbers;
	if (coding === "paired") {
		for (let i = 0; i < count; i++)
			if (action[i] === completed && mates[i])
				numbers[i] += numbers[i - mates[i]];
		return numbers;
	}
	const wide = new Float64Array(count);
	let before = base;
	if (coding === "delta")
		for (let i = 0; i < count; i++)
			wide[i] = before += numbers[i];
	else if (coding === "listed")
		for (let i = 0; i < count; i++)
			wide[i] = mates[i] ? wide[i - mates[i]] : addresses[numbers[i] ? before - numbers[i] : before++];
	else
		for (let i = 0; i < count; i++)
			wide[i] = mates[i] ? numbers[i] + wide[i - mates[i]] : before += numbers[i];
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
	for (const [name, coding, width, count, ordered, base] of header.columns) {
		if (at + width * count > bytes.length)
			throw new BadInput("the snapshot in this page is cut short");
		const prefix = `${name.split(".")[0]}.`, numbers = join(bytes, at, width, count);
		columns.set(name, resolve(ordered ? reorder(numbers, order) : numbers, coding, base, {
			mates: columns.get(`${prefix}mate`), addresses: columns.get(`${prefix}addresses`),
			action: columns.get(`${prefix}action`), completed,
		}));
		if (name === `${prefix}action`)
			order = orderOf(numbers);
		at += width * count;
	}
	return { header, columns };
};

export const readPackText = async (base64) => readPack(await gunzip(fromBase64(base64)));
