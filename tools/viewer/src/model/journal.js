/*
 * journal.js - make the JSON of a snapshot from a journal that was dropped onto the page. The command's own reader,
 * which tools/viewer/journal/ compiles to WebAssembly, reads the journal. Runs in the worker, and in node for tests.
 */
import { BadInput } from "./bad_input.js";
import { MOST_JSON, parseJson } from "./file.js";
import { snapshotDocument } from "./json.js";

const MAGIC = "GPUMJNL1";
const STEP = 2 ** 20;			/* bytes to read at once */

/* Does a journal begin with @bytes? */
export const isJournal = (bytes) => String.fromCharCode(...bytes.subarray(0, MAGIC.length)) === MAGIC;

/* The functions that the reader calls: get() reads a part of @file, put() takes the next part of the JSON. */
class Page {
	constructor(file, most) {
		this.file = file;
		this.most = most;
		this.parts = [];
		this.length = 0;
		this.decoder = new TextDecoder();
	}

	get(at, into, bytes) {
		let have = 0;
		try {
			while (have < bytes) {
				const part = this.file.read(at + have, Math.min(STEP, bytes - have));
				if (!part.length)
					break;
				new Uint8Array(this.memory.buffer, (into >>> 0) + have, part.length).set(part);
				have += part.length;
			}
		} catch (error) {
			this.failed = error;
			return -1;
		}
		return have;
	}

	put(from, bytes) {
		this.length += bytes;
		if (this.length > this.most)
			return -1;
		this.parts.push(this.decoder.decode(new Uint8Array(this.memory.buffer, from >>> 0, bytes), { stream: true }));
		return 0;
	}
}

/* The module's C library refers to functions that write to a terminal, but never calls them. */
const importsOf = (module, page) => {
	const imports = { page: { get: (...words) => page.get(...words), put: (...words) => page.put(...words) } };
	for (const { module: from, name } of WebAssembly.Module.imports(module))
		if (from !== "page")
			(imports[from] ??= {})[name] = () => { throw new Error(`${name} is not for a page`); };
	return imports;
};

/* Return the JSON of the journal @file, { size, read(at, bytes) }; read() returns fewer bytes at the end. @reader: the
 * module's bytes. @most: the most bytes of JSON. Throws BadInput. */
export const journalJson = async (reader, file, most = MOST_JSON) => {
	const page = new Page(file, most);
	let why = "";
	try {
		const module = await WebAssembly.compile(reader), { exports } = await WebAssembly.instantiate(module, importsOf(module, page));
		page.memory = exports.memory;
		if (exports.read(file.size) !== 0) {
			const text = new Uint8Array(exports.memory.buffer, exports.why(), 256);
			why = new TextDecoder().decode(text.subarray(0, text.indexOf(0)));
		}
	} catch (error) {
		why = `it could not be read here: ${error.message}`;
	}
	if (page.failed)
		throw new BadInput(`the browser could not read it (${page.failed.message}): a living process is gpumem view PID`);
	if (why)
		throw new BadInput(why);
	return page.parts.join("");
};

/* Make a document of the journal @file. */
export const journalDocument = async (reader, file, name) => {
	const doc = snapshotDocument(parseJson(await journalJson(reader, file)), name);
	doc.note = "read from a journal: functions of C and C++ that it has no names for are shown by module and offset, since "
		+ "a page cannot read symbol tables; gpumem view FILE names them";
	return doc;
};
