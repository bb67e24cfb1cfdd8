/*
 * open.js - snapshots into models, and what the page is told of them at first. The list of open documents is here.
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

/* The model of source @source of document @doc; of which what @terms leave counts. */
export const modelOf = ({ doc, source, terms }) => {
	const model = open[doc]?.models[source];
	if (!model)
		throw new BadInput("there is no such snapshot in this page");
	if (terms)
		model.filter(terms);
	return model;
};
export const openDocuments = () => open;

/* Of a peak that the history does not show: how long before its beginning it ended, null where that is not known; whether it
 * is what is looked at first; whether rows can say what the filter leaves of it; whether the history has that moment, without
 * who held what. null: the history shows the peak. */
export const heldAbout = ({ held, opensAtPeak, axis, count }) => held && {
	before: count && held.timeUs > 0 && held.timeUs < axis.begin ? axis.begin - held.timeUs : null, first: opensAtPeak, known: held.weight !== null, shown: held.place >= 0,
};

/* The moments that have names. @return counted: whether the library counted who held the peak. */
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

/* The models of what `gpumem summary` adds up: whole GPUs, where there are pools. */
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

/* Whole GPUs as further sources of document @doc. They take time: they are made when one is asked for. */
export const wholes = ({ doc: number }) => {
	const first = open[number].doc.sources.length;
	return makeWholes(open[number]).map((model, i) => aboutSource(model, first + i));
};

const add = (doc) => {
	if (!doc.sources.length)
		throw new BadInput(`${doc.name}: nothing is in it: neither events nor segments`);
	const { root, texts, modules, sources } = doc;
	if (typeof root.process?.command_line === "string")
		root.process.command_line = root.process.command_line.replace(/\s+/g, " ");	/* python3 -c has lines */
	cleanAll({ root, texts, modules, pools: sources.map(({ pool }) => pool) });
	for (const one of [doc, ...sources])
		one.name = clean(one.name);
	const models = modelsOf(doc);
	open.push({ doc, models });
	return about(open.at(-1), open.length - 1);
};

const coming = new Map();

/* A part of the pack number @number in the page: it is unpacked while the browser reads the next. */
export const packPart = ({ number, text }) => {
	if (!coming.has(number))
		coming.set(number, new PackReader());
	coming.get(number).add(text);
};

/* Open the pack number @number, of which @text is the last part. */
export const openPack = async ({ number, text }) => {
	const began = performance.now(), reader = coming.get(number) ?? new PackReader();
	coming.delete(number);
	reader.add(text);
	const pack = await reader.end(), read = performance.now(), made = add(documentOf(pack));
	return { ...made, took: { unpack: read - began, model: performance.now() - read } };
};

/* The file's parts as they are asked for: a journal is mostly holes. */
const partsOf = (file) => {
	const reader = new FileReaderSync();
	return { size: file.size, read: (at, bytes) => new Uint8Array(reader.readAsArrayBuffer(file.slice(at, at + bytes))) };
};

/* @file: as it was dropped. */
export const openFile = async ({ name, file }) => {
	const journal = JOURNAL_READER && isJournal(new Uint8Array(await file.slice(0, 8).arrayBuffer()));
	if (journal)
		return add(await journalDocument(await unpackText(JOURNAL_READER), partsOf(file), name));
	return add(fileDocument(await unpackGzip(new Uint8Array(await file.arrayBuffer())), name));
};
