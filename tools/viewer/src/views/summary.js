/*
 * summary.js - the snapshot as a whole: why memory ran out, the process, each device with its holders and its
 * statistics, settings, modules. Nothing here depends on the cursor.
 */
import { crashCard } from "../ui/crash.js";
import { h, replace } from "../ui/dom.js";
import { bytes, clock, count, duration, percent, plural } from "../ui/format.js";

const MOST = 12;
/* The rows of torch.cuda.memory_summary(): title, statistic, format. */
const METRICS = [["Allocated memory", "allocated_bytes", bytes], ["Active memory", "active_bytes", bytes], ["Requested memory", "requested_bytes", bytes],
	["Reserved memory", "reserved_bytes", bytes], ["Non-releasable memory", "inactive_split_bytes", bytes], ["Allocations", "allocation", count],
	["Active allocations", "active", count], ["Reserved segments", "segment", count], ["Non-releasable allocations", "inactive_split", count]];
const POOLS = [["all", "all"], ["large_pool", "large"], ["small_pool", "small"]];
const COUNTERS = [["num_alloc_retries", "retries after memory was given back"], ["num_ooms", "calls that found no memory"],
	["num_device_alloc", "segments allocated"], ["num_device_free", "segments freed"], ["num_sync_all_streams", "waits for all streams"]];

const number = (value) => typeof value === "number";
const word = (value) => value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);

const card = (title, ...content) => h("section", { class: "card" }, h("h2", {}, title), content);
const facts = (list) => h("dl", { class: "facts" }, list.filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false)
	.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
const table = (heads, rows, label) => h("div", { class: "scroll" }, h("table", { "aria-label": label },
	h("thead", {}, h("tr", {}, heads.map((head, i) => h("th", { class: i ? "much" : "" }, head)))),
	h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => h(i ? "td" : "th", { class: i ? "much" : "" }, cell)))))));

export class Summary {
	constructor(app) {
		this.app = app;
		this.element = h("div", { class: "stage sheet" });
	}

	update() {
		const { doc } = this.app;
		if (this.shown === doc)
			return;
		this.shown = doc;
		replace(this.element, h("div", { class: "cards" }, doc.crash && crashCard(doc.crash), this.failure(doc), doc.devices.filter((one) => one.present !== false)
			.map((device) => this.device(doc, device)), this.pools(doc), this.host(doc), this.process(doc), this.settings(doc), this.history(doc), this.modules(doc)));
		this.app.shown();
	}

	/* ---- why memory ran out ---- */

	failure(doc) {
		const { explanation, failure } = doc, failures = doc.failures.filter((one) => number(one.requested_bytes));
		if (!explanation && (!failure || doc.crash) && !failures.length)
			return null;
		const rows = failures.slice(-MOST).reverse().map((one) => [clock(one.time_us), one.device === null ? "host" : `GPU ${word(one.device)}`, bytes(one.requested_bytes),
			number(one.free_bytes) ? bytes(one.free_bytes) : "–", number(one.live_bytes) ? bytes(one.live_bytes) : "–", word(one.result_name), word(one.refused_by ?? "driver")]);
		return h("section", { class: "card bad" }, h("h2", {}, "Memory ran out"),
			explanation ? [h("p", { class: "because" }, explanation.why), explanation.change && h("p", {}, explanation.change)] : null,
			!explanation ? h("p", {}, "Why, and what to change: ", h("code", {}, "gpumem summary FILE")) : null,
			rows.length ? table(["when", "device", "asked for", "free", "live", "result", "refused by"], rows, "failures") : null,
			failures.length > MOST ? h("p", { class: "note" }, `and ${count(failures.length - MOST)} before these`) : null);
	}

	process(doc) {
		const { process, recovered } = doc, made = clock(doc.timeUs), began = process.start_time_us;
		return card("Process", facts([
			["snapshot", doc.name], ["command", word(process.command_line || process.command)], ["directory", word(process.directory)],
			["host", word(process.host)], ["pid", word(process.pid)], ["rank", word(process.rank)], ["life", word(process.life)],
			["made at", made], ["because of", doc.reason], ["recorded for", number(began) && began > 0 && doc.timeUs > began && duration(doc.timeUs - began)],
			["driver", number(process.driver_version) && `${Math.floor(process.driver_version / 1000)}.${Math.floor((process.driver_version % 1000) / 10)}`],
			["libgpumem", word(process.gpumem_version)],
			["consistent", doc.consistent ? "" : "no: the process did not answer, and the figures may not add up"],
			["recovered", recovered && (recovered.after_death || recovered.undone > 0 || recovered.damaged > 0) && `${recovered.after_death ? "after its death" : "while it lived"}, ${count(recovered.undone ?? 0)} changes undone, ${count(recovered.damaged ?? 0)} records damaged`],
			["note", doc.note],
		]));
	}

	/* ---- devices ---- */

	device(doc, device) {
		const stats = device.memory_stats ?? {}, total = device.total_bytes;
		const reserved = stats["reserved_bytes.all.current"] ?? 0, live = stats["allocated_bytes.all.current"] ?? 0;
		const waiting = Math.max(0, (stats["active_bytes.all.current"] ?? live) - live), idle = Math.max(0, reserved - live - waiting);
		const others = Math.max(0, device.unattributed_bytes ?? 0);
		const parts = [["live", live], ["waiting", waiting], ["idle", idle], ["others", others]];
		const bar = number(total) && total > 0 ? [h("div", { class: "parts", role: "img", "aria-label": "the device's memory" }, parts.map(([name, value]) =>
			h("span", { class: name, title: `${name}: ${bytes(value)}`, vars: { "--share": `${Math.min(100, (100 * value) / total)}%` } }))),
		h("div", { class: "note" }, h("span", { class: "dot live" }), ` live ${bytes(live)} `,
			waiting ? [h("span", { class: "dot waiting" }), ` waiting for the GPU ${bytes(waiting)} `] : null,
			h("span", { class: "dot idle" }), ` reserved and idle ${bytes(idle)} `,
			h("span", { class: "dot others" }), ` not recorded here ${device.unattributed_bytes === null ? "unknown" : bytes(device.unattributed_bytes)}, of ${bytes(total)}`)] : null;
		return card(`GPU ${word(device.device)}${device.name ? `: ${word(device.name)}` : ""}`, bar, this.statistics(stats, `statistics of GPU ${word(device.device)}`),
			h("div", { class: "pair" }, this.holders("By module", device.by_module, (row) => word(row.path) || "(unknown)"), this.holders("By kind", device.by_kind, (row) => word(row.kind))));
	}

	/* Make the cards of the pools. Their memory is also part of the devices' live memory. */
	pools(doc) {
		const rows = doc.sources.filter(({ level }) => level === "pool").map(({ name, pool }) => {
			const stats = pool?.memory_stats ?? {}, of = (key) => stats[key] ?? 0;
			const live = of("allocated_bytes.all.current"), reserved = of("reserved_bytes.all.current");
			return [name, bytes(live), bytes(of("allocated_bytes.all.peak")), bytes(reserved), bytes(Math.max(0, reserved - live)), count(of("allocation.all.allocated"))];
		});
		return rows.length ? card("Pools", table(["", "handed out", "peak", "reserved", "idle", "allocations"], rows, "pools")) : null;
	}

	host(doc) {
		const stats = doc.host?.memory_stats;
		return stats && stats["allocated_bytes.all.peak"] !== 0 ? card("Host, pinned", this.statistics(stats, "statistics of the host"),
			h("div", { class: "pair" }, this.holders("By module", doc.host.by_module, (row) => word(row.path) || "(unknown)"))) : null;
	}

	statistics(stats, label) {
		const cell = (key, what, say) => number(stats[`${key}.${what}`]) ? say(stats[`${key}.${what}`]) : "–";
		const rows = METRICS.filter(([, key]) => number(stats[`${key}.all.current`])).flatMap(([title, key, say]) => POOLS.map(([pool, name], i) =>
			[i ? h("span", { class: "soft" }, `  ${name} pool`) : title, ...["current", "peak", "allocated", "freed"].map((what) => cell(`${key}.${pool}`, what, say))]));
		const counters = COUNTERS.filter(([key]) => number(stats[key])).map(([key, title]) => [title, count(stats[key])]);
		const keys = Object.keys(stats).sort();
		return rows.length ? [table(["", "now", "peak", "total allocated", "total freed"], rows, label), facts(counters),
			h("details", {}, h("summary", {}, `All ${count(keys.length)} of memory_stats()`), table(["key", "value"], keys.map((key) => [key, word(stats[key])]), `all ${label}`))] : null;
	}

	holders(title, list, name) {
		const rows = Array.isArray(list) ? list.filter((row) => row !== null && typeof row === "object") : [];
		if (!rows.length)
			return null;
		const whole = rows.reduce((sum, row) => sum + (row.allocated_bytes ?? 0), 0);
		return h("div", {}, table([title, "now", "", "peak", "allocations", "frees"], rows.slice(0, MOST).map((row) => [name(row), bytes(row.allocated_bytes ?? 0),
			percent(row.allocated_bytes ?? 0, whole), bytes(row.peak_bytes ?? 0), count(row.allocations ?? 0), count(row.frees ?? 0)]), title),
		rows.length > MOST ? h("p", { class: "note" }, `and ${count(rows.length - MOST)} more`) : null);
	}

	/* ---- settings ---- */

	settings(doc) {
		const { gpumem, ...torch } = doc.settings, options = Object.entries(gpumem ?? {});
		const set = options.filter(([, one]) => one?.source !== "default");
		if (!options.length && !Object.keys(torch).length)
			return null;
		const line = ([name, one]) => [h("code", {}, name), word(one?.value), word(one?.source)];
		return card("Settings", options.length ? [set.length ? table(["option that was set", "value", "where"], set.map(line), "options that were set") :
			h("p", { class: "note" }, "Every option of the library has its default."),
		h("details", {}, h("summary", {}, `All ${count(options.length)} options of libgpumem`), table(["option", "value", "where"], options.map(line), "options"))] : null,
		Object.keys(torch).length ? h("details", { open: !options.length }, h("summary", {}, "As PyTorch says them"),
			table(["setting", "value"], Object.entries(torch).map(([name, value]) => [h("code", {}, name), word(value)]), "settings of PyTorch")) : null);
	}

	history(doc) {
		const { history } = doc, refused = Object.entries(doc.refused ?? {}).filter(([, value]) => value > 0);
		if (!history)
			return null;
		const lost = [["dropped", "older ones, dropped"], ["filtered_small", "left out for their size"], ["filtered_actions", "left out for their action"], ["paused", "while it was paused"],
			["events_lost", "that found no room"], ["operations_lost", "calls that were not recorded"], ["annotations_lost", "annotations lost"]];
		return card("History", facts([["events", `${count(history.events ?? 0)} of at most ${count(history.max_events ?? 0)}`], ["recorded", word(history.enabled)],
			["stacks of", word(history.context)], ["languages", word(history.stacks)], ["from size", number(history.min_size) && history.min_size > 0 && bytes(history.min_size)],
			...lost.map(([key, title]) => [title, history[key] > 0 && count(history[key])]), ...refused.map(([key, value]) => [`no room for ${key}`, count(value)])]));
	}

	modules(doc) {
		const rows = doc.modules.filter((module) => module?.path);
		return rows.length ? card("Modules", h("details", {}, h("summary", {}, `${plural(rows.length, "file")} of code`),
			table(["file", "build id"], rows.map((module) => [word(module.path), h("code", {}, word(module.build_id))]), "modules"))) : null;
	}
}
