/*
 * values.js - convert values of a file, which may have any type, to the type that they should have; small helpers.
 */
export const number = (value) => typeof value === "number" && Number.isFinite(value) ? Math.trunc(value) : value === true ? 1 : 0;
export const text = (value) => typeof value === "string" ? value : "";
export const list = (value) => Array.isArray(value) ? value : [];
/* An index, or 0 for none. */
export const index = (value) => Number.isInteger(value) && value > 0 && value < 2 ** 31 ? value : 0;
export const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/* Return how many of @count sorted things pass @before; those that pass come first. */
export const countBefore = (count, before) => {
	let low = 0, high = count;
	while (low < high) {
		const middle = (low + high) >>> 1;
		if (before(middle))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
};

/* Give @object a member @name that is made when it is first read, because most of a large snapshot is not read at
 * first. */
export const lazy = (object, name, make) => {
	let made;
	Object.defineProperty(object, name, {
		get: () => made ??= make(), set: (value) => { made = value; }, enumerable: true, configurable: true,
	});
};

/*
 * Replace control characters, line breaks and marks of writing direction by '?', one for each byte, as the command's
 * gm_show_clean() does. So a name can neither hide nor reverse the text beside it.
 */
const ODD = /[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/;
const EVERY = new RegExp(ODD, "g");
export const clean = (text) => ODD.test(text) ?
	text.replace(EVERY, (one) => "?".repeat(one < "\x80" ? 1 : one < "\u0800" ? 2 : 3)) : text;

/* Clean all texts in the object @value, in place. An object of a pickle may contain itself. */
export const cleanAll = (value) => {
	const seen = new Set([value]);
	for (const object of seen)
		for (const [key, one] of Object.entries(object)) {
			const called = clean(key), made = typeof one === "string" ? clean(one) : one;
			if (called !== key)
				delete object[key];
			if (called !== key || made !== one)
				object[called] = made;
			if (one !== null && typeof one === "object")
				seen.add(one);
		}
};
