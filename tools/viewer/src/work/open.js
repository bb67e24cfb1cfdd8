/*
 * open.js - open snapshots: make their models, and tell the page about them. Owns the list of open documents.
 */
/* global JOURNAL_READER, FileReaderSync */
import { BadInput } from "../model/bad_input.js";
import { crashOf } from "../model/crash.js";
import { documentOf } from "../model/document.js";
import { fileDocument, unpackGzip } from "../model/file.js";
import { isJournal, journalDocument } from "../model/journal.js";
import { modelsOf, wholesOf } from "../model/model.js";
import { wholeNames } from "../model/whole.js";
import { PackReader, unpackText } from "../model/pack.js";
import { clean, cleanAll } from "../model/values.js";

const open = [];

/* Return the model of source @source of document @doc, filtered by @terms. Throws BadInput if there is none. */
export const modelOf = ({ doc, source, terms }) => {
	const model = open[doc]?.models[source];
	if (!model)
		throw new BadInput("there is no such snapshot in this page");
	if (terms)
		model.filter(terms);
	return model;
};
export const openDocuments = () => open;

/* Describe a peak of which the history does not show who held it; null: the history does. before: microseconds from the
 * peak's end to the history's beginning, null if unknown; first: does the page open at it? known: can rows answer the
 * filter? shown: has the history that moment? */
export const heldAbout = ({ held, opensAtPeak, axis, count }) => held && {
	before: count && held.timeUs > 0 && held.timeUs < axis.begin ? axis.begin - held.timeUs : null, first: opensAtPeak, known: held.weight !== null, shown: held.place >= 0,
};

/* Return the named moments of a model. counted: did the library count who held the peak? */
export const momentsOf = (model) => ({
	peak: model.peakState, peakBytes: model.peakBytes, held: heldAbout(model), counted: model.counted !== null,
	endBytes: model.curve.values[model.count], focus: model.state(null), asked: model.asked,
});

const aboutSource = (model, number) => ({
	number, name: model.source.name, device: model.source.device, level: model.source.level, pool: model.source.pool ?? null,
	dropped: model.source.dropped ?? 0, events: model.count, lives: model.lives.count,
	begin: model.axis.begin, length: model.axis.length, mode: model.axis.mode, ...momentsOf(model),
});

const makeWholes = ({ doc, models }) => {
	if (models.length === doc.sources.length)
		models.push(...wholesOf(doc, models));
	return models.slice(doc.sources.length);
};

/* Return the models that `gpumem summary` adds up: whole GPUs in the place of GPUs with pools. */
const summed = ({ doc, models }) => {
	const wholes = makeWholes({ doc, models });
	return models.filter(({ source: { level, device } }) => level === "driver" && !wholes.some(({ source }) => source.device === device)).concat(wholes);
};

const about = (entry, number) => {
	const { doc, models } = entry;
	const { root } = doc, crash = root.failure?.type === "crash" ? crashOf(doc, summed(entry)) : null;
	const later = models.length === doc.sources.length ? wholeNames(doc) : [];
	return {
		number, name: doc.name, process: root.process ?? {}, reason: root.reason ?? "", timeUs: root.time_us ?? 0,
		consistent: root.consistent !== false, recovered: root.recovered ?? null, devices: root.devices ?? [],
		host: root.host ?? null, settings: root.allocator_settings ?? {}, history: root.history ?? null,
		refused: root.refused ?? null, failure: root.failure ?? null, failures: root.failures ?? [],
		modules: root.modules ?? [], explanation: doc.explanation, crash, note: doc.note ?? "",
		sources: [...models.map(aboutSource), ...later.map((source, i) => ({ ...source, number: models.length + i, lives: 0, events: 0, pending: true }))],
	};
};

/* Make the whole GPUs of document @doc as further sources. The page asks for them only when the user chooses one,
 * because they take time. */
export const wholes = ({ doc: number }) => {
	const first = open[number].doc.sources.length;
	return makeWholes(open[number]).map((model, i) => aboutSource(model, first + i));
};

const add = (doc) => {
	if (!doc.sources.length)
		throw new BadInput(`${doc.name}: nothing is in it: neither events nor segments`);
	const { root, texts, modules, sources } = doc;
	if (typeof root.process?.command_line === "string")
		/* The command line of python3 -c may have line ends. */
		root.process.command_line = root.process.command_line.replace(/\s+/g, " ");
	cleanAll({ root, texts, modules, pools: sources.map(({ pool }) => pool) });
	for (const one of [doc, ...sources])
		one.name = clean(one.name);
	const models = modelsOf(doc);
	open.push({ doc, models });
	return about(open.at(-1), open.length - 1);
};

const coming = new Map();

/* Take a part of pack @number of the page. It is unpacked while the browser reads the next part. */
export const packPart = ({ number, text }) => {
	if (!coming.has(number))
		coming.set(number, new PackReader());
	coming.get(number).add(text);
};

/* Open pack @number; @text is its last part. */
export const openPack = async ({ number, text }) => {
	const began = performance.now(), reader = coming.get(number) ?? new PackReader();
	coming.delete(number);
	reader.add(text);
	const pack = await reader.end(), read = performance.now(), made = add(documentOf(pack));
	return { ...made, took: { unpack: read - began, model: performance.now() - read } };
};

/* Read parts of the file when they are asked for, because a journal is mostly holes. */
const partsOf = (file) => {
	const reader = new FileReaderSync();
	return { size: file.size, read: (at, bytes) => new Uint8Array(reader.readAsArrayBuffer(file.slice(at, at + bytes))) };
};

/* Open a dropped file; @file: a File of the browser's. */
export const openFile = async ({ name, file }) => {
	const journal = JOURNAL_READER && isJournal(new Uint8Array(await file.slice(0, 8).arrayBuffer()));
	if (journal)
		return add(await journalDocument(await unpackText(JOURNAL_READER), partsOf(file), name));
	return add(fileDocument(await unpackGzip(new Uint8Array(await file.arrayBuffer())), name));
};
