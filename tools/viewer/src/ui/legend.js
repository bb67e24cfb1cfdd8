/*
 * legend.js - the choice of how stripes and blocks are coloured, and the colours of the groups in the window, the
 * largest first, each with its bytes at the window's highest state.
 */
import { css } from "./color.js";
import { h, replace } from "./dom.js";
import { brief, bytes, count } from "./format.js";

const BY = [["site", "call site"], ["module", "module"], ["size", "size"], ["stream", "stream"], ["kind", "kind"],
	["thread", "thread"], ["phase", "phase"], ["class", "class"], ["stack", "stack"]];
const MOST = 14;

/* Make the choice of groups for colours and sums, which all views share. */
export const byChoice = (app, label) => {
	const element = h("select", { "aria-label": label, onchange: () => app.set({ by: element.value }) },
		BY.map(([value, text]) => h("option", { value }, text)));
	return element;
};

export class Legend {
	/* @keys: elements to show before the colours. */
	constructor(app, keys = []) {
		this.app = app;
		this.keys = keys;
		this.element = h("div", { class: "legend", "aria-label": "colours" });
		this.want = app.wants("legend", (legend) => this.show(legend));
	}

	/* Show as many colours as fit into three rows of @width with long names. While the window moves, nothing
	 * changes. */
	update(width) {
		const { app } = this;
		if (!app.store.timer)
			this.want({ ...app.of, by: app.state.by, dark: app.dark, most: Math.max(4, Math.min(MOST, Math.floor(width / 120))), window: app.part });
	}

	show({ by, list, others }) {
		replace(this.element, this.keys, list.map(({ name, label, color, peak }) => h("button", {
			class: "chip", type: "button", title: `${name}\n${bytes(peak)} where this window has most: show only this`,
			onclick: () => this.app.addTerm(`${by}=${name}`),
		}, h("span", { class: "dot", vars: { background: css(color) } }), h("span", {}, brief(label)), h("span", { class: "much" }, bytes(peak)))),
		others ? h("span", { class: "chip" }, `and ${count(others)} more`) : null);
	}
}
