/*
 * raster.js - the picture of the timeline, pixel by pixel, exactly.
 *
 * A column shows the state with the most bytes of its part of the axis, so no peak is lost. The allocations of the
 * state are stacked in the order of their births; a pixel shows the allocation at the pixel's middle. The topmost pixel
 * of an allocation of three pixels or more is its edge. An allocation that waits for the GPU after its free is drawn
 * paler.
 *
 * Sums of 16, 256 and 4096 neighbours make this quick: allocations between two pixels are skipped together.
 */
export const NOBODY = 0xffffffff;

const BITS = 4, WAY = 1 << BITS;

export class Stripes {
	/* @weight: bytes by life; 0: the life is not shown. */
	constructor(lives, weight) {
		this.lives = lives;
		this.weight = weight;
		this.one = new Float64Array((lives.count >> BITS) + 1);
		this.two = new Float64Array((this.one.length >> BITS) + 1);
		this.three = new Float64Array((this.two.length >> BITS) + 1);
		this.there = new Int32Array(this.one.length);	/* a bit for each of 16 lives: is it in the state? */
		this.state = -1;
		this.next = 0;		/* the first life that is born after the state */
	}

	add(l, bytes) {
		this.there[l >> BITS] ^= 1 << (l & (WAY - 1));
		this.one[l >> BITS] += bytes;
		this.two[l >> (2 * BITS)] += bytes;
		this.three[l >> (3 * BITS)] += bytes;
	}

	rebuild(s) {
		const { born, died, count } = this.lives, { weight, one, two, three, there } = this;
		let l = 0;
		there.fill(0);
		one.fill(0);
		two.fill(0);
		three.fill(0);
		for (; l < count && born[l] < s; l++)		/* in the order of births */
			if (died[l] >= s) {
				one[l >> BITS] += weight[l];
				there[l >> BITS] |= 1 << (l & (WAY - 1));
			}
		this.next = l;
		for (let i = 0; i < one.length; i++)
			two[i >> BITS] += one[i];
		for (let i = 0; i < two.length; i++)
			three[i >> BITS] += two[i];
		this.state = s;
	}

	/* Make the sums those of state @s. */
	move(s) {
		if (this.state < 0 || Math.abs(s - this.state) * 4 > this.lives.count) {
			if (this.state !== s)
				this.rebuild(s);
			return;
		}
		const { born, closes } = this.lives, { weight } = this;
		let { state, next } = this;
		for (; state < s; state++) {
			if (born[next] === state) {
				this.add(next, weight[next]);
				next++;
			}
			if (closes[state] >= 0)
				this.add(closes[state], -weight[closes[state]]);
		}
		while (state > s) {
			state--;
			if (next && born[next - 1] === state) {
				next--;
				this.add(next, -weight[next]);
			}
			if (closes[state] >= 0)
				this.add(closes[state], weight[closes[state]]);
		}
		this.state = s;
		this.next = next;
	}

	/* Return the bytes below life @life in the present state. */
	below(life) {
		const { born, died } = this.lives, s = this.state;
		let sum = 0;
		for (let i = 0; i < life >> (3 * BITS); i++)
			sum += this.three[i];
		for (let i = life >> (3 * BITS) << BITS; i < life >> (2 * BITS); i++)
			sum += this.two[i];
		for (let i = life >> (2 * BITS) << BITS; i < life >> BITS; i++)
			sum += this.one[i];
		for (let l = life >> BITS << BITS; l < life; l++)
			if (born[l] < s && died[l] >= s)
				sum += this.weight[l];
		return sum;
	}

	/* Draw column @x of the picture, ids and pixels, from the bottom row up. */
	column(picture, x) {
		const { width, height, low, high, ids, pixels, paint } = picture;
		const { freed } = this.lives, { weight, one, two, three, there } = this, s = this.state;
		const step = (high - low) / height;
		let row = 0, target = low + step / 2, sum = 0;
		for (let i3 = 0; i3 < three.length; i3++) {
			if (sum + three[i3] <= target) {
				sum += three[i3];
				continue;
			}
			for (let i2 = i3 << BITS, e2 = Math.min(two.length, i2 + WAY); i2 < e2; i2++) {
				if (sum + two[i2] <= target) {
					sum += two[i2];
					continue;
				}
				for (let i1 = i2 << BITS, e1 = Math.min(one.length, i1 + WAY); i1 < e1; i1++) {
					if (sum + one[i1] <= target) {
						sum += one[i1];
						continue;
					}
					for (let left = there[i1]; left; left &= left - 1) {
						const l = (i1 << BITS) + 31 - Math.clz32(left & -left);
						sum += weight[l];
						if (sum <= target)
							continue;
						let color = paint.color[l];
						const first = row;
						if (freed[l] < s)
							color = paint.pale(color);
						let at = (height - 1 - row) * width + x;
						while (target < sum) {
							ids[at] = l;
							pixels[at] = color;
							at -= width;
							row++;
							target = low + (row + 0.5) * step;
							if (row === height)
								break;
						}
						if (row - first >= 3)
							pixels[at + width] = paint.edge(color);
						if (row === height)
							return;
					}
				}
			}
		}
	}
}

/* Colours are 0xAABBGGRR, as a canvas has them in memory. */
export const edgeOf = (color) => (color - ((color >>> 3) & 0x1f1f1f)) >>> 0;
export const paleOf = (background) => (color) =>
	(((color >>> 1) & 0x7f7f7f) + ((background >>> 1) & 0x7f7f7f) + 0xff000000) >>> 0;

/*
 * Draw the picture of @view: { mode, from, to (places on the axis), low, high (bytes), width, height, background, mark
 * }. Return ids (the life of each pixel, or NOBODY), pixels, states (of each column; -1: beyond the axis), and edges:
 * the lower and upper edge of the life @mark in each column, -1 where it is not; null without a mark.
 */
export const draw = (stripes, curve, axis, paint, view) => {
	const { mode, from, to, low, high, width, height, background, mark } = view;
	const picture = {
		width, height, low, high, paint,
		ids: new Uint32Array(width * height).fill(NOBODY), pixels: new Uint32Array(width * height).fill(background),
	};
	const states = curve.highestOf(axis.columns(mode, from, to, width)), edges = mark >= 0 ? new Float64Array(2 * width).fill(-1) : null;
	const { lives } = stripes;
	for (let x = 0; x < width; x++) {
		const left = from + ((to - from) * x) / width, right = from + ((to - from) * (x + 1)) / width;
		if (right <= 0 || left >= axis.span(mode)) {
			states[x] = -1;
			continue;
		}
		const s = states[x];
		stripes.move(s);
		stripes.column(picture, x);
		if (edges && lives.born[mark] < s && s <= lives.died[mark]) {
			edges[2 * x] = stripes.below(mark);
			edges[2 * x + 1] = edges[2 * x] + stripes.weight[mark];
		}
	}
	return { ids: picture.ids, pixels: picture.pixels, states, edges };
};
