/*
 * allocator.js - the allocator at the cursor: all segments with their blocks, laid out as one ribbon that wraps over
 * rows; and the list of events beside it.
 */
import { css } from "../ui/color.js";
import { cut, fit, h, inFrame, placeTip, replace, switcher, variable, wheelFactor } from "../ui/dom.js";
import { beforeText, bytes, plural } from "../ui/format.js";
import { Legend, byChoice } from "../ui/legend.js";
import { Events } from "./events.js";

const GAP = 3, SIDE = 16;
const ORDERS = [["size", "size", "the largest first"], ["address", "address", "as they lie in memory"], ["free", "free", "the most free first"]];

export class Allocator {
	constructor(app) {
		this.app = app;
		this.events = new Events(app);
		this.surface = h("canvas", { class: "top", role: "img", "aria-label": "segments and their blocks" });
		this.tip = h("div", { class: "tip", hidden: true });
		this.note = h("div", { class: "refusal", hidden: true });
		this.sums = h("div", { class: "sums" });
		this.sorter = switcher(ORDERS, app.state.order, (order) => app.set({ order }), "order of segments");
		this.by = byChoice(app, "colour by");
		this.legend = new Legend(app);
		this.canvas = h("div", { class: "canvas" }, this.surface, this.tip);
		this.element = h("div", { class: "stage split" }, this.events.element, h("div", { class: "stage" },
			h("div", { class: "tools" }, h("span", { class: "labelled" }, "segments by", this.sorter), h("label", {}, "colour by", this.by),
				h("button", { class: "button", type: "button", title: "[", onclick: () => this.step(-1) }, "‹ event"),
				h("button", { class: "button", type: "button", title: "]", onclick: () => this.step(1) }, "event ›"), this.sums),
			this.note, this.canvas, this.legend.element));
		this.surface.addEventListener("pointermove", (event) => this.point(event));
		this.surface.addEventListener("pointerleave", () => { this.tip.hidden = true; });
		this.surface.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
		this.surface.addEventListener("pointerdown", (event) => { this.drag = { y: event.offsetY, ...this.part, moved: false }; });
		this.surface.addEventListener("click", (event) => !this.drag?.moved && this.choose(event));
		this.want = app.wants("allocator", (answer) => this.take(answer));
	}

	step(by) {
		const { app } = this;
		app.set({ at: Math.max(0, Math.min(app.source.events, app.moment + by)) });
	}

	update() {
		const { app } = this, { at, by, order } = app.state;
		this.sorter.show(order);
		this.by.value = by;
		this.events.update();
		this.legend.update(this.canvas.clientWidth);
		if (this.data)
			this.showNote(this.data.refusal);
		this.want({ ...app.of, at, by, dark: app.dark });
		this.paint();
	}

	take(answer) {
		this.data = answer;
		this.showSums();
		this.paint();
		this.app.shown();
	}

	showSums() {
		const { sums, refusal } = this.data;
		const parts = [["live", sums.live], ["waiting for the GPU", sums.waiting], ["free", sums.free], ["rounding", sums.rounding]];
		replace(this.sums, parts.filter(([name, value]) => value || name === "live" || name === "free").map(([name, value]) =>
			h("span", {}, h("span", { class: `dot ${name.split(" ")[0]}` }), ` ${name} `, h("b", {}, bytes(value)))),
		h("span", {}, `${plural(sums.segments, "segment")}, `, `largest hole ${bytes(sums.largest)}`));
		this.showNote(refusal);
	}

	showNote(refusal) {
		const late = !refusal && this.app.looksAtHeld;
		this.note.hidden = !refusal && !late;
		this.note.classList.toggle("soft", late);
		if (late)
			replace(this.note, `The peak of ${bytes((this.app.filtered ?? this.app.source).peakBytes)} was ${beforeText(this.app.held)}: this is the highest moment of the history.`);
		if (refusal)
			replace(this.note, h("b", {}, `${bytes(refusal.asked)} was refused. `),
				`The cache had ${bytes(refusal.free)} free in ${plural(refusal.holes, "hole")}, the largest of ${bytes(refusal.largest)}`,
				refusal.waiting ? `, and ${bytes(refusal.waiting)} waiting for the GPU` : "",
				`; the device had ${bytes(refusal.deviceFree)} free.`,
				refusal.free >= refusal.asked && refusal.largest < refusal.asked ? " Enough was free, but in pieces too small." : "",
				refusal.refusedBy && refusal.refusedBy !== "driver" ? ` Refused by ${refusal.refusedBy}.` : "");
	}

	/* ---- layout ---- */

	sorted() {
		const { size, first, blockSize } = this.data, free = Float64Array.from(size);
		for (let s = 0; s < size.length; s++)
			for (let b = first[s]; b < first[s + 1]; b++)
				free[s] -= blockSize[b];
		const list = Array.from(size, (_, i) => i), { order } = this.app.state;
		if (order === "size")
			list.sort((a, b) => size[b] - size[a] || a - b);
		else if (order === "free")
			list.sort((a, b) => free[b] - free[a] || a - b);
		return list;
	}

	/* The bytes in sight, counted over all segments in a row. */
	get part() {
		const { first, last } = this.app.state, total = this.data?.sums.reserved || 1;
		return first === null || first >= total ? { first: 0, last: total } : { first, last: Math.min(last, total) };
	}

	/* Show the bytes from @first to @last, within the ribbon. */
	zoom(first, last) {
		const total = this.data.sums.reserved || 1, length = Math.max(512, Math.min(total, last - first)), from = Math.max(0, Math.min(total - length, first));
		this.app.set(length >= total ? { first: null, last: null } : { first: from, last: from + length });
	}

	wheel(event) {
		event.preventDefault();
		if (!this.rows)
			return;
		const { first, last } = this.part, factor = wheelFactor(event);
		const at = first + (last - first) * Math.max(0, Math.min(1, (event.offsetY - 4) / (this.rows * (this.tall + 6))));
		this.zoom(at - (at - first) * factor, at + (last - at) * factor);
	}

	/* Find the scale at which the part in sight fits, and the pieces of segments in each row: { segment, from, to,
	 * x, y }. */
	lay() {
		const { data } = this, box = this.canvas.getBoundingClientRect();
		const width = Math.floor(box.width) - 2 * SIDE, height = Math.floor(box.height) - 12;
		if (!data || width < 50 || height < 30)
			return;
		const order = this.sorted();
		/* Make rows as tall as possible while all segments, with a gap each, fit. */
		for (this.tall = 30; this.tall > 4; this.tall -= 2) {
			const rows = Math.floor(height / (this.tall + 6)), room = rows * width - order.length * GAP;
			if (room > 0.6 * rows * width)
				break;
		}
		const rows = this.rows = Math.max(1, Math.floor(height / (this.tall + 6))), total = data.sums.reserved || 1, { first, last } = this.part;
		const closer = total / (last - first), above = Math.round((first / total) * rows * closer);
		this.scale = closer * (rows * width - Math.min(order.length * GAP, 0.4 * rows * width)) / total / 1.002;
		const gap = Math.min(GAP, (0.4 * rows * width) / Math.max(1, order.length));
		this.pieces = [];
		let x = 0, row = -above;		/* rows above those in sight are counted, but not drawn */
		for (const segment of order) {
			let from = 0;
			while (from < data.size[segment]) {
				const bytesLeft = (width - x) / this.scale, part = Math.min(data.size[segment] - from, bytesLeft);
				if (row >= 0 && row <= rows)
					this.pieces.push({ segment, from, to: from + part, x: SIDE + x, y: 4 + row * (this.tall + 6) });
				x += part * this.scale;
				from += part;
				if (width - x < 0.5) {
					x = 0;
					row++;
				}
			}
			x += gap;
			if (x >= width) {
				x = 0;
				row++;
			}
		}
	}

	paint = inFrame(() => {
		if (!this.data || !this.element.isConnected)
			return;
		this.lay();
		if (this.pieces)
			this.paintNow();
	});

	hatch(c) {
		const tile = h("canvas", { width: 6, height: 6 }), t = tile.getContext("2d");
		t.strokeStyle = variable("--panel");
		t.lineWidth = 2;
		t.beginPath();
		for (const shift of [-6, 0, 6]) {
			t.moveTo(shift, 6);
			t.lineTo(shift + 6, 0);
		}
		t.stroke();
		return c.createPattern(tile, "repeat");
	}

	paintNow() {
		const { data, tall, scale } = this, { context: c, width, height } = fit(this.surface), hatch = this.hatch(c);
		const free = variable("--free"), line = variable("--line-strong"), loss = variable("--loss"), mark = variable("--mark");
		const pinned = this.app.state.life, { terms } = this.app.state;
		c.clearRect(0, 0, width, height);
		for (const { segment, from, to, x, y } of this.pieces) {
			const wide = (to - from) * scale;
			c.fillStyle = free;
			c.fillRect(x, y, Math.max(wide, 0.5), tall);
			const base = data.addr[segment];
			for (let b = data.first[segment]; b < data.first[segment + 1]; b++) {
				const begin = data.blockAddr[b] - base, end = begin + data.blockSize[b];
				if (end <= from || begin >= to)
					continue;
				const left = x + (Math.max(begin, from) - from) * scale, right = x + (Math.min(end, to) - from) * scale;
				const used = x + (Math.min(begin + data.requested[b], to) - from) * scale;
				c.globalAlpha = data.match[b] ? 1 : 0.18;
				c.fillStyle = css(data.color[b]);
				c.fillRect(left, y, Math.max(right - left - (right - left > 3 ? 0.7 : 0), 0.4), tall);
				if (data.waiting[b]) {
					c.fillStyle = hatch;
					c.fillRect(left, y, right - left, tall);
				} else if (right - used >= 1 && used > left) {
					c.fillStyle = loss;
					c.fillRect(used, y, right - used, tall);
				}
				c.globalAlpha = 1;
				if (data.life[b] === pinned) {
					c.strokeStyle = mark;
					c.lineWidth = 2;
					c.strokeRect(left, y - 1, Math.max(2, right - left), tall + 2);
				}
			}
			if (wide > 3)
				this.outline(c, { x, y, wide, whole: [from === 0, to >= data.size[segment]] }, terms.includes(`segment=${data.about[segment].name}`) ? mark : line);
			if (from === 0 && wide > 90 && tall >= 18)
				this.label(c, segment, x, y, wide);
		}
	}

	/* Draw a segment's edges: open where it continues in another row, with a joining line at the left of that
	 * row. */
	outline(c, { x, y, wide, whole: [begins, ends] }, line) {
		const { tall } = this, left = x - 0.5, right = x + wide + 0.5, top = y - 0.5, bottom = y + tall + 0.5;
		c.strokeStyle = line;
		c.lineWidth = 1;
		c.beginPath();
		c.moveTo(left, top);
		c.lineTo(right, top);
		c[ends ? "lineTo" : "moveTo"](right, bottom);
		c.lineTo(left, bottom);
		if (begins) {
			c.lineTo(left, top);
		} else {
			c.moveTo(left - 5, top - tall / 2 - 6);
			c.lineTo(left - 5, top + tall / 2);
			c.lineTo(left, top + tall / 2);
		}
		c.stroke();
	}

	segmentText(segment) {
		const { data } = this, { name, stray, stream, kind, priv } = data.about[segment];
		return [stray ? "no segment" : name, bytes(data.size[segment]), stream, kind, priv && priv !== "unknown" ? `private pool ${priv}` : ""].filter(Boolean).join(" · ");
	}

	label(c, segment, x, y, wide) {
		c.font = "10px system-ui, sans-serif";
		const text = cut(c, this.segmentText(segment), wide - 10);
		if (!text)
			return;
		c.globalAlpha = 0.72;
		c.fillStyle = variable("--panel");
		c.fillRect(x + 2, y + this.tall - 14, c.measureText(text).width + 6, 12);
		c.globalAlpha = 1;
		c.fillStyle = variable("--ink");
		c.textBaseline = "middle";
		c.fillText(text, x + 5, y + this.tall - 8);
	}

	/* ---- the pointer ---- */

	/* Return { segment, block } at (x, y), by number; block is -1 for free memory. null: nothing is there. */
	under(x, y) {
		const { data, tall, scale } = this;
		const piece = this.pieces?.find((one) => y >= one.y - 2 && y < one.y + tall + 2 && x >= one.x && x < one.x + Math.max(1, (one.to - one.from) * scale));
		if (!piece)
			return null;
		const at = data.addr[piece.segment] + piece.from + (x - piece.x) / scale;
		for (let b = data.first[piece.segment]; b < data.first[piece.segment + 1]; b++)
			if (data.blockAddr[b] <= at && at < data.blockAddr[b] + Math.max(data.blockSize[b], 1 / scale))
				return { segment: piece.segment, block: b };
		return { segment: piece.segment, block: -1, at };
	}

	point(event) {
		if (event.buttons & 1 && this.drag && this.rows) {
			const { first, last, y } = this.drag, by = ((event.offsetY - y) / (this.rows * (this.tall + 6))) * (last - first);
			this.drag.moved ||= Math.abs(event.offsetY - y) > 4;
			if (this.drag.moved && this.app.state.first !== null)
				this.zoom(first - by, last - by);
		}
		const found = this.data && this.under(event.offsetX, event.offsetY), { data, tip } = this;
		tip.hidden = !found;
		if (!found)
			return;
		const { segment, block } = found, about = data.about[segment];
		const where = h("div", { class: "soft" }, `in ${about.stray ? `memory outside of all segments at ${about.name}` : `${about.name}, a segment of ${bytes(data.size[segment])}`}, `,
			[about.stream, about.kind, about.expandable ? "expandable" : "", about.priv ? `private pool ${about.priv}` : ""].filter(Boolean).join(", "));
		if (block < 0) {
			replace(tip, h("b", {}, `${bytes(this.hole(segment, found.at))} free`), where);
		} else {
			replace(tip, h("b", {}, bytes(data.requested[block])), data.waiting[block] ? " waiting for the GPU" : "",
				data.blockSize[block] > data.requested[block] ? ` in ${bytes(data.blockSize[block])}` : "", h("div", { class: "site" }), where);
			if (this.named !== data.life[block]) {
				this.named = data.life[block];
				this.name = "";
				this.app.ask("life", { life: this.named }).then((life) => {
					if (life?.life === this.named) {
						this.name = `${life.name} · ${life.site}`;
						const line = tip.querySelector(".site");
						if (line)
							line.textContent = this.name;
					}
				}).catch((error) => this.app.fail(error));
			}
			tip.querySelector(".site").textContent = this.name ?? "";
		}
		placeTip(tip, this.canvas, event.offsetX, event.offsetY);
	}

	/* Return the size of the hole at address @at. */
	hole(segment, at) {
		const { data } = this;
		let low = data.addr[segment], high = low + data.size[segment];
		for (let b = data.first[segment]; b < data.first[segment + 1]; b++) {
			const end = data.blockAddr[b] + data.blockSize[b];
			if (end <= at)
				low = Math.max(low, end);
			else
				high = Math.min(high, data.blockAddr[b]);
		}
		return Math.max(0, high - low);
	}

	choose(event) {
		const found = this.data && this.under(event.offsetX, event.offsetY);
		this.app.set({ life: found && found.block >= 0 ? this.data.life[found.block] : -1 });
	}

	key(event) {
		const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
		if (by)
			this.step(by);
		return by !== undefined;
	}
}
