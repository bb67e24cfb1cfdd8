/* state.js - answers about the allocator in one state, and the list of events. */
import { ACT, ACTIONS } from "../model/document.js";
import { streamText } from "../model/groups.js";
import { segmentsAt, sumsOf } from "../model/segments.js";
import { countBefore } from "../model/values.js";
import { blockName, segmentName } from "../ui/format.js";
import { modelOf } from "./open.js";
import { colorsOf } from "./pictures.js";

/* Describe the refused call before state @s: what it asked for, and what was free; null: the event is no refused
 * call. */
const refusal = (model, s, sums) => {
	const { events } = model.source;
	if (!s || events.action[s - 1] !== ACT.oom)
		return null;
	const time = events.time[s - 1];
	const known = (model.doc.root.failures ?? []).find((one) => one && one.device === model.source.device &&
		Math.abs(one.time_us - time) < 5000 && one.requested_bytes === events.size[s - 1]);
	return {
		asked: events.size[s - 1], deviceFree: events.addr[s - 1], free: sums.free, largest: sums.largest,
		waiting: sums.waiting, holes: sums.holes, refusedBy: known?.refused_by ?? "", entry: known?.entry ?? "",
	};
};

export const allocator = ({ at, by, dark, ...of }) => {
	const model = modelOf(of), s = model.state(at), segments = segmentsAt(model, s), sums = sumsOf(segments);
	const color = colorsOf(model, by, dark);
	const blocks = segments.reduce((sum, one) => sum + one.blocks.length, 0);
	const out = {
		state: s, sums, refusal: refusal(model, s, sums), addr: new Float64Array(segments.length),
		size: new Float64Array(segments.length), first: new Uint32Array(segments.length + 1),
		about: segments.map((one) => ({
			stream: streamText(model.doc.numbers[one.stream] ?? 0), kind: model.doc.texts[one.kind] ?? "",
			name: one.name, expandable: one.expandable, stray: one.stray === true, priv: one.priv ?? "unknown",
		})),
		blockAddr: new Float64Array(blocks), blockSize: new Float64Array(blocks), requested: new Float64Array(blocks),
		life: new Int32Array(blocks), waiting: new Uint8Array(blocks), color: new Uint32Array(blocks), match: new Uint8Array(blocks),
	};
	let b = 0;
	segments.forEach((segment, i) => {
		out.addr[i] = segment.addr;
		out.size[i] = segment.size;
		for (const block of segment.blocks) {
			out.blockAddr[b] = block.addr;
			out.blockSize[b] = block.size;
			out.requested[b] = block.requested;
			out.life[b] = block.life;
			out.waiting[b] = block.waiting ? 1 : 0;
			out.color[b] = color[block.life];
			out.match[b] = model.match ? model.match[block.life] : 1;
			b++;
		}
		out.first[i + 1] = b;
	});
	return out;
};

/* ---- events ------------------------------------------------------------------------------------- */

/* The actions of each choice of events in the store; an empty list: all. */
const CHOICES = {
	all: [], raw: [], blocks: ["alloc", "free_requested", "free_completed"], allocs: ["alloc"], refused: ["oom"], annotations: ["annotate"],
	segments: ["segment_alloc", "segment_free", "segment_map", "segment_unmap"],
};

/* List the chosen events. Except for "raw", a free is one row: its request, if there is one, stands for its
 * completion. */
const chosenEvents = (model, which) => {
	const { action } = model.source.events, { about: of, freed, died } = model.lives, wanted = new Set(CHOICES[which]), found = [];
	const { size: actions } = wanted, once = which !== "raw";
	for (let i = 0; i < model.count; i++)
		if (!(once && action[i] === ACT.free_completed && of[i] >= 0 && died[of[i]] === i && freed[of[i]] < i) && (!actions || wanted.has(ACTIONS[action[i]])) && (!model.match || (of[i] >= 0 && model.match[of[i]])))
			found.push(i);
	return Int32Array.from(found);
};

/*
 * Return @count events from @first on, of those that @which chooses and that pass the filter; near: the index in the
 * list of the last event that is not after the moment @at.
 */
export const events = ({ which, first, count, at, ...of }) => {
	const model = modelOf(of), { events: e } = model.source, near = model.state(at) - 1;
	if (model.eventKey !== which || model.eventMatch !== model.match) {
		model.eventKey = which;
		model.eventMatch = model.match;
		model.eventList = chosenEvents(model, which);
	}
	const list = model.eventList, all = list.length, about = model.lives.about;
	const rows = [];
	for (let i = Math.max(0, first); i < Math.min(all, first + count); i++) {
		const row = list[i], l = about[row], { freed, died } = model.lives;
		rows.push({
			block: l >= 0 ? blockName(e.addr[row], model.generations[l]) : e.addr[row] && e.action[row] !== ACT.oom ? segmentName(e.addr[row]) : "",
			stream: streamText(model.doc.numbers[e.stream[row]] ?? 0),
			waited: which !== "raw" && l >= 0 && freed[l] === row && died[l] > row && died[l] < model.count ? e.time[died[l]] - e.time[row] : 0,
			row, action: ACTIONS[e.action[row]], time: e.time[row] - model.axis.begin, addr: e.addr[row], size: e.size[row],
			life: l, name: e.action[row] === ACT.annotate ? model.doc.root.annotations?.[e.annotation[row] - 1]?.name ?? "" :
				model.stacks.siteText(e.stack[row] || (l >= 0 ? model.lives.stack[l] : 0)),
		});
	}
	return { all, first, rows, near: countBefore(all, (i) => list[i] <= near) - 1 };
};
