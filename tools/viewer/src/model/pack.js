/*
 * pack.js - unpack a snapshot that `gpumem view` packed into the columns of a document (document.js). README.md has the
 * format. Runs in the worker, and in node for tests.
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

/* Unpack gzip: @take gets each part as soon as it is unpacked. */
class Gunzip {
	constructor(take) {
		const { readable, writable } = new DecompressionStream("gzip"), reader = readable.getReader();
		this.writer = writable.getWriter();
		this.done = (async () => {
			for (let part = await reader.read(); !part.done; part = await reader.read())
				take(part.value);
		})();
		this.done.catch(() => {});		/* end() reports the error */
	}

	write(packed) {
		this.writer.write(packed).catch(() => {});
	}

	end() {
		this.writer.close().catch(() => {});
		return this.done;
	}
}

/* Room for the differences of a column. It is reused, because new memory takes time. */
let room = new Int32Array(0);

/* Return the differences @from to @to - 1 of a column, in the order of the pack: join the planes and restore the signs.
 * They are in @room, until the next call, if they fit into 32 bits; else in an array of their own. */
const join = (bytes, { at, width, count }, from, to) => {
	const length = to - from;
	if (room.length < length)
		room = new Int32Array(length);
	const low = room.subarray(0, length);
	for (let i = 0, p = at + from; i < length; i++, p++) {
		let v = width > 0 ? bytes[p] : 0;
		if (width > 1)
			v |= bytes[p + count] << 8;
		if (width > 2)
			v |= bytes[p + 2 * count] << 16;
		if (width > 3)
			v |= bytes[p + 3 * count] << 24;
		low[i] = width > 4 ? v : (v >>> 1) ^ -(v & 1);
	}
	if (width <= 4)
		return low;
	const all = new Float64Array(length);
	for (let k = 4, scale = 2 ** 32; k < width; k++, scale *= 256)
		for (let i = 0, p = at + k * count + from; i < length; i++, p++)
			all[i] += bytes[p] * scale;
	for (let i = 0; i < length; i++) {
		const v = all[i] + (low[i] >>> 0);
		all[i] = low[i] & 1 ? -(v + 1) / 2 : v / 2;
	}
	return all;
};

/* The pack has the events of one action together. Return for each event of the pack its index in the source, and where
 * each action begins. @texts: the number of actions. */
const orderOf = (action, texts) => {
	const count = action.length, begin = new Uint32Array(texts + 1), order = new Int32Array(count);
	for (let i = 0; i < count; i++)
		begin[action[i] + 1]++;
	for (let t = 1; t <= texts; t++)
		begin[t] += begin[t - 1];
	const next = begin.slice();
	for (let i = 0; i < count; i++)
		order[next[action[i]]++] = i;
	return { order, begin };
};

/* Put each of @numbers into @found at the index that @order has for it. */
const place = (numbers, order, found) => {
	for (let i = 0; i < numbers.length; i++)
		found[order[i]] = numbers[i];
};

const sumsOf = (found, base) => {
	for (let i = 0, sum = base; i < found.length; i++)
		found[i] = sum += found[i];
	return found;
};

const matedOf = (found, mates) => {
	for (let i = 0; i < found.length; i++)
		if (mates[i])
			found[i] += found[i - mates[i]];
	return found;
};

/* Return the addresses of events: a mate's, the next of @addresses, or one that an earlier event left behind. @keeps,
 * by action: 0, the event leaves its address behind; 1, it does not; 2, it does not if it has a mate. */
const addressesOf = (numbers, mates, addresses, action, keeps) => {
	const count = numbers.length, found = new Float64Array(count), behind = new Float64Array(count);
	for (let i = 0, next = 0, left = 0; i < count; i++) {
		const mate = mates[i], keep = keeps[action[i]];
		const addr = mate ? found[i - mate] : numbers[i] ? behind[left - numbers[i]] : addresses[next++];
		found[i] = addr;
		if (keep === 0 || (keep === 2 && !mate))
			behind[left++] = addr;
	}
	return found;
};

/*
 * The columns of a pack. Each is unpacked when it is first read, because the first picture needs fewer than half of
 * them.
 */
class Columns {
	constructor({ columns, texts }, bytes, begin) {
		this.bytes = bytes;
		this.places = new Map();
		this.known = new Map();
		this.completed = texts.indexOf("free_completed");
		this.keeps = Uint8Array.from(texts, (text) => text === "alloc" || text === "segment_alloc" ? 1 : text === "free_requested" ? 2 : 0);
		let at = begin;
		for (const [name, coding, width, count, ordered, base] of columns) {
			this.places.set(name, { coding, width, count, ordered, base, at });
			at += width * count;
		}
	}

	get(name) {
		if (!this.known.has(name) && this.places.has(name))
			this.known.set(name, this.unpack(name));
		return this.known.get(name);
	}

	/* orderOf() of the source whose columns begin with @of. */
	orderOf(of) {
		if (!this.known.has(`${of}order`))
			this.known.set(`${of}order`, orderOf(this.get(`${of}action`), this.keeps.length));
		return this.known.get(`${of}order`);
	}

	/* Return the numbers of column @name. */
	unpack(name) {
		const lies = this.places.get(name), { coding, width, count, ordered, base } = lies, of = `${name.split(".")[0]}.`;
		const needs = coding === "plain" || coding === "delta" ? [] : ["mate", "action", ...coding === "listed" ? ["addresses"] : []];
		/* Read these first, because get() may use @room. */
		const [mates, action, addresses] = needs.map((other) => this.get(of + other));
		const order = ordered ? this.orderOf(of).order : null, lying = join(this.bytes, lies, 0, count);
		const numbers = new (width > 4 || coding === "mated" || coding === "delta" ? Float64Array : Int32Array)(count);
		if (ordered)
			place(lying, order, numbers);
		else
			numbers.set(lying);
		switch (coding) {
		case "delta":
			return sumsOf(numbers, base);
		case "listed":
			return addressesOf(numbers, mates, addresses, action, this.keeps);
		case "mated":
			return matedOf(numbers, mates);
		case "paired":
			for (let i = 0; i < count; i++)
				if (action[i] === this.completed && mates[i])
					numbers[i] += numbers[i - mates[i]];
		}
		return numbers;
	}

	/* Return column @name of only the events with action @text, which are side by side in the pack. None of them
	 * may have a mate, because then the pack has differences. null: this column can only be unpacked as a whole. */
	ofAction(of, name, text) {
		const lies = this.places.get(of + name), { begin } = this.orderOf(of);
		return lies?.ordered && lies.coding !== "listed" ? join(this.bytes, lies, begin[text], begin[text + 1]).slice() : null;
	}
}

const joined = (parts, length) => {
	const all = new Uint8Array(length);
	let at = 0;
	for (const part of parts) {
		all.set(part, at);
		at += part.length;
	}
	return all;
};

/*
 * Read a pack that arrives in parts, as base64 of gzip. The header says how long the pack is, so its bytes are put into
 * one array at once.
 */
export class PackReader {
	constructor() {
		this.parts = [];		/* until the header is complete */
		this.have = 0;
		this.bytes = null;
		this.gunzip = new Gunzip((part) => this.take(part));
		this.error = null;
	}

	/* Add a part. All but the last must have a multiple of four letters, because four letters are three bytes. */
	add(base64) {
		try {
			this.gunzip.write(fromBase64(base64));
		} catch (error) {
			this.error ??= error;
		}
	}

	take(part) {
		if (this.bytes) {
			if (this.have + part.length > this.bytes.length)
				throw new BadInput("longer than it says");
			this.bytes.set(part, this.have);
			this.have += part.length;
			return;
		}
		this.parts.push(part);
		this.have += part.length;
		if (this.have < (this.begin ?? MAGIC.length + 4))
			return;
		const head = joined(this.parts, this.have);
		if (new TextDecoder().decode(head.subarray(0, MAGIC.length)) !== MAGIC)
			throw new BadInput("this is no snapshot that gpumem view wrote, or one of another version");
		this.begin = MAGIC.length + 4 + new DataView(head.buffer).getUint32(MAGIC.length, true);
		if (this.have < this.begin)
			return;
		this.header = JSON.parse(new TextDecoder().decode(head.subarray(MAGIC.length + 4, this.begin)));
		const length = this.header.columns.reduce((sum, [, , width, count]) => sum + width * count, this.begin);
		if (length < this.have)
			throw new BadInput("longer than it says");
		this.bytes = new Uint8Array(length);
		this.bytes.set(head);
		this.parts = null;
	}

	/* Call after the last part. Return { header, columns }; columns.get(name) is a column. Throws BadInput. */
	async end() {
		try {
			await this.gunzip.end();
			if (this.error)
				throw this.error;
			if (!this.bytes || this.have < this.bytes.length)
				throw new BadInput("shorter than it says");
		} catch (error) {
			throw new BadInput(`the snapshot in this page is damaged, or the page cut short: ${error.message}`);
		}
		return { header: this.header, columns: new Columns(this.header, this.bytes, this.begin) };
	}
}

/* Return the bytes of @base64, which is gzip written as base64. */
export const unpackText = async (base64) => {
	const parts = [], gunzip = new Gunzip((part) => parts.push(part));
	gunzip.write(fromBase64(base64));
	await gunzip.end();
	return joined(parts, parts.reduce((sum, { length }) => sum + length, 0));
};
