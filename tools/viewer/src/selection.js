/*
 * selection.js - what the user looks at: the one state that all views share. It is kept in the address bar, so that a
 * page that is sent or loaded again shows the same.
 *
 *   doc, source   numbers of the snapshot and of what is looked at in it
 *   view          the name of the view
 *   mode          "time" or "order": what lies along the axis; "": what shows more of this source
 *   from, to      the window, places on the axis (axis.js); null: all of it
 *   at            the cursor, a state; null: the peak
 *   life          the allocation that is pinned; -1: none
 *   by            what stripes are coloured by, and sums made by
 *   terms         the filter: a list of { text }, { by, is } and { frame }, all of which must hold
 *   other         the snapshot to compare with; -1: none
 *   theme         "light", "dark" or "" (as the system says)
 */
const FIRST = {
	doc: 0, source: 0, view: "timeline", mode: "", from: null, to: null, at: null, life: -1, by: "site", terms: [],
	other: -1, theme: "",
};

const parse = (hash) => {
	const found = {};
	const params = new URLSearchParams(hash.replace(/^#/, ""));
	for (const [key, first] of Object.entries(FIRST)) {
		if (key === "terms" || !params.has(key))
			continue;
		const text = params.get(key), value = Number(text);
		if (typeof first === "string")
			found[key] = /^[a-z]{0,20}$/.test(text) ? text : first;
		else if (text !== "" && Number.isFinite(value))
			found[key] = value;
	}
	const terms = params.getAll("f").map((text) => {
		const [kind, ...rest] = text.split(":"), value = rest.join(":");
		if (kind === "text" && value)
			return { text: value };
		if (kind === "frame" && value)
			return { frame: value };
		return /^[a-z]+$/.test(kind) && value ? { by: kind, is: value } : null;
	});
	found.terms = terms.filter(Boolean);
	return found;
};

const termText = (term) => term.text ? `text:${term.text}` : term.frame ? `frame:${term.frame}` : `${term.by}:${term.is}`;

const format = (state) => {
	const params = new URLSearchParams();
	for (const [key, first] of Object.entries(FIRST))
		if (key !== "terms" && state[key] !== first && state[key] !== null)
			params.set(key, typeof state[key] === "number" ? String(Number(state[key].toPrecision(15))) : state[key]);
	for (const term of state.terms)
		params.append("f", termText(term));
	return params.toString();
};

export class Selection {
	constructor() {
		this.state = { ...FIRST, ...parse(location.hash) };
		this.listeners = new Set();
		window.addEventListener("hashchange", () => {
			if (location.hash.slice(1) !== this.written)
				this.set({ ...FIRST, ...parse(location.hash) }, ["address"]);
		});
	}

	/* Change some of it; whoever listens is told which, and @why, before anything else happens. */
	set(changes, why = []) {
		const changed = new Set();
		for (const [key, value] of Object.entries(changes))
			if (!Object.is(this.state[key], value) && !(key === "terms" && !value.length && !this.state.terms.length)) {
				this.state[key] = value;
				changed.add(key);
			}
		if (!changed.size)
			return;
		why.forEach((word) => changed.add(word));
		for (const listener of [...this.listeners])
			listener(changed);
		clearTimeout(this.timer);
		this.timer = setTimeout(() => this.write(), 200);
	}

	write() {
		this.written = format(this.state);
		try {
			history.replaceState(null, "", this.written ? `#${this.written}` : location.pathname + location.search);
		} catch {
			location.hash = this.written;	/* some browsers refuse the former of a local file */
		}
	}

	listen(listener) {
		this.listeners.add(listener);
		return () => this.listeners.delete(listener);
	}
}
