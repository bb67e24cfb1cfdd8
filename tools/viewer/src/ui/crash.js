/* crash.js - the thread that died (model/crash.js), for the side and for the summary. */
import { ACTIONS } from "../model/document.js";
import { h } from "./dom.js";
import { bytes, hex } from "./format.js";
import { shorten } from "../model/stacks.js";

const FRAMES_MOST = 12;

/* Return a table of the thread's last events. */
const eventsTable = (events) => h("div", { class: "scroll" }, h("table", { "aria-label": "the last events of that thread" }, h("tbody", {}, events.map((event) =>
	h("tr", {}, [`${event.seconds} s`, ACTIONS[event.action], bytes(event.size), event.block || `at ${hex(event.addr)}`, event.site].map((cell) => h("td", {}, cell)))))));

export const crashCard = ({ wish, what, place, block, stack, truncated, events }) => wish ? h("section", { class: "card" }, h("h2", {}, `The program was ${what}`)) :
	h("section", { class: "card bad crash" }, h("h2", {}, `The program ${what}`), place ? h("p", { class: "because" }, place, block ? [", ", h("code", {}, block)] : null) : null,
		h("ol", { class: "stack" }, stack.map(({ name, file, line, module }, i) => h("li", { hidden: i >= FRAMES_MOST },
			h("code", { title: name }, shorten(name)), h("span", { class: "where" }, line > 0 ? `${file}:${line}` : module || file)))),
		stack.length > FRAMES_MOST ? h("button", { class: "button", type: "button", onclick: ({ target }) => {
			target.parentNode.querySelectorAll("li").forEach((row) => { row.hidden = false; });
			target.remove();
		} }, `${stack.length - FRAMES_MOST} more frames`) : null,
		truncated ? h("p", { class: "note" }, "it could not be followed further") : null,
		events.length ? [h("div", { class: "sub" }, "the last events of that thread"), eventsTable(events)] : null);
