/*
 * file.js - a file that was dropped onto the page as a document: a snapshot of ours (JSON) or PyTorch's (pickle or
 * JSON). Whatever else it is gets a sentence that says so; journals are journal.js's. Runs in the worker, and in node
 * for tests.
 */
import { BadInput } from "./bad_input.js";
import { snapshotDocument } from "./json.js";
import { readPickle } from "./pickle.js";
import { isTorch, torchSnapshot } from "./torch.js";

export const MOST_JSON = 2 ** 29 - 24;		/* characters of a text in V8 */

/* By how they begin, with what to do. */
const OTHERS = [
	["GPUMJNL1", "a journal, which the command reads: gpumem view FILE -o page.html"],
	["\x1f\x8b", "compressed with gzip: unpack it first"],
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

/* @bytes of the file @name. */
export const fileDocument = (bytes, name) => {
	if (!bytes.length)
		throw new BadInput("an empty file");
	const begin = String.fromCharCode(...bytes.subarray(0, 16));
	const other = OTHERS.find(([magic]) => begin.toLowerCase().startsWith(magic.toLowerCase()));
	if (other)
		throw new BadInput(other[1]);
	const pickle = bytes[0] === 0x80, root = pickle ? readPickle(bytes) : readJson(bytes);
	if (isTorch(root))
		return snapshotDocument(torchSnapshot(root), name);
	if (pickle)
		throw new BadInput("a pickle, but not a snapshot of PyTorch");
	return snapshotDocument(root, name);
};
