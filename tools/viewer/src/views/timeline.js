/*
 * timeline.js - the timeline: every allocation is a stripe over time. The worker draws the stripes (raster.js). This
 * file stretches the last picture until the next one arrives, and draws axes, lines and marks over it.
 */
import { css, hueOf, oklch } from "../ui/color.js";
import { alongTicks, byteTicks } from "../ui/axes.js";
import { cut, fit, h, inFrame, switcher, variable } from "../ui/dom.js";
import { beforeText, bytes, duration } from "../ui/format.js";
import { Legend, byChoice } from "../ui/legend.js";
import { Pointer } from "./timeline_pointer.js";

const MARGIN = { left: 78, right: 16, top: 12, bottom: 30 }, LANE = 17;
const NONE = { points: [], ranges: [], ghost: null }, WHOLE = { from: null, to: null, low: null, high: null };

/* Return the colour "#rrggbb" of a style as 0xAABBGGRR. */
const packed = (text) => {
	const [r, g, b] = /^#(..)(..)(..)$/.exec(text).slice(1).map((part) => parseInt(part, 16));
	return (0xff000000 | b << 16 | g << 8 | r) >>> 0;
};

export class Timeline {
	constructor(app) {
		this.app = app;
		this.base = h("canvas", { "aria-hidden": "true" });
		this.top = h("canvas", { class: "top", tabindex: "0", role: "img", "aria-label": "allocations over time" });
		this.tip = h("div", { class: "tip", hidden: true });
		this.canvas = h("div", { class: "canvas" }, this.base, this.top, this.tip);
		this.mode = switcher([["time", "time", "real time"], ["order", "events", "a step for each event"]], app.state.mode,
			(mode) => app.set({ mode }), "what lies along the axis");
		this.by = byChoice(app, "colour by");
		this.keys = Object.fromEntries([["given", "from the driver"], ["idle", "idle of it"], ["limit", "all of the device"],
			["all", "all that is live"]].map(([name, text]) => [name, h("span", { class: `key ${name}`, hidden: true }, text)]));
		this.legend = new Legend(app, Object.values(this.keys));
		this.element = h("div", { class: "stage" },
			h("div", { class: "tools" }, h("label", {}, "colour by", this.by), h("span", { class: "labelled" }, "along", this.mode),
				h("button", { class: "button", type: "button", title: "P", onclick: () => this.toPeak() }, "Peak"),
				h("button", { class: "button", type: "button", title: "0", onclick: () => app.set(WHOLE) }, "All"),
				h("button", { class: "button", type: "button", title: "leave out what is there from the beginning of this window to its end",
					onclick: () => this.fitChanges() }, "What changes")),
			this.canvas, this.legend.element);
		this.wantFrame = app.wants("frame", (frame) => this.take(frame));
		this.wantMarks = app.wants("marks", (marks) => this.takeMarks(marks));
		this.pointer = new Pointer(this);
		this.marks = NONE;
		this.measure();
	}

	/* ---- updates ---- */

	update() {
		const { app } = this, { state } = app, of = `${state.doc} ${state.source}`;
		if (this.of !== of) {
			this.of = of;
			this.picture = null;
			this.takeMarks(NONE);
		}
		this.measure();
		this.follow();
		this.ask();		/* before the questions of the legend and the marks */
		this.legend.update(this.box.width);
		this.wantMarks({ doc: state.doc, source: state.source });
		this.mode.show(state.mode);
		this.by.value = state.by;
		if (!app.store.timer)
			this.explainLines();
		this.paint();
	}

	takeMarks(marks) {
		const lanes = Math.min(4, marks.ranges.reduce((most, { depth }) => Math.max(most, depth + 1), 0)), moved = lanes !== this.lanes;
		Object.assign(this, { marks, lanes });
		if (moved) {
			this.measure();
			this.ask();
		}
		this.paint();
	}

	/* Measure the picture's place. Only once for each painting, because asking the browser takes longer than
	 * drawing. */
	measure() {
		const width = this.canvas.clientWidth, height = this.canvas.clientHeight, top = MARGIN.top + (this.lanes ?? 0) * LANE;
		this.box = {
			shown: width >= 40, left: MARGIN.left, top, width: Math.max(10, width - MARGIN.left - MARGIN.right),
			height: Math.max(10, height - top - MARGIN.bottom),
		};
	}

	ask() {
		const { app, box } = this, { state } = app, ratio = Math.min(2, window.devicePixelRatio || 1);
		if (!box.shown)
			return;
		const { from, to } = app.window;
		this.wantFrame({
			...app.of, by: state.by, dark: app.dark,
			view: {
				mode: state.mode, from, to, low: state.low ?? 0, high: state.high,
				width: Math.round(box.width * ratio), height: Math.round(box.height * ratio),
				background: packed(variable("--canvas")), mark: state.life,
			},
		});
	}

	take(frame) {
		performance.mark("frame");
		this.picture?.bitmap.close();
		this.picture = frame;
		this.follow();
		this.explainLines();
		this.paint();
		this.pointer.refresh();
		this.app.shown();
	}

	/* Set the range of bytes in sight: the chosen one, or the picture's. */
	follow() {
		const { low, high } = this.app.state, view = this.picture?.view;
		if (view && high === null)
			this.fits = view.high;
		this.low = low ?? 0;
		this.high = high ?? this.fits;
	}

	/* Show the bytes from @low to @high, but none below 0. */
	stretch(low, high) {
		const least = Math.max(0, low), most = Math.max(least + 512, high + least - low);
		this.app.set(least === 0 && most >= this.fits && this.fits ? { low: null, high: null } : { low: least, high: most });
	}

	/* Filter out allocations that are live from the beginning of the window to its end, on which all others are
	 * stacked. */
	fitChanges() {
		const { app } = this, { from, to } = app.window, [first, last] = [from, to].map((place) => app.stateAt(place));
		if (app.axis)
			app.addTerm(`-alive@#${Math.max(1, first)}..#${last}`);
	}

	/* Arrow keys move along the bytes, with Shift they zoom. */
	key({ key, shiftKey }) {
		const by = { ArrowUp: 1, ArrowDown: -1 }[key], { low, high } = this, length = high - low;
		if (by && shiftKey)
			this.stretch(low, by > 0 ? low + length * 0.7 : low + length / 0.7);
		else if (by)
			this.stretch(low + by * length * 0.15, high + by * length * 0.15);
		return by !== undefined;
	}

	toPeak() {
		const { app } = this, at = app.held ? undefined : app.place((app.filtered ?? app.source).peak), { from, to } = app.window;
		app.set({ at: "peak", life: -1 });
		if (at !== undefined && (at < from || at > to))
			app.zoom(at - (to - from) / 2, at + (to - from) / 2);
	}

	/* ---- places ---- */

	x(place) {
		const { from, to } = this.app.window, { left, width } = this.box;
		return left + ((place - from) / (to - from)) * width;
	}

	y(value) {
		const { top, height } = this.box;
		return top + height - ((value - this.low) / (this.high - this.low)) * height;
	}

	/* ---- painting ---- */

	paint = inFrame(() => this.picture && this.element.isConnected && this.paintNow());

	/* Clip drawing to the picture, until restore(). */
	clip(c) {
		const { box } = this;
		c.save();
		c.beginPath();
		c.rect(box.left, box.top, box.width, box.height);
		c.clip();
	}

	paintNow() {
		this.measure();
		this.ask();		/* the legend may have changed the picture's size */
		const { picture, box, app } = this, { context: c, width, height } = fit(this.base);
		if (picture.view.mode !== app.state.mode)
			return;
		c.clearRect(0, 0, width, height);
		c.fillStyle = variable("--canvas");
		c.fillRect(box.left, box.top, box.width, box.height);
		this.clip(c);
		const { view } = picture;
		const left = this.x(view.from), right = this.x(view.to), top = this.y(view.high), bottom = this.y(view.low);
		c.imageSmoothingEnabled = false;
		c.drawImage(picture.bitmap, left, top, right - left, bottom - top);
		c.restore();
		this.paintAxes(c, width, height);
		this.paintOver();
	}

	paintAxes(c, width, height) {
		const { box, app } = this, { from, to } = app.window;
		c.font = "12px system-ui, sans-serif";
		c.textBaseline = "middle";
		c.textAlign = "right";
		for (const { at, text } of byteTicks(this.low, this.high, box.height / 64)) {
			const y = Math.round(this.y(at)) + 0.5;
			c.strokeStyle = variable("--hover");
			c.lineWidth = 1;
			c.beginPath();
			c.moveTo(box.left, y);
			c.lineTo(box.left + box.width, y);
			c.stroke();
			c.fillStyle = variable("--soft");
			c.fillText(text, box.left - 8, y);
		}
		c.textAlign = "center";
		c.textBaseline = "top";
		c.fillStyle = variable("--soft");
		for (const { at, text } of app.source.events ? alongTicks(app.state.mode, from, to, box.width / 120) : []) {
			const x = Math.round(this.x(at)) + 0.5, half = c.measureText(text).width / 2;
			c.strokeStyle = variable("--line-strong");
			c.beginPath();
			c.moveTo(x, box.top + box.height);
			c.lineTo(x, box.top + box.height + 5);
			c.stroke();
			c.fillText(text, Math.max(box.left + half, Math.min(width - half - 4, x)), box.top + box.height + 9);
		}
		c.strokeStyle = variable("--line-strong");
		c.strokeRect(box.left - 0.5, box.top - 0.5, box.width + 1, box.height + 1);
	}

	/* Draw over the stripes: lines, marks, the allocations that are pinned or under the pointer. */
	paintOver() {
		const { context: c, width, height } = fit(this.top);
		c.clearRect(0, 0, width, height);
		this.clip(c);
		this.paintLines(c);
		this.paintPinned(c);
		this.pointer.paint(c);
		this.paintGhost(c);
		this.paintCursor(c);
		c.restore();
		this.paintRanges(c);
		this.paintPoints(c);
	}

	/* Return the lines over the stripes, by the class of their keys: [bytes in a column of the picture, colour,
	 * dash]. */
	lines() {
		const { reserved, all } = this.picture.lines, limit = this.limit();
		return {
			given: [(x) => reserved[x], "--reserved", []],
			idle: [(x) => Math.max(0, reserved[x] - all[x]), "--reserved", [2, 2]],
			...this.app.state.terms.length && { all: [(x) => all[x], "--faint", [4, 3]] },
			...limit && { limit: [() => limit, "--limit", []] },
		};
	}

	paintLines(c) {
		const { view } = this.picture, count = view.width;
		for (const [bytesAt, color, dash] of Object.values(this.lines())) {
			c.strokeStyle = variable(color);
			c.setLineDash(dash);
			/* Dashed lines go up and down in every column; wider than a pixel they take longer than a
			 * frame. */
			c.lineWidth = dash.length ? 1 / (window.devicePixelRatio || 1) : 1.5;
			c.beginPath();
			for (let x = 0; x < count; x++)
				c.lineTo(this.x(view.from + ((view.to - view.from) * x) / count), this.y(bytesAt(x)));
			c.stroke();
		}
		c.setLineDash([]);
	}

	limit() {
		const { app } = this;
		return app.source.device === null ? 0 :
			app.doc.devices.find((one) => one.device === app.source.device)?.total_bytes ?? 0;
	}

	paintPinned(c) {
		const { edges, view } = this.picture;
		if (!edges || view.mark !== this.app.state.life)
			return;
		/* Outline each run of columns with the allocation: along the lower edge, and back along the upper
		 * one. */
		const at = (x) => this.x(view.from + ((view.to - view.from) * x) / view.width);
		c.strokeStyle = variable("--mark");
		c.lineWidth = 1.5;
		c.lineJoin = "round";
		for (let x = 0; x < view.width; x++) {
			if (edges[2 * x] < 0)
				continue;
			let end = x;
			while (end < view.width && edges[2 * end] >= 0)
				end++;
			c.beginPath();
			c.moveTo(at(x), this.y(edges[2 * x]));
			for (let k = x; k < end; k++) {
				c.lineTo(at(k), this.y(edges[2 * k]));
				c.lineTo(at(k + 1), this.y(edges[2 * k]));
			}
			for (let k = end; k-- > x;) {
				c.lineTo(at(k + 1), this.y(edges[2 * k + 1]));
				c.lineTo(at(k), this.y(edges[2 * k + 1]));
			}
			c.closePath();
			c.stroke();
			x = end;
		}
	}

	paintCursor(c) {
		const { app, box } = this, at = app.place(app.moment);
		if (at === undefined || app.looksAtHeld)
			return;
		const x = Math.round(this.x(at)) + 0.5;
		c.strokeStyle = variable("--mark");
		c.lineWidth = 1;
		c.setLineDash(app.state.at === null ? [2, 4] : []);
		c.beginPath();
		c.moveTo(x, box.top);
		c.lineTo(x, box.top + box.height);
		c.stroke();
		c.setLineDash([]);
	}

	/* Draw ranges of annotations in lanes above the stripes, except those that are too small. */
	paintRanges(c) {
		const { box, app } = this;
		c.font = "11px system-ui, sans-serif";
		c.textBaseline = "middle";
		c.textAlign = "left";
		const last = new Float64Array(8).fill(-1);
		for (const { name, from, to, depth } of this.marks.ranges) {
			if (depth >= this.lanes || !app.axis)
				continue;
			const left = Math.max(box.left, this.x(app.place(from))), right = Math.min(box.left + box.width, this.x(app.place(to)));
			if (right - left < 2 || right < last[depth] + 1)
				continue;
			last[depth] = right;
			const y = MARGIN.top + depth * LANE - 4;
			c.fillStyle = css(oklch(app.dark ? 0.38 : 0.9, 0.05, hueOf(name) % 360));
			c.fillRect(left, y, Math.max(1, right - left - 1), LANE - 2);
			const text = right - left > 26 ? cut(c, name, right - left - 10) : "";
			if (text) {
				c.fillStyle = variable("--ink");
				c.fillText(text, left + 5, y + LANE / 2 - 1);
			}
		}
	}

	/* Draw the refused request on top of the reserved bytes. */
	paintGhost(c) {
		const { box, app, marks: { ghost } } = this, x = ghost && app.axis ? this.x(app.place(ghost.state)) : NaN;
		if (!(x >= box.left && x <= box.left + box.width + 1))
			return;
		const wide = Math.min(120, box.width / 4), left = Math.max(box.left + 1, x - wide), top = Math.max(box.top + 2, this.y(ghost.base + ghost.bytes));
		const tall = this.y(ghost.base) - top;
		if (tall <= 0)
			return;		/* it is above the bytes in sight, for example with a filter */
		c.fillStyle = variable("--ghost");
		c.fillRect(left, top, wide, tall);
		c.strokeStyle = c.fillStyle = variable("--bad");
		c.setLineDash([5, 4]);
		c.lineWidth = 1.5;
		c.strokeRect(left, top, wide - 1, tall);
		c.setLineDash([]);
		c.font = "600 12px system-ui, sans-serif";
		c.textBaseline = "top";
		c.textAlign = "right";
		const { reason } = app.refusal, lines = [`${bytes(ghost.bytes)} refused${reason && ":"}`, reason], room = Math.max(...lines.map((text) => c.measureText(text).width));
		c.fillStyle = variable("--canvas");
		c.fillRect(left - 10 - room, top, room + 8, 36);
		c.fillStyle = variable("--bad");
		lines.forEach((text, i) => c.fillText(text, left - 6, top + 3 + 16 * i));
		c.textAlign = "left";
	}

	/* Return the range or mark at (x, y) of the canvas as { title, text }, or null. */
	markAt(x, y) {
		const { app, box, marks } = this, depth = Math.floor((y - MARGIN.top + 4) / LANE);
		if (!app.axis || x < box.left || x > box.left + box.width)
			return null;
		const at = (state) => app.axis.place("time", state);
		if (y >= box.top + box.height) {
			const point = marks.points.find(({ state }) => Math.abs(this.x(app.place(state)) - x) <= 6);
			return point ? {
				title: { oom: "Memory ran out", snapshot: "A snapshot", mark: point.name }[point.what],
				text: `${point.what === "oom" ? `${bytes(point.bytes)} asked for, ` : ""}at ${duration(at(point.state))}`,
			} : null;
		}
		const range = depth < this.lanes ? marks.ranges.findLast((one) =>
			one.depth === depth && this.x(app.place(one.from)) <= x && x < this.x(app.place(one.to))) : null;
		return range ? { title: range.name || "(unnamed)", text: `${duration(at(range.to) - at(range.from))}, from ${duration(at(range.from))}` } : null;
	}

	/* Draw refused calls, snapshots and marks, and the peak. */
	paintPoints(c) {
		const { box, app } = this, bottom = box.top + box.height;
		if (!app.axis)
			return;
		for (const point of this.marks.points) {
			const x = this.x(app.place(point.state));
			if (x < box.left || x > box.left + box.width)
				continue;
			const oom = point.what === "oom";
			c.fillStyle = variable(oom ? "--bad" : "--soft");
			if (oom)
				c.fillRect(x - 0.75, box.top, 1.5, box.height);
			c.beginPath();
			c.moveTo(x, bottom - 1);
			c.lineTo(x - 5, bottom + 8);
			c.lineTo(x + 5, bottom + 8);
			c.fill();
		}
		const { peak, peakBytes } = app.filtered ?? app.source, { held } = app, x = held ? box.left : this.x(app.place(peak)), y = held ? box.top : this.y(peakBytes);
		if (held ? app.window.from > 0 : x < box.left || x > box.left + box.width || y < box.top - 1)
			return;
		const text = held ? `◂ peak ${bytes(peakBytes)}, ${beforeText(held)}` : bytes(peakBytes);
		c.font = "600 12px system-ui, sans-serif";
		const wide = c.measureText(text).width + 12, left = Math.max(box.left, Math.min(box.left + box.width - wide, x - wide / 2));
		const up = Math.max(box.top + 2, y - 24);
		c.fillStyle = variable("--mark");
		c.beginPath();
		c.roundRect(left, up, wide, 18, 5);
		c.fill();
		c.fillStyle = variable("--panel");
		c.textBaseline = "middle";
		c.fillText(text, left + 6, up + 9.5);
	}

	/* ---- the legend ---- */

	/* Show the key of each line that is in the picture. */
	explainLines() {
		const lines = this.picture ? this.lines() : {};
		this.keys.limit.title = bytes(this.limit());
		for (const [name, key] of Object.entries(this.keys)) {
			const [bytesAt] = lines[name] ?? [() => Infinity];
			key.hidden = !this.picture?.lines.all.some((_, x) => bytesAt(x) <= this.high);
		}
	}
}

export const lifeText = (life) => life.lifetime === null ? life.lost ? "its free was not recorded" : "never freed" :
	`lived ${duration(life.lifetime)}`;
