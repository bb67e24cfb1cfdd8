/* flame.js - a flame graph, laid out: of very many functions the smallest are left out. */
import { flameOf, weigher } from "../model/flame.js";
import { modelOf } from "./open.js";

const MOST = 60000;		/* nodes that are sent */

/*
 * @return by node, parents first: label, depth, where it begins and how much it weighs; the largest first among those of
 * one parent; left: how many nodes are left out. @window: a part of the axis.
 */
export const flame = ({ weigh, at, window, ...of }) => {
	const model = modelOf(of);
	const { total, nodes } = flameOf(model, weigher(model, weigh, { at: model.state(at), ...model.states(window) }));
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
		total, weigh, left: nodes.length - order.length, labels: order.map((n) => nodes[n].label), begin: Float64Array.from(order, (n) => begin.get(n)),
		weight: Float64Array.from(order, (n) => nodes[n].weight), self: Float64Array.from(order, (n) => nodes[n].self),
		depth: Uint16Array.from(order, (n) => depth.get(n)),
		parent: Int32Array.from(order, (n) => nodes[n].parent < 0 ? -1 : place.get(nodes[n].parent)),
		where: order.map((n) => {
			const { frame } = nodes[n], { stacks } = model;
			return frame < 0 ? "" : stacks.line(frame) > 0 ? `${stacks.file(frame)}:${stacks.line(frame)}` : stacks.module(frame);
		}),
	};
};
