/*
 * compare.js - two snapshots side by side, on one scale, and below them their difference by call site, module and so on.
 */
import { fit, h, replace, switcher, variable } from "../ui/dom.js";
import { brief, bytes, count, duration } from "../ui/format.js";
import { VirtualList } from "../ui/vlist.js";

const BY = [["site", "call site"], ["stack", "stack"], ["module", "module"], ["kind", "kind"], ["size", "size"], ["stream", "stream"],
	["thread", "thread"], ["phase", "phase"]];
const signed = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${bytes(Math.abs(value))}`;

export class Compare {
	constructor(app) {
		this.app = app;
		this.other = h("select", { "aria-label": "compare with", onchange: () => app.set({ other: Number(this.other.value) }) });
		const by = this.by = h("select", { "aria-label": "difference by", onchange: () => app.set({ by: by.value }) },
			BY.map(([value, text]) => h("option", { value }, text)));
		this.moment = switcher([["end", "at the end"], ["peak", "at the peak", "each at its own"]], app.state.when, (when) => app.set({ when }), "moment");
		this.note = h("span", { class: "soft" });
		this.sides = [0, 1].map(() => ({ title: h("div", { class: "side-title" }), canvas: h("canvas", { role: "img", "aria-label": "live bytes over time" }) }));
		this.pair = h("div", { class: "two" }, this.sides.map(({ title, canvas }) => h("div", { class: "one" }, title, h("div", { class: "graph" }, canvas))));
		this.head = h("div", { class: "table-head differs", role: "row" }, ["name", "before", "after", "difference", "blocks"].map((text) => h("span", {}, text)));
		this.list = new VirtualList({ rowHeight: 28, label: "differences", row: (i) => this.row(i) });
		this.body = h("div", { class: "stage" }, h("div", { class: "tools" }, h("label", {}, "with", this.other), h("label", {}, "by", by), this.moment, this.note), this.pair,
			h("div", { class: "table" }, this.head, this.list.element));
		this.alone = h("div", { class: "welcome" }, h("div", {}, h("h1", {}, "Drop a second snapshot here"),
			h("p", {}, "It is compared with the one that is open. Or have both in the page from the start: ", h("code", {}, "gpumem view BEFORE AFTER"))));
		this.element = h("div", { class: "stage" }, this.alone);
		this.want = app.wants("compare", (answer, args) => this.take(answer, args));
	}

	/* The snapshot that is compared with the one that is chosen: the next one, if none is named. */
	get partner() {
		const { app } = this, { other, doc } = app.state, numbers = app.docs.filter(Boolean).map((one) => one.number).filter((one) => one !== doc);
		return numbers.includes(other) ? other : numbers.find((one) => one > doc) ?? numbers[0] ?? -1;
	}

	update() {
		const { app } = this, { partner } = this, { by, when } = app.state, shown = partner < 0 ? this.alone : this.body;
		if (this.element.firstChild !== shown)
			replace(this.element, shown);
		if (partner < 0)
			return;
		replace(this.other, app.docs.filter((one) => one && one.number !== app.state.doc).map((one) =>
			h("option", { value: String(one.number), selected: one.number === partner }, one.name)));
		this.by.value = by;
		this.moment.show(when);
		this.want({ ...app.of, other: partner, by, when, width: Math.floor(this.sides[0].canvas.clientWidth) });
		this.draw();
	}

	take(answer, { by }) {
		this.data = { ...answer, by };
		this.most = answer.rows.reduce((most, { a, b }) => Math.max(most, Math.abs(b - a)), 1);
		const growth = answer.b - answer.a;
		this.note.textContent = answer.source < 0 ? `${this.app.docs[answer.other].name} has nothing of ${this.app.source.name}` :
			`${signed(growth)}: ${bytes(answer.a)} before, ${bytes(answer.b)} after; ${count(answer.rows.length)} ${answer.rows.length === 1 ? "row differs" : "rows differ"}, ${count(answer.same)} as before`;
		this.list.setCount(answer.rows.length);
		this.draw();
		this.app.shown();
	}

	/* Both curves, with one scale of bytes; each has its own time. */
	draw() {
		const { app, data } = this;
		if (!data)
			return;
		const halves = [[app.doc, app.source], [app.docs[data.other], app.docs[data.other]?.sources[data.source]]], top = Math.max(1, ...data.peaks) * 1.05;
		halves.forEach(([doc, source], i) => {
			const { title, canvas } = this.sides[i], { context: c, width, height } = fit(canvas), curve = data.curves[i];
			replace(title, h("b", {}, doc?.name ?? ""), source ? h("span", { class: "soft" },
				` ${source.name}: peak ${bytes(data.peaks[i])}, end ${bytes(source.endBytes)}, ${duration(source.length)}`) : null);
			c.clearRect(0, 0, width, height);
			c.fillStyle = variable("--canvas");
			c.fillRect(0, 0, width, height);
			c.fillStyle = variable("--accent");
			for (let x = 0; curve && x < width; x++) {
				const tall = (curve[Math.min(curve.length - 1, x)] / top) * height;
				c.fillRect(x, height - tall, 1, tall);
			}
		});
	}

	row(i) {
		const row = this.data?.rows[i], growth = row ? row.b - row.a : 0;
		return row ? h("div", { class: "vlist-row differs", role: "option", title: row.name, onclick: () => this.app.addTerm(`${this.data.by}=${row.name}`) },
			h("span", { class: "what" }, brief(row.name)), h("span", { class: "much" }, bytes(row.a)), h("span", { class: "much" }, bytes(row.b)),
			h("span", { class: `much change ${growth > 0 ? "more" : "less"}`, vars: { "--share": `${(100 * Math.abs(growth)) / this.most}%` } }, signed(growth)),
			h("span", { class: "much" }, `${count(row.blocksA)} → ${count(row.blocksB)}`)) : null;
	}
}
