/*
 * file.js - make a document of a file that was dropped onto the page: a snapshot of ours (JSON) or PyTorch's (pickle or
 * JSON), or a trace of gpumem replay. For other files an error says what they are; journal.js reads journals. Runs in
 * the worker, and in node for tests.
 */
import { BadInput } from "./bad_input.js";
import { snapshotDocument } from "./json.js";
import { readPickle } from "./pickle.js";
import { isTorch, torchSnapshot } from "./torch.js";

export const MOST_JSON = 2 ** 29 - 24;		/* the most characters of a string in V8 */

/* Other files: how they begin, and the message for the user. */
const OTHERS = [
	["GPUMJNL1", "a journal, which the command reads: gpumem view FILE -o page.html"],
	["\x1f\x8b", "compressed with gzip twice: unpack it first"],
	["\x28\xb5\x2f\xfd", "compressed with zstd: unpack it first"],
	["\xfd7zXZ", "compressed with xz: unpack it first"],
	["PK\x03\x04", "a zip archive, not a snapshot"],
	["<!doctype html", "a page, perhaps one of gpumem view: open it by itself"],
];

export const parseJson = (content) => {
	try {
		return JSON.parse(content);
	} catch (error) {
		if (!/^\s*[{[]/.test(content))
			throw new BadInput("neither JSON nor a pickle: no snapshot of gpumem or PyTorch");
		throw new BadInput(`not whole JSON: ${error.message}`);
	}
};

const readJson = (bytes) => {
	if (bytes.length > MOST_JSON)
		throw new BadInput("too large for a browser to read as JSON: gpumem view FILE -o page.html makes a page of it");
	return parseJson(new TextDecoder().decode(bytes));
};

/* Return @bytes unpacked if they are gzip, else @bytes. */
export const unpackGzip = async (bytes) => {
	if (bytes[0] !== 0x1f || bytes[1] !== 0x8b)
		return bytes;
	try {
		return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
	} catch {
		throw new BadInput("compressed with gzip, and damaged or cut short");
	}
};

/* Make a snapshot of ours from a trace of gpumem replay (tools/replay/replay.h): one event a line and a microsecond. */
const traceSnapshot = (content) => {
	const columns = ["action", "addr", "size", "stream", "time_us", "stack", "thread", "kind", "module"], trace = Object.fromEntries(columns.map((name) => [name, []]));
	const lives = new Map(), add = (action, addr, size, stream) => [action, addr, size, stream, trace.action.length + 1, 0, 0, "device", 0]
		.forEach((value, i) => trace[columns[i]].push(value));
	for (const [i, line] of content.split("\n").entries()) {
		const [op, a, b, c, d] = line.trim().split(/\s+/), driver = /^# (segment_alloc|segment_free|oom) (\d+) (\d+)(?: (?:0x)?([0-9a-f]+))?$/.exec(line);
		if (driver)
			add(driver[1], driver[1] === "oom" ? 0 : parseInt(driver[4], 16) || 0, Number(driver[2]), Number(driver[3]));
		else if (op === "a" && d !== undefined && Number.isFinite(Number(b)))
			lives.set(a, [parseInt(d, 16), Number(b), Number(c) || 0]) && add("alloc", ...lives.get(a));
		else if ((op === "r" || op === "f") && lives.has(a))
			add(op === "r" ? "free_requested" : "free_completed", ...lives.get(a));
		else if (op && op !== "e" && !op.startsWith("#"))
			throw new BadInput(`line ${i + 1} of this history of gpumem replay is none of its operations`);
	}
	return {
		format: "gpumem-snapshot", version: 1, reason: "replay", time_us: trace.action.length + 1, devices: [], segments: [], host_segments: [],
		device_traces: [trace], stacks: [[]], frames: [], modules: [{ path: "" }], annotations: [], process: {},
	};
};

/* Make a document of @bytes, the content of the file @name. Throws BadInput. */
export const fileDocument = (bytes, name) => {
	if (!bytes.length)
		throw new BadInput("an empty file");
	const begin = String.fromCharCode(...bytes.subarray(0, 16));
	const other = OTHERS.find(([magic]) => begin.toLowerCase().startsWith(magic.toLowerCase()));
	if (other)
		throw new BadInput(other[1]);
	if (/^(#|[arfe]\s)/.test(begin))
		return snapshotDocument(traceSnapshot(new TextDecoder().decode(bytes)), name);
	const pickle = bytes[0] === 0x80, root = pickle ? readPickle(bytes) : readJson(bytes);
	if (isTorch(root))
		return snapshotDocument(torchSnapshot(root), name);
	if (pickle)
		throw new BadInput("a pickle, but not a snapshot of PyTorch");
	return snapshotDocument(root, name);
};
