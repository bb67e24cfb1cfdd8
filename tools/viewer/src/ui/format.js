/* format.js - write numbers for people: bytes in binary units, durations, counts; names. */
import { shorten } from "../model/stacks.js";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/* Write @value in the largest unit in which it is 1 or more; @digits(number, unit) writes the number. */
const inUnits = (value, digits) => {
	let rest = Math.abs(value), unit = 0;
	while (rest >= 1024 && unit < UNITS.length - 1) {
		rest /= 1024;
		unit++;
	}
	return `${value < 0 ? "-" : ""}${digits(rest, unit)} ${UNITS[unit]}`;
};

/* Write bytes as the command does. At an eighth, C rounds to the even digit, but toFixed() rounds up. */
export const bytes = (value) => inUnits(value, (rest, unit) => unit ? (rest * 8 % 4 === 1 ? rest - 0.005 : rest).toFixed(2) : rest);

/* Write the bytes of a mark on an axis, which are round. */
export const roundBytes = (value) => inUnits(value, (rest) => Number(rest.toFixed(3)));

/* Write a number with commas between thousands. The browser's own function takes 20 ms before the first number. */
const grouped = (number) => {
	const [whole, part] = String(number).split(".");
	return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? `.${part}` : "");
};

export const count = (value) => value === null || Number.isNaN(value) ? "–" : grouped(Math.round(value));

/* "1 segment", "1,000 segments". */
export const plural = (value, what) => `${count(value)} ${what}${value === 1 ? "" : "s"}`;

/* Write a duration of @us microseconds. */
export const duration = (us) => {
	const sign = us < 0 ? "-" : "", rest = Math.abs(us);
	if (Math.round(rest) < 1000)
		return `${sign}${Math.round(rest)} µs`;
	if (rest < 999950)
		return `${sign}${trim(Math.round(rest) / 1e3)} ms`;
	if (rest < 120e6)
		return `${sign}${trim(rest / 1e6)} s`;
	const seconds = Math.round(rest / 1e6), minutes = Math.round(rest / 60e6);
	if (seconds < 7200)
		return `${sign}${Math.floor(seconds / 60)} min ${seconds % 60} s`;
	return `${sign}${Math.floor(minutes / 60)} h ${minutes % 60} min`;
};
const trim = (value) => Number(value.toPrecision(4)).toString();

/* Write the moment @us on the axis, as precisely as the @step between two marks needs; both in microseconds. */
export const moment = (us, step) => {
	if (step >= 60e6) {
		const minutes = Math.round(us / 60e6);
		return minutes >= 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${minutes} min`;
	}
	const [unit, scale] = step >= 1e5 ? ["s", 1e6] : step >= 100 ? ["ms", 1e3] : ["µs", 1];
	if (unit === "ms" && us >= 1e7 || unit === "µs" && us >= 1e6)
		return `${(us / 1e6).toFixed(Math.min(6, Math.ceil(6 - Math.log10(step))))} s`;
	return `${grouped(Number((us / scale).toFixed(3)))} ${unit}`;
};

/* Write a date and time; "" for a time outside the calendar. */
export const clock = (us) => us > 0 && us < 2.534e17 ? `${new Date(us / 1000).toISOString().replace("T", " ").slice(0, 19)} UTC` : "";

export const hex = (value) => value < 0 ?
	`0x${BigInt.asUintN(64, BigInt(value)).toString(16)}` : `0x${value.toString(16)}`;

/* Name a block as PyTorch's page does: its address, and how many earlier blocks had the address. */
export const blockName = (addr, generation) => `b${hex(addr).slice(2)}_${generation}`;

/* Name a segment by its address. */
export const segmentName = (addr) => `s${hex(addr).slice(2)}`;

/*
 * Shorten a call site, "name (module or file:line)": the name without template arguments and parameters, the file
 * without folders, so that the line is not cut off.
 */
export const brief = (site) => {
	const [, name, place, more] = /^(.+?)( \([^()]*\))?( #[0-9a-f]{8}| ← .*)?$/.exec(site) ?? ["", site];
	return shorten(name) + (place ?? "").replace(/ \(.*\/([^/]+:\d+\))$/, " ($1") + (more ?? "");
};

const NAME_MOST = 24;

/* Shorten names of files to what tells them apart: remove what all of them begin or end with. */
export const shortNames = (names) => {
	const parts = names.map((name) => name.match(/[^-._/]*[-._/]|[^-._/]+$/g) ?? [name]), least = Math.min(...parts.map(({ length }) => length)) - 1;
	const same = (at) => parts.every((list) => list.at(at) === parts[0].at(at));
	let first = 0, last = 0;
	if (names.some((name) => name !== names[0]) && names.some(({ length }) => length > NAME_MOST)) {
		while (first < least && same(first))
			first++;
		while (last < least - first && same(-1 - last))
			last++;
	}
	const short = parts.map((list) => list.slice(first, list.length - last).join("").replace(/[-._]$/, ""));
	return short.map((name, i) => {
		const before = short.slice(0, i).filter((other) => other === name).length, half = NAME_MOST / 2;
		return (name.length > NAME_MOST ? `${name.slice(0, half - 1)}…${name.slice(-half)}` : name) + (before ? ` (${before + 1})` : "");
	});
};

export const percent = (part, whole) => {
	if (!whole)
		return "";
	const share = (100 * part) / whole;
	return share > 0 && share < 0.1 ? "<0.1%" : `${share.toFixed(share < 10 ? 1 : 0)}%`;
};

/* Say when a peak was that the history does not show. */
export const beforeText = ({ before }) => before === null ? "not in the history" : `${duration(before)} before the history`;
