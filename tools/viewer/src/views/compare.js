/*
 * compare.js - snapshots side by side on one scale, for example the ranks of a job; below them the difference of two by
 * call site, module and so on.
 */
import { alongTicks, byteTicks } from "../ui/axes.js";
import { fit, h, replace, switcher, variable } from "../ui/dom.js";
import { brief, bytes, count, duration } from "../ui/format.js";
import { byChoice } from "../ui/legend.js";
import { VirtualList } from "../ui/vlist.js";

const LEFT = 64;
const signed = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${bytes(Math.abs(value))}`;

export class Compare {
	constructor(app) {
		this.app = app;
		this.other = h("select", { "aria-label": "compare with", onchange: () => app.set({ other: Number(this.other.value) }) });
		this.by = byChoice(app, "difference by");
		this.moment = switcher([["end", "at the end"], ["peak", "at the peak", "each at its own"]], app.state.when, (when) => app.set({ when }), "moment");
		this.note = h("span", { class: "soft" });
		this.sides = [];
		this.pair = h("div", { class: "two" });
		this.head = h("div", { class: "table-head differs", role: "row" }, ["name", "before", "after", "difference", "blocks"].map((text) => h("span", {}, text)));
		this.list = new VirtualList({ rowHeight: 28, label: "differences", row: (row) => this.row(row) });
		this.body = h("div", { class: "stage" }, h("div", { class: "tools" }, h("label", {}, "with", this.other), h("label", {}, "by", this.by), this.moment, this.note), this.pair,
			h("div", { class: "table" }, this.head, this.list.element));
		this.alone = h("div", { class: "welcome" }, h("div", {}, h("h1", {}, "Drop a second snapshot here"),
			h("p", {}, "Live bytes of all that are open are shown on one scale, and what has grown is listed. It is compared with the one that is open. Or have both in the page from the start: ", h("code", {}, "gpumem view BEFORE AFTER"))));
		this.element = h("div", { class: "stage" }, this.alone);
		this.want = app.wants("compare", (answer, args) => this.take(answer, args));
	}

	update() {
		const { app } = this, { partner } = app, { by, when } = app.state, shown = partner < 0 ? this.alone : this.body;
		if (this.element.firstChild !== shown)
			replace(this.element, shown);
		if (partner < 0)
			return;
		replace(this.other, app.docs.filter((one) => one && one.number !== app.state.doc).map((one) =>
			h("option", { value: String(one.number), selected: one.number === partner, title: one.name }, app.nameOf(one.number))));
		this.other.title = app.docs[partner].name;
		this.by.value = by;
		this.moment.show(when);
		this.want({ ...app.of, other: partner, by, when, all: app.docs.length, width: Math.max(0, Math.floor(this.pair.clientWidth / Math.min(2, app.docs.length)) - LEFT - 40) });
		this.draw();
	}

	take(answer, { by }) {
		this.data = { ...answer, by };
		this.most = answer.rows.reduce((most, { a, b }) => Math.max(most, Math.abs(b - a)), 1);
		const growth = answer.b - answer.a;
		this.note.textContent = answer.source < 0 ? `${this.app.nameOf(answer.other)} has nothing of ${this.app.source.name}` :
			`${signed(growth)}: ${bytes(answer.a)} before, ${bytes(answer.b)} after; ${count(answer.rows.length)} ${answer.rows.length === 1 ? "row differs" : "rows differ"}, ${count(answer.same)} as before`;
		this.list.empty.textContent = answer.source < 0 ? "There is nothing to compare it with." : "Nothing differs.";
		this.list.rows.clear();
		this.list.take(0, answer.rows, answer.rows.length);
		this.draw();
		this.app.shown();
	}

	/* Draw all snapshots with one scale of bytes, each with its own time axis. The two that are compared come
	 * first. */
	draw() {
		const { app, data } = this;
		if (!data)
			return;
		const rank = ({ doc }) => doc === app.state.doc ? 0 : doc === data.other ? 1 : 2, sides = [...data.sides].sort((a, b) => rank(a) - rank(b) || a.doc - b.doc);
		while (this.sides.length < sides.length) {
			const title = h("div", { class: "side-title" }), canvas = h("canvas", { role: "img", "aria-label": "live bytes over time" });
			this.sides.push({ title, canvas, element: h("div", { class: "one" }, title, h("div", { class: "graph" }, canvas)) });
		}
		const shown = this.sides.slice(0, sides.length).map(({ element }) => element), top = Math.max(1, ...sides.map(({ peak }) => peak)) * 1.08;
		if (this.pair.childElementCount !== shown.length)
			replace(this.pair, shown);
		this.pair.classList.toggle("many", sides.length > 2);
		sides.forEach((side, i) => {
			const { title, canvas, element } = this.sides[i], what = ["before", "after", ""][rank(side)];
			element.onclick = () => rank(side) === 2 && app.set({ other: side.doc });
			title.title = app.docs[side.doc]?.name ?? "";
			replace(title, h("b", {}, `${what ? `${what}: ` : ""}${app.nameOf(side.doc)}`), h("div", { class: "soft" },
				`${side.name}: peak ${bytes(side.peak)}, end ${bytes(side.end)}, ${duration(side.length)}`));
			this.drawSide(fit(canvas), side, top);
		});
	}

	drawSide({ context: c, width, height }, { curve, length, peak }, top) {
		const box = { left: LEFT, width: Math.max(1, width - LEFT - 8), height: height - 20 }, y = (value) => box.height - (value / top) * box.height;
		c.clearRect(0, 0, width, height);
		c.font = "11px system-ui, sans-serif";
		c.textBaseline = "middle";
		c.textAlign = "right";
		for (const { at, text } of byteTicks(0, top, box.height / 36)) {
			c.fillStyle = variable("--line");
			c.fillRect(box.left, Math.round(y(at)), box.width, 1);
			c.fillStyle = variable("--soft");
			c.fillText(text, box.left - 5, Math.min(box.height - 5, Math.max(6, y(at))));
		}
		c.fillStyle = variable("--accent");
		for (let x = 0; curve && x < box.width; x++) {
			const value = curve[Math.min(curve.length - 1, Math.floor((x / box.width) * curve.length))];
			c.fillRect(box.left + x, y(value), 1, box.height - y(value));
		}
		c.fillStyle = variable("--mark");
		c.fillRect(box.left, Math.round(y(peak)), box.width, 1);
		c.textAlign = "center";
		c.fillStyle = variable("--soft");
		for (const { at, text } of alongTicks("time", 0, length, box.width / 90)) {
			const half = c.measureText(text).width / 2;
			c.fillText(text, Math.max(box.left + half, Math.min(width - half, box.left + (at / length) * box.width)), box.height + 11);
		}
	}

	rowsToSave() { return this.data?.rows ?? []; }

	row(row) {
		const growth = row.b - row.a;
		return h("div", { class: "vlist-row differs", role: "option", title: row.name, onclick: () => this.app.addTerm(`${this.data.by}=${row.name}`) },
			h("span", { class: "what" }, brief(row.name)), h("span", { class: "much" }, bytes(row.a)), h("span", { class: "much" }, bytes(row.b)),
			h("span", { class: `much change ${growth > 0 ? "more" : "less"}`, vars: { "--share": `${(100 * Math.abs(growth)) / this.most}%` } }, signed(growth)),
			h("span", { class: "much" }, `${count(row.blocksA)} → ${count(row.blocksB)}`));
	}
}
