/*
 * dom.js - make elements. Text stays text: nothing of a snapshot is ever read as HTML.
 */
export const h = (tag, props = {}, ...children) => {
	const element = document.createElement(tag);
	for (const [name, value] of Object.entries(props)) {
		if (value === undefined || value === null || value === false)
			continue;
		if (name.startsWith("on"))
			element.addEventListener(name.slice(2), value);
		else if (name === "class")
			element.className = value;
		else if (name === "vars")
			for (const [key, text] of Object.entries(value))
				element.style.setProperty(key, text);
		else if (name in element && typeof value !== "string")
			element[name] = value;
		else
			element.setAttribute(name, value === true ? "" : value);
	}
	element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
	return element;
};

export const replace = (element, ...children) =>
	element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));

/* Return properties that let mouse and keyboard press an element that is no button. */
export const pressable = (press) => ({
	tabindex: "0", role: "button", onclick: press,
	onkeydown: (event) => {
		if (event.key === "Enter" || event.key === " ") {
			event.preventDefault();
			press();
		}
	},
});

/* Make a row of buttons, of which one is pressed; show(value) presses one. @choices: [value, text, hint]. */
export const switcher = (choices, chosen, choose, label) => {
	const buttons = choices.map(([value, text, title]) =>
		h("button", { type: "button", title, "aria-pressed": String(value === chosen), onclick: () => choose(value) }, text));
	const element = h("span", { class: "switch", role: "group", "aria-label": label }, buttons);
	let shown = chosen;
	element.show = (value) => {
		if (value !== shown)
			buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(choices[i][0] === value)));
		shown = value;
	};
	return element;
};

/* Make a button that stays pressed; show(on) sets that. */
export const toggle = (text, title, press) => {
	const element = h("button", { class: "button", type: "button", title, "aria-pressed": "false", onclick: press }, text);
	element.show = (on) => element.setAttribute("aria-pressed", String(Boolean(on)));
	return element;
};

/* turned(): the distance that the wheel was turned, in pixels. wheelFactor(): the factor by which that zooms. */
export const turned = ({ deltaMode }, delta) => delta * (deltaMode === 1 ? 30 : 1);
export const wheelFactor = (event) => Math.exp(Math.max(-200, Math.min(200, turned(event, event.deltaY))) * 0.002);

/* Place @tip beside (x, y) of @box, to the right and below if there is room. */
export const placeTip = (tip, box, x, y) => {
	const right = x + 18 + tip.offsetWidth > box.clientWidth, low = y + 18 + tip.offsetHeight > box.clientHeight;
	tip.style.left = `${Math.max(4, right ? x - 14 - tip.offsetWidth : x + 18)}px`;
	tip.style.top = `${Math.max(4, low ? y - 14 - tip.offsetHeight : y + 18)}px`;
};

/* Make @canvas as large as its box, in device pixels. Return { context, width, height, ratio }, in CSS pixels. */
export const fit = (canvas) => {
	const ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
	const width = Math.max(1, Math.floor(box.width)), height = Math.max(1, Math.floor(box.height));
	const real = [Math.round(width * ratio), Math.round(height * ratio)];
	if (canvas.width !== real[0] || canvas.height !== real[1])
		[canvas.width, canvas.height] = real;
	const context = canvas.getContext("2d");
	context.setTransform(ratio, 0, 0, ratio, 0, 0);
	return { context, width, height, ratio };
};

/* Return a function that runs @paint once in the next frame, however often it is called before. */
export const inFrame = (paint) => {
	let waiting = 0;
	return () => {
		waiting ||= requestAnimationFrame(() => {
			waiting = 0;
			paint();
		});
	};
};

/* Return @text cut to @room pixels of canvas @c; "" if fewer than three letters fit. */
export const cut = (c, text, room) => {
	if (text.length * 4 <= room && c.measureText(text).width <= room)
		return text;
	let low = 0, high = Math.min(text.length, Math.ceil(room / 2));
	if (c.measureText(text.slice(0, high + 1)).width <= room && high === text.length)
		return text;
	while (low < high) {
		const middle = (low + high + 1) >>> 1;
		if (c.measureText(`${text.slice(0, middle)}…`).width <= room)
			low = middle;
		else
			high = middle - 1;
	}
	return low < 3 ? "" : `${text.slice(0, low)}…`;
};

/* Return a colour of the page's styles. It is kept, because asking the browser takes longer than drawing. */
const colors = new Map();
export const variable = (name) => {
	const key = `${document.documentElement.dataset.theme} ${name}`;
	if (!colors.has(key))
		colors.set(key, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
	return colors.get(key);
};
