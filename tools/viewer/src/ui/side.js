/*
 * side.js - the panel at the right: the pinned allocation, with both its stacks; else the moment of the cursor, or of
 * the peak, and who holds the memory then.
 */
import { h, pressable, replace } from "./dom.js";
import { crashCard } from "./crash.js";
import { shorten } from "../model/stacks.js";
import { brief, bytes, count, duration, hex, percent, plural } from "./format.js";

const MOST = 14, LINES = 12;

export class Side {
	constructor(app) {
		this.app = app;
		this.one = h("div");
		this.all = h("div");
		this.element = h("aside", { class: "side", "aria-label": "details" }, this.one, this.all);
		this.wantLife = app.wants("life", (life) => this.showLife(life));
		this.wantMoment = app.wants("moment", (moment, args) => this.showMoment(moment, args));
	}

	update() {
		const { app } = this, { state } = app;
		this.one.hidden = state.life < 0;
		this.all.hidden = state.life >= 0;
		if (this.element.hidden)
			return;
		if (state.life >= 0)
			this.wantLife({ ...app.of, life: state.life, fold: state.fold });
		else
			this.wantMoment({ ...app.of, at: state.at, by: state.by, most: MOST, fold: state.fold });
	}

	/* ---- one allocation ---- */

	showLife(life) {
		const { app } = this;
		const when = (us) => us === null ? "before the history" : `at ${duration(us)}`;
		const end = life.freed ?? life.ended, ended = life.ended ? when(life.ended.time) : life.lost ? "its free was not recorded" :
			life.pending ? "freed, the GPU may still use it" : "never: live at the end";
		const facts = [
			["block", h("code", {}, life.name)], ["address", h("code", {}, hex(life.addr))],
			life.segment && ["segment", h("code", { title: "show only what is in it", ...pressable(() => app.addTerm(`segment=${life.segment.name}`)) }, life.segment.name)], life.segment?.priv && ["private pool", life.segment.priv],
			["requested", `${bytes(life.size)} (${count(life.size)})`],
			life.blockSize && ["takes", bytes(life.blockSize)],
			["kind", life.kind], ["stream", life.stream], life.thread !== null && ["thread", String(life.thread)],
			life.module && ["module", life.module], life.phase && life.phase !== "(no phase)" && ["phase", life.phase],
			["allocated", when(life.before && life.bornTime === null ? null : life.bornTime)],
			life.freed && life.ended && life.freed.row !== life.ended.row && ["free requested", when(life.freed.time)],
			["freed", ended], life.lifetime !== null && ["lived", duration(life.lifetime)],
		].filter(Boolean);
		replace(this.one,
			h("h2", {}, "Allocation", h("span", { class: "grow" }),
				h("button", { class: "icon", type: "button", title: "Let go (Esc)", "aria-label": "let go",
					onclick: () => app.set({ life: -1 }) }, "✕")),
			h("div", { class: "big" }, bytes(life.size)), h("div", { class: "note" }, life.site),
			h("div", { class: "tools-row" },
				h("button", { class: "button", type: "button", onclick: () => app.addTerm(`site=${life.site}`) },
					"Only this call site"),
				" ",
				h("button", { class: "button", type: "button", onclick: () => this.whole(life) }, "Its whole life")),
			h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
			this.stack("Allocated by", life.stack),
			/* Pools, and context:alloc, do not record who freed. */
			end?.hasOwnStack ? this.stack("Freed by", end.stack) : null);
	}

	/* Set the window to an allocation's birth and end, with a margin. */
	whole(life) {
		const { app } = this, from = app.place(life.born) ?? 0, to = app.place(life.died + 1) ?? app.span;
		const end = life.ended ? to : app.span, margin = Math.max((end - from) * 0.05, 1);
		app.zoom(from - margin, end + margin);
	}

	stack(title, frames) {
		const { app } = this;
		if (!frames.length)
			return [h("div", { class: "sub" }, title), h("div", { class: "note" }, "(no stack)")];
		/* A run of folded frames is one row, which a click opens. */
		const runs = [];
		for (const frame of frames)
			if (app.state.fold && frame.fold && frame.fold === runs.at(-1)?.fold)
				runs.at(-1).frames.push(frame);
			else
				runs.push({ fold: app.state.fold ? frame.fold : "", frames: [frame] });
		const rowOf = (frame) => h("li", { class: frame.site ? "site" : "", title: "show only what this function asked for", ...pressable(() => app.addTerm(`frame=${frame.name}`)) },
			h("code", {}, app.state.fold ? shorten(frame.name) : frame.name), h("span", { class: "where" }, frame.line > 0 ? `${frame.file}:${frame.line}` : frame.module || frame.file));
		const rows = runs.map(({ fold, frames: list }) => {
			if (!fold)
				return rowOf(list[0]);
			const row = h("li", { class: "folded", title: "show them", ...pressable(() => row.replaceWith(...list.map(rowOf))) }, `${plural(list.length, "frame")} of the ${fold}`);
			return row;
		});
		rows.forEach((row, i) => { row.hidden = i >= LINES; });
		const more = rows.length > LINES ? h("button", {
			class: "button", type: "button",
			onclick: () => { rows.forEach((row) => { row.hidden = false; }); more.remove(); },
		}, `${rows.length - LINES} more frames`) : null;
		return [h("div", { class: "sub" }, title), h("ol", { class: "stack" }, rows), more];
	}

	/* ---- one moment ---- */

	showMoment(moment, { at, by, terms }) {
		const { app } = this, { event } = moment;
		const isHeld = moment.state < 0, title = !isHeld && !app.source.events ? "At the end" : isHeld || moment.state === moment.peak ? "At the peak" : moment.state === moment.failed ? "When memory ran out" : "At the cursor";
		const place = isHeld ? moment.held.before === null ? "at a moment that the history does not show" : `${duration(moment.held.before)} before the first event of the history` : event ? `${duration(event.time)} after the first event` :
			app.source.events ? "before the first event" : "when the snapshot was made";
		const limit = app.source.device === null ? null : app.doc.devices.find((one) => one.device === app.source.device);
		const facts = [
			!isHeld && ["blocks", count(moment.blocks)], !isHeld && ["from the driver", bytes(moment.reserved)],
			limit?.total_bytes ? ["of the device", bytes(limit.total_bytes)] : null,
			event ? ["event", `${event.action} (${count(event.row + 1)} of ${count(app.source.events)})`] : null,
		].filter(Boolean);
		const { explanation } = app.doc, why = explanation && at === null && explanation.device === app.source.device ?
			h("div", { class: "why" }, h("b", {}, "Why memory ran out"), h("p", {}, explanation.why), h("p", {}, explanation.change)) : null;
		const { crash } = app.doc, died = crash && at === null ? crashCard(crash) : null;
		replace(this.all, why, died, h("h2", {}, title),
			h("div", { class: "big" }, bytes(moment.bytes)),
			h("div", { class: "note" }, terms.length ? moment.lives ? `of what the filter leaves, ${place}` :
				"nothing passes the filter" : `live ${place}`),
			h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
			moment.top.length ? h("div", { class: "sub" }, h("span", {}, `By ${by === "site" ? "call site" : by}`)) : null,
			h("ol", { class: "bars" }, moment.top.map((row) => h("li", {
				title: row.count === null ? row.name : `${row.name}\n${plural(row.count, "block")}`, vars: { "--share": `${(100 * row.bytes) / (moment.bytes || 1)}%` },
				...pressable(() => app.addTerm(`${by}=${row.name}`)),
			}, h("span", { class: "what" }, brief(row.label)),
			h("span", { class: "much" }, bytes(row.bytes)), h("span", { class: "much" }, percent(row.bytes, moment.bytes))))),
			moment.others ? h("div", { class: "note" }, `and ${count(moment.others)} more`) : null,
			event && event.stack.length ? this.stack("This event's stack", event.stack) : null);
	}
}
