/* keys.js - the keyboard, and the list of its keys. */
import { h } from "./dom.js";
import { VIEWS } from "../views/views.js";

const HELP = [
	["1 … 6", "the views"], ["← →", "move along the axis"], ["+ −", "closer, farther"], ["0", "all of it"],
	["P", "to the peak"], ["[ ]", "the event before, the next one"], ["T", "real time, or the order of events"],
	["/", "filter"], ["Esc", "let go of the allocation, then of the filter"], ["Shift D", "light or dark"],
	["wheel", "closer, farther; with Shift along the axis, with Ctrl in bytes"],
	["↑ ↓", "along the bytes; with Shift closer and farther"], ["drag", "move; with Shift choose a part, or a box"],
	["click", "pin an allocation"], ["double click", "its life, from its birth to its end"],
];

let dialog = null;
export const showHelp = () => {
	dialog ??= h("dialog", { onclick: () => dialog.close() }, h("h2", {}, "Keys"),
		h("dl", {}, HELP.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])));
	document.body.append(dialog);
	dialog.showModal();
};

const pan = (app, share) => {
	const { from, to } = app.window, by = (to - from) * share;
	app.zoom(from + by, to + by);
};
const scale = (app, factor) => {
	const { from, to } = app.window, middle = (from + to) / 2, half = ((to - from) / 2) * factor;
	app.zoom(middle - half, middle + half);
};
const step = (app, by) => app.set({ at: Math.max(0, Math.min(app.source.events, app.moment + by)) });

const escape = (app) => {
	if (app.state.life >= 0)
		app.set({ life: -1 });
	else if (app.state.terms.length)
		app.set({ terms: [] });
	else
		app.set({ at: null });
};

export const keys = (app) => {
	const does = {
		ArrowLeft: () => pan(app, -0.15), ArrowRight: () => pan(app, 0.15), a: () => pan(app, -0.15), d: () => pan(app, 0.15),
		"+": () => scale(app, 0.7), "=": () => scale(app, 0.7), "-": () => scale(app, 1 / 0.7), w: () => scale(app, 0.7),
		s: () => scale(app, 1 / 0.7), 0: () => app.set({ from: null, to: null, low: null, high: null, first: null, last: null }), "[": () => step(app, -1), "]": () => step(app, 1),
		p: () => app.set({ at: "peak", life: -1 }), t: () => app.set({ mode: app.state.mode === "time" ? "order" : "time" }),
		Escape: () => escape(app), "?": showHelp, "/": () => app.head.field.focus(),
		D: () => app.set({ theme: app.dark ? "light" : "dark" }),
	};
	VIEWS.forEach(({ name }, i) => { does[i + 1] = () => app.set({ view: name }); });
	window.addEventListener("keydown", (event) => {
		const inField = event.target.closest?.("input, select, textarea, dialog");
		if (event.ctrlKey || event.metaKey || event.altKey || (inField && event.key !== "Escape"))
			return;
		if (inField) {
			event.target.blur?.();
			return;
		}
		if (app.view.key?.(event)) {
			event.preventDefault();
			return;
		}
		const action = does[event.key] ?? does[event.key.toLowerCase()];
		if (action) {
			event.preventDefault();
			action();
		}
	});
};
