/*
 * strip.js - the whole axis, small, above every view: live bytes, the window, the cursor, the peak. Dragging chooses a
 * window or moves it; a click moves the cursor.
 */
import { fit, h, inFrame, variable } from "./dom.js";
import { beforeText, bytes } from "./format.js";

const LEFT = 16, EDGE = 6;

export class Strip {
	constructor(app) {
		this.app = app;
		this.canvas = h("canvas", { "aria-label": "all of the history; drag to choose a part of it" });
		this.element = h("section", { class: "strip" }, this.canvas);
		this.want = app.wants("strip", (answer) => { this.data = answer; this.paint(); });
		this.element.addEventListener("pointerdown", (event) => this.press(event));
		this.element.addEventListener("pointermove", (event) => this.move(event));
		this.element.addEventListener("pointerup", (event) => this.release(event));
		this.element.addEventListener("dblclick", () => app.set({ from: null, to: null }));
	}

	update() {
		const { app } = this, width = Math.floor(this.element.clientWidth) - 2 * LEFT;
		if (width > 10)
			this.want({ ...app.of, mode: app.state.mode, from: 0, to: app.span, width });
		this.paint();
	}

	place(x) { return LEFT + (x / this.app.span) * this.inner; }
	at(px) { return Math.max(0, Math.min(this.app.span, ((px - LEFT) / this.inner) * this.app.span)); }

	paint = inFrame(() => this.paintNow());

	paintNow() {
		const { app, data } = this;
		if (!data || data.mode !== app.state.mode)
			return;
		const { context: c, width, height } = fit(this.canvas);
		this.inner = width - 2 * LEFT;
		c.clearRect(0, 0, width, height);
		const bottom = height - 6, top = 15, { from, to } = app.window, whole = app.state.from === null;
		let most = 1;
		for (const value of data.all)
			most = Math.max(most, value);
		const y = (value) => bottom - (value / most) * (bottom - top);
		this.prepare(width, height, bottom, y);
		c.drawImage(this.outside, 0, 0, width, height);
		c.save();
		c.beginPath();
		c.rect(this.place(from), 0, this.place(to) - this.place(from), height);
		c.clip();
		c.drawImage(this.inside, 0, 0, width, height);
		c.restore();
		if (!whole) {
			c.fillStyle = variable("--hover");
			c.fillRect(LEFT, 0, this.place(from) - LEFT, height);
			c.fillRect(this.place(to), 0, LEFT + this.inner - this.place(to), height);
			c.fillStyle = variable("--accent");
			c.fillRect(this.place(from) - 1, 2, 2, height - 4);
			c.fillRect(this.place(to) - 1, 2, 2, height - 4);
		}
		this.paintMoment(c, height, y);
	}

	/* Draw the curve once as it is inside and once as it is outside a window, for all positions of the window. */
	prepare(width, height, bottom, y) {
		const { data, app } = this, ratio = window.devicePixelRatio || 1, filtered = app.state.terms.length > 0, key = `${width} ${height} ${ratio} ${app.dark} ${filtered}`;
		if (this.prepared === data && this.preparedKey === key)
			return;
		this.prepared = data;
		this.preparedKey = key;
		const draw = (layers) => {
			const canvas = h("canvas", { width: Math.round(width * ratio), height: Math.round(height * ratio) }), c = canvas.getContext("2d");
			c.scale(ratio, ratio);
			for (const [values, color] of layers) {
				c.fillStyle = variable(color);
				c.beginPath();
				c.moveTo(LEFT, bottom);
				for (let x = 0; x < data.width; x++) {
					const px = LEFT + (x / data.width) * this.inner;
					c.lineTo(px, y(values[x]));
					c.lineTo(px + this.inner / data.width, y(values[x]));
				}
				c.lineTo(LEFT + this.inner, bottom);
				c.fill();
			}
			return canvas;
		};
		const all = filtered ? [[data.all, "--line"]] : [];
		this.outside = draw([...all, [data.most, "--line-strong"]]);
		this.inside = draw([...all, [data.most, "--accent"]]);
	}

	/* Draw the cursor, and the peak with its bytes on the side that has room. */
	paintMoment(c, height, y) {
		const { app } = this;
		const peak = app.filtered ?? app.source;
		const px = app.place(peak.peak);
		if (px === undefined)
			return;
		if (app.state.at !== null) {
			c.fillStyle = variable("--mark");
			c.fillRect(Math.round(this.place(app.place(app.state.at))), 0, 1, height);
		}
		const { held } = app, at = held ? LEFT - 8 : this.place(px), text = held ? `◂ peak ${bytes(peak.peakBytes)}, ${beforeText(held)}` : `peak ${bytes(peak.peakBytes)}`;
		c.fillStyle = variable("--mark");
		if (!held) {
			c.beginPath();
			c.arc(at, y(peak.peakBytes), 3, 0, 7);
			c.fill();
		}
		c.font = "11px system-ui, sans-serif";
		const wide = c.measureText(text).width;
		const left = at + 8 + wide > LEFT + this.inner;
		c.textBaseline = "top";
		c.lineWidth = 3;
		c.strokeStyle = variable("--panel");
		c.strokeText(text, left ? at - 8 - wide : at + 8, 2);
		c.fillText(text, left ? at - 8 - wide : at + 8, 2);
	}

	/* ---- the pointer ---- */

	press(event) {
		const x = event.offsetX, { from, to } = this.app.window, whole = this.app.state.from === null;
		const left = this.place(from), right = this.place(to);
		let what = "new";
		if (!whole && Math.abs(x - left) <= EDGE)
			what = "from";
		else if (!whole && Math.abs(x - right) <= EDGE)
			what = "to";
		else if (!whole && x > left && x < right)
			what = "move";
		this.drag = { what, x, from, to };
		this.element.setPointerCapture(event.pointerId);
	}

	move(event) {
		const { drag, app } = this;
		if (!drag) {
			this.hint(event.offsetX);
			return;
		}
		const here = this.at(event.offsetX), by = here - this.at(drag.x);
		if (Math.abs(event.offsetX - drag.x) < 3 && !drag.moved)
			return;
		drag.moved = true;
		if (drag.what === "move")
			app.zoom(drag.from + by, drag.to + by);
		else if (drag.what === "from")
			app.zoom(Math.min(here, drag.to), Math.max(here, drag.to));
		else if (drag.what === "to")
			app.zoom(Math.min(drag.from, here), Math.max(drag.from, here));
		else
			app.zoom(Math.min(this.at(drag.x), here), Math.max(this.at(drag.x), here));
	}

	release(event) {
		const { drag, app } = this;
		this.drag = null;
		if (drag && !drag.moved)
			app.set({ at: app.stateAt(this.at(event.offsetX)) ?? null, life: -1 });
	}

	hint(x) {
		const whole = this.app.state.from === null, { from, to } = this.app.window;
		const near = (place) => Math.abs(x - this.place(place)) <= EDGE;
		this.element.style.cursor = whole ? "crosshair" : near(from) || near(to) ? "ew-resize" :
			x > this.place(from) && x < this.place(to) ? "grab" : "crosshair";
	}
}
