/*
 * pickle.js - read a pickle as a value of JavaScript, for snapshots of PyTorch that are dropped onto the page.
 *
 * Nothing in a pickle is ever run. Only operations that build None, booleans, numbers, texts, lists, tuples and dicts
 * are known (protocols 2 to 5), as in tools/read/pickle_read.c, which has the same messages. An integer becomes a
 * number, beyond 2^53 the nearest one. Runs in the worker, and in node for tests.
 */
import { BadInput } from "./bad_input.js";

const CUT = "cut off: the pickle does not end";
const RUNS = new Set([0x63, 0x93, 0x52, 0x62, 0x81, 0x92, 0x69, 0x6f, 0x50, 0x51]);

class Machine {
	constructor(bytes) {
		this.bytes = bytes;
		this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
		this.text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
		this.at = 0;
		this.stack = [];
		this.marks = [];
		this.memo = [];
		this.memoised = 0;
	}

	refuse(why) {
		throw new BadInput(`not a pickle that this page reads: ${why} (byte ${this.at})`);
	}

	/* Move past the next @count bytes. Return where they begin. */
	skip(count) {
		if (count > this.bytes.length - this.at)
			throw new BadInput(CUT);
		this.at += count;
		return this.at - count;
	}

	byte() { return this.bytes[this.skip(1)]; }
	word() { return this.view.getUint32(this.skip(4), true); }
	long() { return Number(this.view.getBigUint64(this.skip(8), true)); }

	string(length) {
		const from = this.skip(length);
		try {
			return this.text.decode(this.bytes.subarray(from, from + length));
		} catch {
			return this.refuse("a text that is not UTF-8");
		}
	}

	/* Read an integer of @length bytes, little-endian, two's complement. From 2^63 on it becomes negative. */
	integer(length) {
		const from = this.skip(length);
		let value = 0n;
		for (let k = length; k--;)
			value = value << 8n | BigInt(this.bytes[from + k]);
		if (length && this.bytes[from + length - 1] & 0x80)
			value -= 1n << BigInt(8 * length);
		if (value >= 1n << 64n || value < -(1n << 63n))
			this.refuse("an integer of more than 64 bits");
		return Number(BigInt.asIntN(64, value));
	}

	floor() { return this.marks.at(-1) ?? 0; }

	pop(count) {
		if (this.stack.length - this.floor() < count)
			this.refuse("fewer values than it takes");
		return this.stack.splice(this.stack.length - count, count);
	}

	popMarked() {
		if (!this.marks.length)
			this.refuse("fewer values than it takes");
		return this.stack.splice(this.marks.pop());
	}

	fill(dict, items) {
		if (items.length % 2)
			this.refuse("a key without its value");
		for (let i = 0; i < items.length; i += 2) {
			if (typeof items[i] !== "string")
				this.refuse("a key that is no text");
			if (items[i] !== "__proto__")
				dict[items[i]] = items[i + 1];
		}
		return dict;
	}

	/* Add @items to the list (@list) or dict on top of the stack. */
	add(items, list) {
		const to = this.stack.length > this.floor() ? this.stack.at(-1) : null;
		if (!to || typeof to !== "object" || Array.isArray(to) !== list)
			this.refuse("items for something that holds none");
		if (!list)
			this.fill(to, items);
		else
			for (const item of items)
				to.push(item);
	}

	put(index) {
		if (this.stack.length <= this.floor())
			this.refuse("nothing to remember");
		if (index > this.memoised + 4096)
			this.refuse("a memo number out of order");
		this.memo[index] = this.stack.at(-1);
		this.memoised++;
	}

	get(index) {
		if (this.memo[index] === undefined)
			this.refuse("a memo number that stands for nothing");
		this.stack.push(this.memo[index]);
	}

	step(code) {
		const { stack } = this;
		switch (code) {
		case 0x80: {					/* PROTO */
			const version = this.byte();
			return version >= 2 && version <= 5 ? 0 : this.refuse(`protocol ${version}`);
		}
		case 0x95: return this.long();			/* FRAME */
		case 0x28: return this.marks.push(stack.length);
		case 0x30: return this.pop(1);
		case 0x4e: return stack.push(null);
		case 0x88: return stack.push(true);
		case 0x89: return stack.push(false);
		case 0x4a: return stack.push(this.view.getInt32(this.skip(4), true));
		case 0x4b: return stack.push(this.byte());
		case 0x4d: return stack.push(this.view.getUint16(this.skip(2), true));
		case 0x8a: return stack.push(this.integer(this.byte()));
		case 0x8b: return stack.push(this.integer(this.word()));
		case 0x47: return stack.push(this.view.getFloat64(this.skip(8), false));
		case 0x8c: return stack.push(this.string(this.byte()));
		case 0x58: return stack.push(this.string(this.word()));
		case 0x8d: return stack.push(this.string(this.long()));
		case 0x5d: case 0x29: return stack.push([]);
		case 0x7d: return stack.push({});
		case 0x6c: case 0x74: return stack.push(this.popMarked());
		case 0x64: return stack.push(this.fill({}, this.popMarked()));
		case 0x85: return stack.push(this.pop(1));
		case 0x86: return stack.push(this.pop(2));
		case 0x87: return stack.push(this.pop(3));
		case 0x61: return this.add(this.pop(1), true);
		case 0x65: return this.add(this.popMarked(), true);
		case 0x73: return this.add(this.pop(2), false);
		case 0x75: return this.add(this.popMarked(), false);
		case 0x94: return this.put(this.memoised);
		case 0x71: return this.put(this.byte());
		case 0x72: return this.put(this.word());
		case 0x68: return this.get(this.byte());
		case 0x6a: return this.get(this.word());
		default:
			return this.refuse(RUNS.has(code) ? "it names code to run, which is never done" :
				`operation 0x${code.toString(16)}`);
		}
	}
}

/* Return the value of the pickle @bytes. Throws BadInput. */
export const readPickle = (bytes) => {
	const machine = new Machine(bytes);
	if (bytes[0] !== 0x80)
		machine.refuse("it does not begin as one");
	for (;;) {
		const code = machine.byte();
		if (code === 0x2e)
			break;
		machine.step(code);
	}
	if (machine.stack.length !== 1 || machine.marks.length)
		machine.refuse("it does not end with one value");
	return machine.stack[0];
};
