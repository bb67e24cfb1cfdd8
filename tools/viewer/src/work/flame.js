/* flame.js - lay out a flame graph. Of very many functions the smallest are left out. */
import { flameOf, weigher } from "../model/flame.js";
import { matching } from "./compare.js";
import { modelOf } from "./open.js";

const MOST = 60000;		/* nodes to send to the page */

/* Return the weight of each of @nodes in the tree @others; nodes are matched by their labels from the root. */
const beside = (nodes, others) => {
	const keys = new Map(), places = others.map(() => 0), found = nodes.map(() => 0);
	others.forEach(({ label, parent }, n) => {
		places[n] = n ? `${places[parent]}\n${label}` : "";
		keys.set(places[n], n);
	});
	const paths = [];
	nodes.forEach(({ label, parent }, n) => {
		paths[n] = n ? `${paths[parent]}\n${label}` : "";
		found[n] = keys.has(paths[n]) ? others[keys.get(paths[n])].weight : 0;
	});
	return found;
};

/* Return the tree for @weigh; for a peak that the history does not show, the tree of its rows. */
const weighed = (model, weigh, at, part, ways) => {
	const held = weigh === "peak" ? model.atPeak : weigh === "live" && model.isHeld(at) ? model.atPeak : null;
	return held ? flameOf(held, (l) => held.weight[l], ways) : flameOf(model, weigher(model, weigh, { at: model.state(at), ...part }), ways);
};

/*
 * Return by node, parents first, then the largest child first: label, depth, begin, weight and so on; left: how many
 * nodes are left out. @window: a part of the axis. @other: another snapshot, -1 for none; before is then each
 * function's weight in it, at that snapshot's own moment.
 */
export const flame = ({ weigh, at, window, fold, invert, other, ...of }) => {
	const model = modelOf(of), ways = { fold, invert }, number = other >= 0 ? matching(model, other) : -1;
	const { total, nodes } = weighed(model, weigh, at, model.states(window), ways);
	const second = number >= 0 ? modelOf({ ...of, doc: other, source: number }) : null;
	const against = second && weighed(second, weigh, null, { from: 0, to: second.count }, ways);
	const before = against ? beside(nodes, against.nodes) : null;
	const least = nodes.length > MOST ? nodes.map(({ weight }) => weight).sort((a, b) => b - a)[MOST] : 0;
	const children = nodes.map(() => []);
	for (let n = 1; n < nodes.length; n++)
		if (nodes[n].weight > least || nodes.length <= MOST)
			children[nodes[n].parent].push(n);
	const order = [], begin = new Map([[0, 0]]), depth = new Map([[0, 0]]);
	for (let queue = [0]; queue.length;) {
		const n = queue.pop();
		order.push(n);
		let x = begin.get(n);
		const kids = children[n].sort((a, b) => nodes[b].weight - nodes[a].weight || (nodes[a].label < nodes[b].label ? -1 : 1));
		for (const kid of kids) {
			begin.set(kid, x);
			depth.set(kid, depth.get(n) + 1);
			x += nodes[kid].weight;
		}
		queue.push(...kids.reverse());
	}
	const place = new Map(order.map((n, i) => [n, i]));
	return {
		total, weigh, before: before && Float64Array.from(order, (n) => before[n]), was: against?.total ?? null, left: nodes.length - order.length, labels: order.map((n) => nodes[n].label), names: order.map((n) => nodes[n].frame < 0 ? nodes[n].label : model.stacks.flameLabel(nodes[n].frame)), begin: Float64Array.from(order, (n) => begin.get(n)),
		weight: Float64Array.from(order, (n) => nodes[n].weight), self: Float64Array.from(order, (n) => nodes[n].self),
		depth: Uint16Array.from(order, (n) => depth.get(n)),
		parent: Int32Array.from(order, (n) => nodes[n].parent < 0 ? -1 : place.get(nodes[n].parent)),
		where: order.map((n) => {
			const { frame } = nodes[n], { stacks } = model;
			return frame < 0 ? "" : stacks.line(frame) > 0 ? `${stacks.file(frame)}:${stacks.line(frame)}` : stacks.module(frame);
		}),
	};
};
