/*
 * color.js - the colours of stripes, flames and chips (OKLCH). Colours are 0xAABBGGRR, as a canvas has them in memory.
 *
 * The first twelve, for the largest groups, were found by a computer search: they differ in lightness, and people who
 * see no red, no green or no blue can tell them apart. test_looks.mjs checks that.
 */
export const PALETTE = [
	[0.713, 0.114, 249], [0.803, 0.086, 30], [0.603, 0.115, 97], [0.578, 0.152, 349], [0.86, 0.09, 223], [0.472, 0.17, 263],
	[0.852, 0.17, 115], [0.613, 0.158, 280], [0.691, 0.126, 1], [0.472, 0.081, 95], [0.723, 0.146, 111], [0.47, 0.17, 338],
];

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

/* The number of ranks with colours of their own. Ranks beyond repeat the pale colours of these. */
export const RANKS = 128;
export const rankOf = (rank) => rank < RANKS ? rank : PALETTE.length + (rank - RANKS) % (RANKS - PALETTE.length);

/* Return the colour of the group of rank @rank, 0 for the largest. @shade, 0 to 6, tells neighbours of a group
 * apart. */
export const groupColor = (rank, shade, dark) => {
	const by = (shade - 3) * 0.007;
	if (rank < PALETTE.length) {
		const [light, chroma, hue] = PALETTE[rank];
		return oklch(light + by, chroma, hue);
	}
	/* Beyond the palette, hues are close together. They are pale, and only show that it is another group. */
	return oklch((dark ? 0.5 : 0.78) + by, 0.03, (rankOf(rank) * 137.508) % 360);
};

export const css = (color) =>
	`rgb(${color & 255} ${(color >>> 8) & 255} ${(color >>> 16) & 255})`;

/* Return a number from 0 to 6 that differs between neighbours and depends on @n alone. */
export const shadeOf = (n) => (Math.imul(n + 1, 0x9e3779b1) >>> 8) % 7;

/* Return a number for a name, always the same for the same name. */
export const hueOf = (text) => {
	let hash = 0;
	for (let i = 0; i < text.length; i++)
		hash = (Math.imul(hash, 31) + text.charCodeAt(i)) | 0;
	return Math.abs(Math.imul(hash, 0x9e3779b1) >> 8);
};
