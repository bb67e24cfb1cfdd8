/*
 * crash.js - describe the thread in which a signal ended the program, as `gpumem summary` does: by the rules and in the
 * words of tools/verbs/summary_crash.c.
 */
import { baseName } from "./stacks.js";
import { blockName, bytes, hex } from "../ui/format.js";

const WISHES = new Set(["SIGTERM", "SIGINT", "SIGHUP"]);	/* signals that end a healthy program on purpose */
const EVENTS_MOST = 10, BESIDE_MOST = 2 ** 21;
const START = /^(_start|__libc_start|start_thread|clone|__clone)/;

const nameOf = ({ lives, generations }, l) => l < 0 ? "" : blockName(lives.addr[l], generations[l]);

/* Describe the block of @models that contains @address or is near: { place, in words; block, its name }. */
const placeOf = (models, address) => {
	let nearest = null;
	for (const model of models) {
		const { source: { blocks }, doc, stacks } = model;
		for (let b = 0; b < blocks.addr.length; b++) {
			if (doc.texts[blocks.state[b]] === "inactive")
				continue;
			const from = blocks.addr[b], size = blocks.requested[b] > 0 ? blocks.requested[b] : blocks.size[b], below = address < from;
			const inside = !below && address < from + size, distance = inside ? 0 : below ? from - address : address - from - size;
			if (distance <= BESIDE_MOST && !(nearest?.distance <= distance))
				nearest = { distance, inside, below, into: address - from, requested: blocks.requested[b], site: stacks.siteText(blocks.stack[b]), model, b };
		}
	}
	if (!nearest)
		return { place: "in no block of GPU memory, nor beside one", block: "" };
	const { distance, inside, below, into, requested, site, model, b } = nearest;
	const place = `${inside ? `${bytes(into)} into` : `${bytes(distance)} ${below ? "before the beginning of" : "behind the end of"}`} a block of ${bytes(requested)} that ${site} asked for`;
	return { place, block: nameOf(model, model.lives.block.indexOf(b)) };
};

/* Return the frames, innermost first, without those that call main in every stack. If the stack could not be recorded
 * in time, make them from the program counters. */
const stackOf = ({ stack, pcs }, { modules }, stacks) => {
	const frames = stacks.lines(stack), pcsOf = Array.isArray(pcs) ? pcs : [];
	while (frames.length > 1 && START.test(frames.at(-1).name))
		frames.pop();
	return frames.length ? frames : pcsOf.map((pc) => ({ name: `${baseName(modules[pc?.module] ?? "")}+${hex(pc?.offset ?? 0)}`, file: "", line: 0, module: "" }));
};

const eventsOf = (models, thread, timeUs) => {
	const found = [];
	for (const model of models) {
		const { source: { events, count }, doc, stacks, lives } = model;
		const by = doc.numbers.indexOf(thread), mine = [];
		for (let i = count - 1; i >= 0 && mine.length < EVENTS_MOST; i--)
			if (events.thread[i] === by)
				mine.unshift({
					time: events.time[i], seconds: ((events.time[i] - timeUs) / 1e6).toFixed(6), action: events.action[i], size: events.size[i], addr: events.addr[i],
					block: nameOf(model, lives.about[i]), site: events.stack[i] > 0 ? stacks.siteText(events.stack[i]) : "",
				});
		found.push(...mine);
	}
	return found.sort((a, b) => a.time - b.time).slice(-EVENTS_MOST);
};

/* Describe the crash of @doc; null: no signal ended the program. @models: of all its sources, whole GPUs in the place
 * of GPUs with pools. */
export const crashOf = (doc, models) => {
	const { failure } = doc.root;
	if (failure?.type !== "crash")
		return null;
	const name = failure.signal_name ?? `signal ${failure.signal}`, wish = WISHES.has(name), has = !wish && Number.isFinite(failure.address);
	const by = has ? `, address ${hex(failure.address)}` : Number.isFinite(failure.sender_pid) ? `, sent by process ${failure.sender_pid}` : wish ? ", sent by the terminal" : "";
	return {
		wish, what: `${wish ? "ended by" : "died of"} ${name}${wish ? "" : ` in thread ${failure.thread}`}${by}`,
		...has ? placeOf(models, failure.address) : { place: "", block: "" }, stack: stackOf(failure, doc, models[0].stacks), truncated: failure.truncated === true,
		events: eventsOf(models, failure.thread, failure.time_us ?? 0),
	};
};
