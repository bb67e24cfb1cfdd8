/*
 * vlist.js - a list of any number of rows, of which only those in sight exist as elements. Browsers limit an element to
 * some ten million pixels: in a longer list the scroll bar is proportional to the rows, and the wheel moves by rows.
 *
 * An empty list shows the text of this.empty. @row(row, i) makes the element of a row. @ask(first, count) is called if
 * rows in sight are missing; take() adds rows.
 */
import { h, replace } from "./dom.js";

/* MOST: pixels of the element; KEPT: rows; BESIDE: rows to ask for before and behind those in sight */
const MOST = 8e6, KEPT = 4000, BESIDE = 40;

export class VirtualList {
	constructor({ rowHeight, row, ask, label }) {
		this.empty = h("div", { class: "empty" });
		this.rowHeight = rowHeight;
		this.row = row;
		this.ask = ask;
		this.rows = new Map();
		this.count = 0;
		this.first = 0;
		this.layer = h("div", { class: "vlist-layer" });
		this.spacer = h("div", { class: "vlist-spacer" }, this.layer);
		this.element = h("div", { class: "vlist", tabindex: "0", role: "listbox", "aria-label": label }, this.spacer);
		this.element.addEventListener("scroll", () => this.scrolled());
		this.element.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
	}

	get inSight() { return Math.max(1, Math.ceil(this.element.clientHeight / this.rowHeight)); }
	get isLong() { return this.count * this.rowHeight > MOST; }
	get whole() { return Math.min(MOST, this.count * this.rowHeight); }

	/* Take rows from row @first on, of a list of @count. */
	take(first, rows, count) {
		if (this.rows.size > KEPT)
			this.rows.clear();
		rows.forEach((row, i) => this.rows.set(first + i, row));
		if (this.count === count)
			this.paint();
		else
			this.setCount(count);
	}

	setCount(count) {
		this.count = count;
		this.spacer.style.height = `${this.whole}px`;
		this.first = Math.max(0, Math.min(this.first, count - 1));
		this.paint();
	}

	scrolled() {
		const { element } = this;
		if (this.moving)
			this.moving = false;
		else if (this.isLong)
			this.first = (element.scrollTop / Math.max(1, this.whole - element.clientHeight)) * Math.max(0, this.count - this.inSight + 1);
		else
			this.first = element.scrollTop / this.rowHeight;
		this.paint();
	}

	wheel(event) {
		if (!this.isLong)
			return;
		event.preventDefault();
		this.moveTo(this.first + (event.deltaMode === 1 ? event.deltaY : event.deltaY / this.rowHeight));
	}

	/* Scroll so that row @first is the uppermost. */
	moveTo(first) {
		const { element } = this;
		this.first = Math.max(0, Math.min(Math.max(0, this.count - this.inSight + 1), first));
		const top = this.isLong ? (this.first / Math.max(1, this.count - this.inSight + 1)) * (this.whole - element.clientHeight) :
			this.first * this.rowHeight;
		if (Math.abs(element.scrollTop - top) >= 1) {
			this.moving = true;
			element.scrollTop = top;
		}
		this.paint();
	}

	/* Scroll row @i into sight, unless it is. */
	reveal(i) {
		if (i < this.first || i >= this.first + this.inSight - 1.5)
			this.moveTo(i - this.inSight / 2);
	}

	paint() {
		const first = Math.floor(this.first), count = Math.min(this.inSight + 1, this.count - first);
		const rows = [];
		let missing = false;
		for (let i = first; i < first + count; i++) {
			missing ||= !this.rows.has(i);
			rows.push(this.rows.has(i) ? this.row(this.rows.get(i), i) : h("div", { class: "vlist-row" }));
		}
		if (missing)
			this.ask?.(Math.max(0, first - BESIDE), count + 2 * BESIDE);
		replace(this.layer, rows.length ? rows : this.empty);
		this.layer.style.transform = `translateY(${-Math.round((this.first - first) * this.rowHeight)}px)`;
	}
}
