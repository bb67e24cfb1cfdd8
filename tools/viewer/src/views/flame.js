/*
 * flame.js - the flame graph, hanging: callers are above the functions that they call, and the width is the weight. A
 * click makes a function fill the width; a double click filters every view by it.
 */
import { css, hueOf, oklch } from "../ui/color.js";
import { cut, fit, h, inFrame, placeTip, replace, switcher, toggle, variable } from "../ui/dom.js";
import { bytes, count, percent, plural } from "../ui/format.js";
import { testOf } from "../model/filter.js";

const TALL = 20, SIDE = 16;
const WEIGHTS = [
	["live", "at the cursor", "bytes that are live at the cursor"], ["peak", "at the peak", "bytes that are live at the peak"],
	["end", "at the end", "bytes that were never freed"], ["bytes", "allocated", "bytes that were allocated in the window"],
	["count", "count", "allocations in the window"], ["churn", "freed again", "bytes allocated in the window and freed again"],
];

/* Return the colour of a label, always the same; Python is warmer than native code. */
const colorOf = (label, dark) => {
	const hash = hueOf(label.replace(/:\d+\)$/, "")), python = /\.py:\d+\)$/.test(label);
	return css(oklch(dark ? 0.5 + (hash % 5) * 0.012 : 0.83 + (hash % 5) * 0.012, dark ? 0.075 : 0.07, (python ? 35 : 220) + (hash >>> 4) % 55));
};

export class Flame {
	constructor(app) {
		this.app = app;
		this.root = 0;
		this.found = null;
		this.surface = h("canvas", { class: "flames", role: "img", "aria-label": "flame graph" });
		this.scroller = h("div", { class: "fill" }, this.surface);
		this.tip = h("div", { class: "tip", hidden: true });
		this.weights = switcher(WEIGHTS, app.state.weigh, (weigh) => app.set({ weigh }), "what the width means");
		this.search = h("input", { class: "field", type: "search", placeholder: "Search: text or /regex/", "aria-label": "search in the flame graph",
			oninput: () => app.set({ find: this.search.value }) });
		this.note = h("span", { class: "soft" });
		this.inverter = toggle("Who allocates", "inverted: from the function that allocates to those that called it", () => app.set({ invert: 1 - app.state.invert, path: [] }));
		this.differ = toggle("Difference", "beside the other snapshot: red has grown, blue has shrunk", () => app.set({ against: 1 - app.state.against }));
		this.element = h("div", { class: "stage" },
			h("div", { class: "tools" }, this.weights, this.search,
				h("button", { class: "button", type: "button", onclick: () => this.zoom(0) }, "All"), this.inverter, this.differ, this.note),
			h("div", { class: "canvas" }, this.scroller, this.tip));
		this.surface.addEventListener("pointermove", (event) => this.point(event));
		this.surface.addEventListener("pointerleave", () => { this.tip.hidden = true; this.hover = -1; this.paint(); });
		this.surface.addEventListener("click", (event) => this.zoom(this.under(event.offsetX, event.offsetY)));
		this.surface.addEventListener("dblclick", (event) => this.filter(this.under(event.offsetX, event.offsetY)));
		this.want = app.wants("flame", (answer) => this.take(answer));
	}

	get weigh() { return this.data?.weigh ?? this.app.state.weigh; }

	update() {
		const { app } = this, { weigh, at, find } = app.state, whole = { mode: "order", from: null, to: null };
		const { fold, invert, against } = app.state;
		this.weights.show(weigh);
		this.inverter.show(invert);
		this.differ.show(against);
		this.differ.hidden = app.partner < 0;
		if (document.activeElement !== this.search)
			this.search.value = find;
		this.want({ ...app.of, weigh, at: weigh === "live" ? at : null, window: ["bytes", "count", "churn"].includes(weigh) ? app.part : whole,
			fold: fold === 1, invert: invert === 1, other: against ? app.partner : -1 });
		this.look();
	}

	take(answer) {
		this.data = answer;
		this.look();
		this.app.shown();
	}

	/* Find the function that fills the width, by its path, so that it stays when the numbers change. */
	findRoot() {
		this.root = 0;
		for (const label of this.app.state.path) {
			const next = this.children(this.root).find((n) => this.data.labels[n] === label);
			if (next === undefined)
				break;
			this.root = next;
		}
	}

	children(n) {
		const found = [];
		for (let i = n + 1; i < this.data.parent.length; i++)
			if (this.data.parent[i] === n)
				found.push(i);
		return found;
	}

	amount(value) { return this.weigh === "count" ? count(value) : bytes(value); }

	look() {
		const text = this.app.state.find.trim(), { data } = this;
		this.found = null;
		if (!data)
			return;
		this.findRoot();
		try {
			const test = text ? testOf(text) : null;
			this.found = test && data.labels.map((label, i) => test(label) || test(data.where[i]));
			this.say();
		} catch (error) {
			this.note.textContent = error.message;
		}
		this.paint();
	}

	say() {
		const { data, found } = this;
		if (!data)
			return;
		let matched = 0;
		if (found)		/* of nested functions only the outermost counts */
			for (let n = 0, end = -1; n < found.length; n++)
				if (found[n] && data.begin[n] >= end) {
					matched += data.weight[n];
					end = data.begin[n] + data.weight[n];
				}
		const was = data.before ? `, ${this.amount(data.was)} before` : "", left = data.left ? `; the smallest ${plural(data.left, "function")} left out` : "";
		replace(this.note, (found ? `${this.amount(matched)} of ${this.amount(data.total)} (${percent(matched, data.total) || "0%"}) in what was found` :
			data.total ? this.amount(data.total) : "Nothing: no allocation passes the filter, or none is live here.") + was + left);
	}

	zoom(n) {
		if (n < 0 || !this.data)
			return;
		const path = [];
		for (let at = n; at > 0; at = this.data.parent[at])
			path.unshift(this.data.labels[at]);
		this.app.set({ path });
	}

	filter(n) {
		if (n > 0)
			this.app.addTerm(`frame=${this.data.names[n]}`);
	}

	/* ---- painting ---- */

	paint = inFrame(() => this.data && this.element.isConnected && this.paintNow());

	x(bytesAt) { return SIDE + ((bytesAt - this.data.begin[this.root]) / (this.data.weight[this.root] || 1)) * this.wide; }

	paintNow() {
		const { data, root, app } = this;
		let deepest = 0;
		for (let n = 0; n < data.depth.length; n++)
			deepest = Math.max(deepest, data.depth[n]);
		const tall = Math.max((deepest + 1) * TALL + 24, this.scroller.clientHeight);
		this.surface.style.height = `${tall}px`;
		const { context: c, width, height } = fit(this.surface);
		this.wide = width - 2 * SIDE;
		c.clearRect(0, 0, width, height);
		c.font = "12px system-ui, sans-serif";
		c.textBaseline = "middle";
		const rootBegin = data.begin[root], rootEnd = rootBegin + data.weight[root], ancestors = new Set();
		for (let n = root; n >= 0; n = data.parent[n])
			ancestors.add(n);
		const ink = variable("--ink"), faint = variable("--sunken"), mark = variable("--mark"), found = variable("--found");
		/* By row, where it ends so far: of narrow boxes, one in each pixel is enough. */
		const drawn = new Float64Array(deepest + 1);
		for (let n = 0; n < data.labels.length; n++) {
			const above = ancestors.has(n), begin = data.begin[n], end = begin + data.weight[n];
			if (!above && (begin >= rootEnd || end <= rootBegin || data.depth[n] <= data.depth[root]))
				continue;
			const left = Math.max(SIDE, this.x(begin)), right = Math.min(SIDE + this.wide, this.x(end)), y = data.depth[n] * TALL + 4;
			if (right - left < 0.6 && right - drawn[data.depth[n]] < 1)
				continue;
			drawn[data.depth[n]] = right;
			c.globalAlpha = above && n !== root ? 0.55 : 1;
			c.fillStyle = n === 0 ? faint : this.found?.[n] ? found : data.before ? this.grown(n) : colorOf(data.labels[n], app.dark);
			if (this.found && !this.found[n] && n !== 0)
				c.globalAlpha *= 0.45;
			c.fillRect(left, y, Math.max(0.6, right - left - (right - left > 3 ? 1 : 0)), TALL - 1);
			c.globalAlpha = 1;
			if (n === this.hover) {
				c.strokeStyle = mark;
				c.strokeRect(left + 0.5, y + 0.5, right - left - 2, TALL - 2);
			}
			const text = right - left > 34 ? cut(c, n ? data.labels[n] : `all: ${this.amount(data.total)}`, right - left - 10) : "";
			if (text) {
				c.fillStyle = ink;
				c.fillText(text, left + 5, y + TALL / 2);
			}
		}
	}

	/* Return red for a function that has grown since the other snapshot, blue for one that has shrunk, stronger for
	 * a larger change relative to the larger weight. */
	grown(n) {
		const { weight, before } = this.data, now = weight[n], was = before[n], share = (now - was) / Math.max(now, was, 1), { dark } = this.app;
		return css(oklch((dark ? 0.5 : 0.9) - Math.abs(share) * (dark ? 0.05 : 0.18), 0.01 + Math.abs(share) * 0.13, share > 0 ? 27 : 255));
	}

	/* ---- the pointer ---- */

	under(x, y) {
		const { data, root } = this, depth = Math.floor((y - 4) / TALL);
		if (!data || depth < 0)
			return -1;
		for (let n = root; depth <= data.depth[root] && n >= 0; n = data.parent[n])
			if (data.depth[n] === depth)
				return n;
		const at = data.begin[root] + ((x - SIDE) / this.wide) * data.weight[root];
		for (let n = root + 1; n < data.labels.length && data.depth[n] > data.depth[root]; n++)
			if (data.depth[n] === depth && data.begin[n] <= at && at < data.begin[n] + data.weight[n])
				return n;
		return -1;
	}

	point(event) {
		const n = this.under(event.offsetX, event.offsetY), { data, tip } = this;
		if (n !== this.hover) {
			this.hover = n;
			this.paint();
		}
		tip.hidden = n < 0;
		if (n < 0)
			return;
		replace(tip, h("b", {}, this.amount(data.weight[n])), h("span", { class: "soft" }, ` ${percent(data.weight[n], data.total)} of all`,
			data.self[n] ? `, ${this.amount(data.self[n])} by itself` : ""), h("div", { class: "site" }, n ? data.labels[n] : "all stacks"),
		n ? h("div", { class: "soft" }, data.where[n]) : null, data.before ? h("div", {}, `${this.amount(data.before[n])} in ${this.app.nameOf(this.app.partner)}`) : null);
		placeTip(tip, this.scroller, event.offsetX, event.offsetY - this.scroller.scrollTop);
	}
}
