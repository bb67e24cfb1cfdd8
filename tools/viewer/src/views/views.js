/*
 * views.js - the views, in the order of their tabs. A view is a class that is made with the App. It has `element`;
 * `update()` is called when it is shown and, while it is shown, after every change. `wide`: without the side, unless an
 * allocation is pinned; `timeless`: without side and strip.
 */
import { Allocator } from "./allocator.js";
import { Compare } from "./compare.js";
import { Flame } from "./flame.js";
import { Summary } from "./summary.js";
import { Tables } from "./tables.js";
import { Timeline } from "./timeline.js";

export const VIEWS = [
	{ name: "timeline", title: "Timeline", View: Timeline },
	{ name: "allocator", title: "Allocator", View: Allocator },
	{ name: "flame", title: "Flame graph", View: Flame },
	{ name: "tables", title: "Tables", View: Tables, wide: true },
	{ name: "summary", title: "Summary", View: Summary, wide: true, timeless: true },
	{ name: "compare", title: "Compare", View: Compare, wide: true, timeless: true },
];
