/*
 * flame.js - stacks as a tree of functions with weights, at a moment or over a window. Frames with the same label are
 * one, as in `gpumem flame`.
 */
import { shorten } from "./stacks.js";

const LONG = 16;		/* a stack of fewer frames was not cut */
export const WEIGHTS = ["live", "peak", "end", "bytes", "count", "churn"];

/*
 * Return a function of a life to its weight: its bytes if it is live in state @at, at the peak, or at the end and not
 * freed; its bytes, or 1, if it was allocated between the states @from and @to; its bytes if it was also freed again
 * ("churn").
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

/*
 * Return the functions of each stack with a weight, outermost first, as [label, frame, ...], by number of the stack.
 * @fold: leave out the interpreter's own frames (unless there are no others), and show a run of the allocator's or the
 * dispatcher's frames as one. A stack that the limit on depth cut gets the outer frames of another stack that has its
 * outermost two. flame_fold.c has the same rules.
 */
const pathsOf = (stacks, weights, fold) => {
	const paths = new Map(), above = new Map(), roots = new Set();
	let longest = 0;
	const add = (id) => {
		const path = [], frames = stacks.list(id), all = frames.every((f) => stacks.foldOf(f) === "interpreter");
		for (let i = frames.length; i-- > 0;) {
			const f = frames[i], folded = fold && !all ? stacks.foldOf(f) : "", label = folded ? `(${folded})` : fold ? shorten(stacks.flameLabel(f)) : stacks.flameLabel(f);
			if (folded !== "interpreter" && !(folded && path.at(-2) === label))
				path.push(label, f);
		}
		paths.set(id, { path, length: frames.length });
		longest = Math.max(longest, frames.length);
	};
	for (let id = 1; id < stacks.count; id++)
		if (weights[id])
			add(id);
	const isCut = ({ path, length }) => length === longest && longest >= LONG && !roots.has(path[0]);
	for (const { path, length } of paths.values())
		if (length < longest || longest < LONG)
			roots.add(path[0]);
	for (const one of paths.values())
		for (let k = 0; fold && !isCut(one) && k + 2 < one.path.length; k += 2) {
			const key = `${one.path[k]}\n${one.path[k + 2]}`;
			if (!(above.get(key)?.length <= k))
				above.set(key, one.path.slice(0, k));
		}
	for (const one of paths.values())
		if (fold && isCut(one))
			one.path.unshift(...above.get(`${one.path[0]}\n${one.path[2]}`) ?? []);
	return paths;
};

/*
 * Return { total, nodes }; a node is { label, parent, weight, self, frame }. Parents come before children; 0 is the
 * root. @fold: see pathsOf(). @invert: allocating functions are next to the root, their callers behind them.
 */
export const flameOf = (model, weighs, { fold = false, invert = false } = {}) => {
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
	const nodes = [{ label: "", parent: -1, weight: total, self: 0, frame: -1 }], children = new Map(), labels = new Map();
	const below = (up, label, frame) => {
		if (!labels.has(label))
			labels.set(label, labels.size);
		const key = up * 2 ** 26 + labels.get(label);
		if (!children.has(key)) {
			children.set(key, nodes.length);
			nodes.push({ label, parent: up, weight: 0, self: 0, frame });
		}
		return children.get(key);
	};
	for (const [id, { path }] of pathsOf(stacks, byStack, fold)) {
		let at = 0;
		for (let i = 0; i < path.length; i += 2) {
			const k = invert ? path.length - 2 - i : i;
			at = below(at, path[k], path[k + 1]);
			nodes[at].weight += byStack[id];
		}
		if (at)
			nodes[at].self += byStack[id];
		else
			byStack[0] += byStack[id];
	}
	if (byStack[0] > 0) {
		const at = below(0, "(no stack)", -1);
		nodes[at].weight = nodes[at].self = nodes[0].self = byStack[0];
	}
	return { total, nodes };
};
