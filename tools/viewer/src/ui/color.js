/*
 * color.js - the colours of stripes, flames and chips: hues that are told apart, equally light to the eye (OKLCH),
 * for a light and a dark page. Colours are 0xAABBGGRR, as a canvas has them in memory.
 */
const HUES = [255, 55, 150, 25, 305, 195, 95, 345, 125, 275, 75, 225];

const channel = (v) => {
	const c = v <= 0.0031308 ? 12.92 * v : 1.055 * Math.max(v, 0) ** (1 / 2.4) - 0.055;
	return Math.max(0, Math.min(255, Math.round(255 * c)));
};

export const oklch = (light, chroma, hue) => {
	const a = chroma * Math.cos((hue * Math.PI) / 180), b = chroma * Math.sin((hue * Math.PI) / 180);
	const l = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3;
	const m = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3;
	const s = (light - 0.0894841775 * a - 1.291485548 * b) ** 3;
	return (0xff000000 | channel(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s) << 16 |
		channel(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s) << 8 |
		channel(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s)) >>> 0;
};

/* Colours are made for so many ranks: those beyond have again what the pale ones of them have. */
export const RANKS = 128;
export const rankOf = (rank) => rank < RANKS ? rank : HUES.length + (rank - RANKS) % (RANKS - HUES.length);

/* Group of rank @rank, 0 the largest; @shade, 0 to 6, tells neighbours of one group apart. */
export const groupColor = (rank, shade, dark) => {
	const light = (dark ? 0.66 : 0.72) + (shade - 3) * 0.013;
	if (rank < HUES.length)
		return oklch(light, dark ? 0.115 : 0.125, HUES[rank]);
	/* Beyond those, hues are near to one another: they are paler, and say only that there is another. */
	return oklch(light - 0.01, 0.045, (rankOf(rank) * 137.508) % 360);
};

export const css = (color) =>
	`rgb(${color & 255} ${(color >>> 8) & 255} ${(color >>> 16) & 255})`;

/* A number from 0 to 6 that differs among neighbours, and does not depend on what else there is. */
export const shadeOf = (n) => (Math.imul(n + 1, 0x9e3779b1) >>> 8) % 7;

/* A number of a name, that is always the same. */
export const hueOf = (text) => {
	let hash = 0;
	for (let i = 0; i < text.length; i++)
		hash = (Math.imul(hash, 31) + text.charCodeAt(i)) | 0;
	return Math.abs(Math.imul(hash, 0x9e3779b1) >> 8);
};
