/*
 * demangle.js - demangle names of C++ functions in dropped files. The result is that of the command's demangler without
 * template arguments and parameters, which are only skipped.
 */
const OPERATORS = { cl: "()", ix: "[]", pl: "+", mi: "-", ml: "*", dv: "/", eq: "==", ne: "!=", lt: "<", gt: ">", aS: "=", ls: "<<", rs: ">>",
	pt: "->", nw: " new", dl: " delete", na: " new[]", da: " delete[]", pp: "++", mm: "--" };

class Mangled {
	constructor(text) {
		this.text = text;
		this.at = 2;
	}

	get next() { return this.text[this.at]; }

	skip(letters) {
		while (letters.includes(this.next))
			this.at++;
	}

	behind(letter) {
		const found = this.text.indexOf(letter, this.at);
		if (found < 0)
			throw new Error("cut short");
		this.at = found + 1;
	}

	source() {
		const [digits] = /^\d+/.exec(this.text.slice(this.at)), begin = this.at + digits.length, name = this.text.slice(begin, begin + Number(digits));
		this.at = begin + Number(digits);
		return name.startsWith("_GLOBAL__N") ? "(anonymous namespace)" : name;
	}

	/* Skip the text from I, J or F to its E; @each skips one part. */
	until(each) {
		this.at++;
		while (this.next !== "E")
			each.call(this);
		this.at++;
	}

	argument() {
		const made = /^(Xad)?L_Z/.exec(this.text.slice(this.at, this.at + 6));
		if (made) {
			this.at += made[0].length;
			this.nested();
			while (this.next !== "E")
				this.type();
			this.at += made[1] ? 2 : 1;
		} else if (this.next === "L")
			this.behind("E");
		else if (this.next === "J")
			this.until(this.argument);
		else
			this.type();
	}

	type() {
		this.skip("PROKVr");
		const { next } = this;
		if (next === undefined || next === "E" || next === "X")
			throw new Error("no type");
		if (next === "N")
			this.nested();
		else if (next === "F")
			this.until(this.type);
		else if (/\d/.test(next))
			this.source();
		else if (next === "S" && "tabsiod".includes(this.text[this.at + 1]))
			this.at += 2;
		else if (next === "S" || next === "T")
			this.behind("_");
		else if (next === "A" || next === "M")
			next === "A" ? (this.behind("_"), this.type()) : (this.at++, this.type(), this.type());
		else
			this.at += next === "D" ? 2 : 1;
		if (next === "D" && this.text[this.at - 1] === "p")
			this.type();
		if (next === "S" && /\d/.test(this.next ?? "") && this.text[this.at - 1] === "t")
			this.source();
		if (this.next === "I")
			this.until(this.argument);
	}

	/* Return the name that is "N parts E", or one part. */
	nested() {
		const parts = [], inside = this.next === "N";
		this.at += inside ? 1 : 0;
		this.skip("rVKRO");
		do {
			const two = this.text.slice(this.at, this.at + 2), last = parts.at(-1)?.replace(/<…>$/, "");
			if (/^\d/.test(two)) {
				parts.push(this.source());
			} else if (two[0] === "L") {
				this.at++;
			} else if (two === "St") {
				this.at += 2;
				parts.push("std");
			} else if (/^[CD]\d/.test(two)) {
				this.at += 2;
				parts.push(two[0] === "C" ? last : `~${last}`);
			} else if (two[0] === "I") {
				this.until(this.argument);
				parts.push(`${parts.pop()}<…>`);
			} else if (OPERATORS[two]) {
				this.at += 2;
				parts.push(`operator${OPERATORS[two]}`);
			} else if (two[0] === "B") {
				this.at++;
				this.source();
			} else if (two[0] === "S" && inside) {
				this.behind("_");		/* a substitution, which repeats an earlier part */
			} else {
				break;
			}
		} while (inside ? this.next !== "E" : this.next === "I" || parts.at(-1) === "std");
		if (inside && this.next !== "E")
			throw new Error("not known");
		this.at += inside ? 1 : 0;
		return parts.join("::");
	}
}

/* Return @name demangled; unchanged if it is no name of C++ or not understood. */
export const demangle = (name) => {
	if (!/^_ZZ?[NL\dS]/.test(name))
		return name;
	try {
		const mangled = new Mangled(name);
		mangled.skip("ZL");
		const made = mangled.nested();
		/* _ZZ: a name within the function that is demangled. */
		return !made || /undefined/.test(made) ? name : name[2] === "Z" ? `${made}::…` : made;
	} catch {
		return name;
	}
};
