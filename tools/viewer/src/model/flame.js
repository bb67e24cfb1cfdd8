/*
 * flame.js - stacks as a tree of functions with what they weigh: at a moment, or over a window. Frames that are called
 * alike are one, as in `gpumem flame`.
 */
export const WEIGHTS = ["live", "peak", "end", "bytes", "count", "churn"];

/*
 * What each life weighs: bytes that are live in state @at, at the peak, or at the end and not freed; bytes or number of
 * what was allocated from state @from to state @to; of that, bytes of what was freed again.
 */
export const weigher = (model, weigh, { at, from, to }) => {
	const { lives, weight, count } = model, { born, died } = lives;
	const live = (s) => (l) => born[l] < s && s <= died[l] ? weight[l] : 0;
	const within = (l) => born[l] >= from && born[l] < to;
	const chosen = (l) => weight[l] > 0 || (!model.match || model.match[l] === 1 ? lives.weight[l] === 0 && lives.size[l] === 0 : false);
	switch (weigh) {
	case "live": return live(at);
	case "peak": return live(model.curve.peak);
	case "end": return (l) => died[l] === count + 1 && !lives.pending[l] ? weight[l] : 0;
	case "bytes": return (l) => within(l) ? weight[l] : 0;
	case "count": return (l) => within(l) && chosen(l) ? 1 : 0;
	default: return (l) => within(l) && died[l] <= count ? weight[l] : 0;
	}
};

/* @return { total, nodes }: each { label, parent, weight, self, frame } by number, parents before children; 0 is the root. */
export const flameOf = (model, weighs) => {
	const { stacks, lives } = model, byStack = new Float64Array(stacks.count + 1);
	let total = 0;
	for (let l = 0; l < lives.count; l++) {
		const weight = weighs(l);
		if (!weight)
			continue;
		const id = lives.stack[l];
		byStack[id > 0 && id < stacks.count ? id : 0] += weight;
		total += weight;
	}
	const self = new Float64Array(stacks.parent.length || 1), sum = new Float64Array(stacks.parent.length || 1);
	for (let id = 1; id < stacks.count; id++)
		self[stacks.tip[id]] += byStack[id];
	for (let n = stacks.parent.length - 1; n > 0; n--) {
		sum[n] += self[n];
		sum[stacks.parent[n]] += sum[n];
	}
	const nodes = [{ label: "", parent: -1, weight: total, self: byStack[0] + self[0], frame: -1 }];
	const merged = new Int32Array(stacks.parent.length), labels = new Map(), children = new Map();
	const labelOf = new Int32Array(stacks.frameCount).fill(-1);
	for (let n = 1; n < stacks.parent.length; n++) {
		if (!sum[n])
			continue;
		const frame = stacks.frameOf[n], up = merged[stacks.parent[n]];
		if (labelOf[frame] < 0) {
			const text = stacks.flameLabel(frame);
			if (!labels.has(text))
				labels.set(text, labels.size);
			labelOf[frame] = labels.get(text);
		}
		const key = up * 2 ** 26 + labelOf[frame];
		let at = children.get(key);
		if (at === undefined) {
			at = nodes.length;
			nodes.push({ label: stacks.flameLabel(frame), parent: up, weight: 0, self: 0, frame });
			children.set(key, at);
		}
		nodes[at].weight += sum[n];
		nodes[at].self += self[n];
		merged[n] = at;
	}
	if (byStack[0] + self[0] > 0)
		nodes.push({ label: "(no stack)", parent: 0, weight: byStack[0] + self[0], self: byStack[0] + self[0], frame: -1 });
	return { total, nodes };
};
