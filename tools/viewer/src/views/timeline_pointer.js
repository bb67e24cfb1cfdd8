/*
 * timeline_pointer.js - the mouse over the timeline: point at an allocation, pin it, move and zoom. The allocation
 * under the pointer is read from the picture itself, so it is always the one that is seen.
 */
import { NOBODY } from "../model/raster.js";
import { h, placeTip, replace, turned, variable, wheelFactor } from "../ui/dom.js";
import { bytes, duration } from "../ui/format.js";
import { lifeText } from "./timeline.js";

/* Pixels. A selection higher than this also selects bytes. */
const BOX = 24;

export class Pointer {
	constructor(timeline) {
		this.timeline = timeline;
		this.app = timeline.app;
		this.life = NOBODY;
		const { top } = timeline, on = (name, does, options) => top.addEventListener(name, (event) => does.call(this, event), options);
		on("pointerdown", this.press);
		on("pointermove", this.move);
		on("pointerup", this.release);
		on("pointerleave", this.leave);
		on("dblclick", this.whole);
		on("wheel", this.wheel, { passive: false });
		this.want = this.app.wants("life", (life) => { this.about = life; this.showTip(life); });
	}

	/* Return { life, column } at (x, y) of the canvas. */
	under(x, y) {
		const { timeline } = this, { picture } = timeline, { view } = picture;
		const left = timeline.x(view.from), right = timeline.x(view.to), top = timeline.y(view.high), bottom = timeline.y(view.low);
		const column = Math.floor(((x - left) / (right - left)) * view.width);
		const row = Math.floor(((y - top) / (bottom - top)) * view.height);
		if (column < 0 || column >= view.width || row < 0 || row >= view.height)
			return { life: NOBODY, column: -1 };
		return { life: picture.ids[row * view.width + column], column };
	}

	inside(event) {
		const { box } = this.timeline;
		return event.offsetX >= box.left && event.offsetX < box.left + box.width && event.offsetY >= box.top &&
			event.offsetY < box.top + box.height;
	}

	placeAt(x) {
		const { box } = this.timeline, { from, to } = this.app.window;
		return from + ((x - box.left) / box.width) * (to - from);
	}

	bytesAt(y) {
		const { box, low, high } = this.timeline;
		return low + ((box.top + box.height - y) / box.height) * (high - low);
	}

	press(event) {
		if (event.button || !this.timeline.picture)
			return;
		this.drag = { x: event.offsetX, y: event.offsetY, ...this.app.window, low: this.timeline.low, high: this.timeline.high, choose: event.shiftKey };
		this.timeline.top.setPointerCapture(event.pointerId);
	}

	move(event) {
		const { drag, timeline } = this;
		this.last = event;
		if (!drag) {
			this.point(event);
			return;
		}
		if (!drag.moved && Math.hypot(event.offsetX - drag.x, event.offsetY - drag.y) < 4)
			return;
		drag.moved = true;
		this.hide();
		if (drag.choose) {
			Object.assign(drag, { to_x: event.offsetX, to_y: event.offsetY });
			timeline.paint();
			return;
		}
		const by = ((event.offsetX - drag.x) / timeline.box.width) * (drag.to - drag.from);
		this.app.zoom(drag.from - by, drag.to - by);
		if (this.app.state.high !== null) {
			const up = ((event.offsetY - drag.y) / timeline.box.height) * (drag.high - drag.low);
			timeline.stretch(drag.low + up, drag.high + up);
		}
	}

	release(event) {
		const { drag, app } = this;
		this.drag = null;
		if (!drag)
			return;
		if (drag.choose && drag.moved && Math.abs(event.offsetY - drag.y) > BOX) {
			const [high, low] = [Math.min(drag.y, event.offsetY), Math.max(drag.y, event.offsetY)].map((y) => this.bytesAt(y));
			this.timeline.stretch(low, high);
		}
		if (drag.choose && drag.moved)
			app.zoom(Math.min(this.placeAt(drag.x), this.placeAt(event.offsetX)),
				Math.max(this.placeAt(drag.x), this.placeAt(event.offsetX)));
		if (drag.moved || !this.inside(event))
			return;
		const { life, column } = this.under(event.offsetX, event.offsetY);
		const state = this.timeline.picture.states[column];
		app.set({ life: life === NOBODY ? -1 : life, at: state >= 0 ? state : app.state.at });
	}

	async whole(event) {
		const { life } = this.under(event.offsetX, event.offsetY);
		if (life === NOBODY)
			return;
		const found = await this.app.ask("life", { life });
		if (found)
			this.app.side.whole(found);
	}

	wheel(event) {
		event.preventDefault();
		const { app, timeline } = this, { from, to } = app.window;
		if (event.ctrlKey || event.metaKey) {
			const { low, high } = timeline, at = Math.max(low, Math.min(high, this.bytesAt(event.offsetY)));
			const by = wheelFactor(event);
			timeline.stretch(at - (at - low) * by, at + (high - at) * by);
			return;
		}
		const along = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
		if (Math.abs(along) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
			const by = (turned(event, along) / this.timeline.box.width) * (to - from);
			app.zoom(from + by, to + by);
			return;
		}
		const factor = wheelFactor(event);
		const here = Math.max(from, Math.min(to, this.placeAt(event.offsetX)));
		app.zoom(here - (here - from) * factor, here + (to - here) * factor);
	}

	/* ---- pointing ---- */

	point(event) {
		if (!this.timeline.picture || !this.inside(event)) {
			this.hide();
			this.showMark(event.offsetX, event.offsetY);
			return;
		}
		const { life, column } = this.under(event.offsetX, event.offsetY);
		this.column = column;
		this.x = event.offsetX;
		this.y = event.offsetY;
		if (life === NOBODY) {
			this.hide();
			return;
		}
		if (life !== this.life) {
			this.life = life;
			this.want({ ...this.app.of, life });
			this.showTip(this.about);
			this.timeline.paint();
		}
		this.placeTip();
	}

	/* A new picture has arrived: look again what is under the pointer. */
	refresh() {
		if (this.last && this.life !== NOBODY && !this.drag)
			this.point(this.last);
	}

	leave() {
		this.hide();
		this.last = null;
	}

	hide() {
		this.timeline.tip.hidden = true;
		if (this.life !== NOBODY) {
			this.life = NOBODY;
			this.timeline.paint();
		}
	}

	showTip(life) {
		const { tip } = this.timeline;
		if (!life || life.life !== this.life)
			return;
		replace(tip, h("b", {}, bytes(life.size)), " ",
			h("span", { class: "soft" }, `${lifeText(life)}${life.bornTime === null ? "" : `, from ${duration(life.bornTime)}`}`),
			h("div", { class: "site" }, life.site),
			h("div", { class: "soft" }, [life.name, life.kind, life.stream, life.phase !== "(no phase)" ? life.phase : ""].filter(Boolean).join(" · ")));
		tip.hidden = false;
		this.placeTip();
	}

	/* Describe the range above the stripes, or the mark below them, at (x, y). */
	showMark(x, y) {
		const { timeline } = this, mark = timeline.picture ? timeline.markAt(x, y) : null;
		if (!mark)
			return;
		Object.assign(this, { x, y });
		replace(timeline.tip, h("b", {}, mark.title), h("div", { class: "soft" }, mark.text));
		timeline.tip.hidden = false;
		this.placeTip();
	}

	placeTip() {
		const { tip, canvas } = this.timeline;
		if (!tip.hidden)
			placeTip(tip, canvas, this.x, this.y);
	}

	/* Draw the allocation under the pointer and the present selection over the stripes. */
	paint(c) {
		const { timeline, drag } = this, { picture } = timeline, { view, ids } = picture;
		if (drag?.to_x !== undefined) {
			c.fillStyle = variable("--hover");
			const { top, height } = timeline.box, tall = Math.abs(drag.to_y - drag.y), box = tall > BOX;
			c.fillRect(Math.min(drag.x, drag.to_x), box ? Math.min(drag.y, drag.to_y) : top, Math.abs(drag.to_x - drag.x), box ? tall : height);
		}
		if (this.life === NOBODY || !(this.column >= 0))
			return;
		const left = timeline.x(view.from), wide = (timeline.x(view.to) - left) / view.width;
		const top = timeline.y(view.high), tall = (timeline.y(view.low) - top) / view.height;
		c.fillStyle = variable("--mark");
		c.globalAlpha = 0.28;
		const column = (x) => {
			let first = -1, last = -1;
			for (let row = 0, at = x; row < view.height; row++, at += view.width)
				if (ids[at] === this.life) {
					first = first < 0 ? row : first;
					last = row;
				} else if (first >= 0) {
					break;
				}
			if (first >= 0)
				c.fillRect(left + x * wide, top + first * tall, wide, (last - first + 1) * tall);
			return first >= 0;
		};
		/* A stripe thinner than a pixel comes and goes, so up to 7 columns without its pixels are passed
		 * over. */
		for (let x = this.column, missed = 0; x < view.width && missed < 8; x++)
			missed = column(x) ? 0 : missed + 1;
		for (let x = this.column - 1, missed = 0; x >= 0 && missed < 8; x--)
			missed = column(x) ? 0 : missed + 1;
		c.globalAlpha = 1;
	}
}
