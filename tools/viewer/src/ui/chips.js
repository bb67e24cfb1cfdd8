/*
 * chips.js - the line above all views that shows what restricts their numbers: filters, the window, the cursor. Each
 * can be removed.
 */
import { h, pressable, replace } from "./dom.js";
import { brief, bytes, count, duration } from "./format.js";

/* Return a short text for a term of the filter. */
const words = (term) => /^-?[a-z]+[:=@<>]/.test(term) ? brief(term) : `“${term}”`;

export class Chips {
	constructor(app) {
		this.app = app;
		this.element = h("div", { class: "terms", role: "group", "aria-label": "what is left out" });
	}

	/* Return the restrictions, as [text, hint, function that removes it]. */
	list() {
		const { app } = this, { state, window: { from, to } } = app;
		const place = (x) => state.mode === "order" ? `event ${count(x)}` : duration(x);
		return [
			...state.terms.map((term, i) => [words(term), term, () => app.set({ terms: state.terms.filter((_, k) => k !== i) })]),
			state.from !== null && [`${place(from)} – ${place(to)}`, "the window", () => app.set({ from: null, to: null })],
			state.high !== null && [`${bytes(state.low)} – ${bytes(state.high)}`, "the bytes in sight", () => app.set({ low: null, high: null })],
			state.first !== null && [`segments ${bytes(state.first)} – ${bytes(state.last)}`, "the segments in sight", () => app.set({ first: null, last: null })],
			state.at !== null && [state.at === "peak" ? "at the peak" : `at event ${count(state.at)}`, "the cursor", () => app.set({ at: null })],
		].filter(Boolean);
	}

	/* Return why memory ran out, if the cursor is at that moment; in full in a view without the side, which says
	 * it. */
	refused() {
		const { refusal, state, doc: { explanation }, side } = this.app, { asked, reason } = refusal ?? {};
		return !refusal || state.at !== null ? "" : side.element.hidden && explanation?.why ? explanation.why : `${bytes(asked)} was refused${reason && `: ${reason}`}.`;
	}

	/* Return why this source has no events; "" if it has some. */
	still() {
		const { source, doc: { history } } = this.app, { enabled, max_events: most, actions, events } = history ?? {};
		return source.events ? "" : events ? `The history has nothing of ${source.name}` : `No history was recorded${
			most === 0 ? " (history=0)" : ["state", "none"].includes(enabled) ? ` (history_enabled=${enabled})` : actions?.length === 0 ? " (history_actions=none)" : ""}`;
	}

	/* Return what the user cannot remove: lost events, and what is known of a peak that the history does not
	 * show. */
	late() {
		const { dropped, counted, lives } = this.app.source, { held } = this.app.filtered ?? this.app.source, still = this.still();
		if (still)
			return `${still}${lives ? ": this is what was live when the snapshot was made." : ", and nothing was live when the snapshot was made."}${
				held?.known ? " At the peak (P) there was more: who held it was counted then." : ""}`;
		const lost = dropped ? `${count(dropped)} older events are lost` : "", highest = "the peak here is the highest moment of the history";
		if (held && !held.shown)
			return `${lost ? `${lost}, and with them the peak` : "The history does not show the peak"}: ${held.known ?
				"who held it was counted when it happened, by call site, stack, module and kind." : `what the filter leaves of it is not known, and ${highest}.`}`;
		return lost && (counted ? `${lost}; the peak came after them.` : `${lost}, and the snapshot does not say who held the peak: ${highest}.`);
	}

	/* While a window moves, only its text is changed. */
	update() {
		const list = this.list(), late = this.late(), refused = this.refused(), key = [...list.map(([, title]) => title), late, refused].join("\n");
		if (key !== this.key)
			replace(this.element, list.length || late ? null : h("span", { class: "soft" }, "Everything is shown: no filter, no window."), list.map(([, title], i) =>
				h("span", { class: "term" }, h("span", { title }), h("button", { type: "button", "aria-label": `remove: ${title}`, onclick: () => this.list()[i][2]() }, "✕"))),
			late && h("span", { class: "soft late" }, late), refused && h("span", {
				class: "ran-out", title: "what to change is in Summary", ...pressable(() => this.app.set({ view: "summary" })),
			}, h("b", {}, "Memory ran out. "), refused));
		this.key = key;
		list.forEach(([text], i) => { this.element.children[i].firstChild.textContent = text; });
	}
}
