/* search.js - what the user types to search: text, whatever its case, or /a regular expression/. */
export const testOf = (text) => {
	const regex = /^\/(.*)\/(i?)$/.exec(text);
	if (regex) {
		const made = new RegExp(regex[1], regex[2]);
		return (value) => made.test(value);
	}
	const low = text.toLowerCase();
	return (value) => value.toLowerCase().includes(low);
};
