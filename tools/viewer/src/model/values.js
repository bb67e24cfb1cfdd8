/* values.js - values from a file, as the type that they should have: nothing that is read is trusted to be of it. */
export const number = (value) => typeof value === "number" && Number.isFinite(value) ? Math.trunc(value) : value === true ? 1 : 0;
export const text = (value) => typeof value === "string" ? value : "";
export const list = (value) => Array.isArray(value) ? value : [];
/* A number of a row, or 0: none. */
export const index = (value) => Number.isInteger(value) && value > 0 && value < 2 ** 31 ? value : 0;
export const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/* Give @object a member @name that is made when it is first asked for: most of a large snapshot is not, at first. */
export const lazy = (object, name, make) => {
	let made;
	Object.defineProperty(object, name, {
		get: () => made ??= make(), set: (value) => { made = value; }, enumerable: true, configurable: true,
	});
};
