/*
 * flame_svg.c - a flame graph as one SVG file: see flame.h. One thread.
 *
 * Frames with the same label and parent are one box. A click on a box makes the box as wide as the picture; a click on
 * the background undoes that.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/write/flame.h"
#include "tools/show/show.h"
#include "tools/read/table.h"
#include "tools/read/value.h"

#define WIDTH 1200.0
#define ROW 17
#define TOP 40
#define NARROW 0.2			/* pixels: narrower boxes are not drawn */
#define DEPTH_MOST 4096

struct node {
	const char *label;
	int64_t weight, before;		/* in this run, and in the other */
	uint32_t first, last, next;	/* children in order; 0: none */
	bool python;
};

struct picture {
	FILE *out;
	const struct gm_flame *flame, *before;	/* @before: the other run, or NULL */
	struct node *nodes;		/* 0 is the root, which is not drawn */
	size_t count;
	struct gm_values *texts;	/* the labels, each once */
	struct gm_table children;	/* (parent, label) -> node */
	unsigned int deepest;
};

/* Return the child of @parent with @label, made if missing; 0: out of memory. */
static uint32_t child_of(struct picture *p, uint32_t parent, const struct gm_frame *frame, const char *label)
{
	uint32_t at = (uint32_t)gm_table_get(&p->children, parent, (uint64_t)(uintptr_t)label);
	struct node *node;

	if (at)
		return at;
	node = label && p->count < UINT32_MAX ? gm_list_add(&p->nodes, &p->count, sizeof(*node)) : NULL;
	if (!node)
		return 0;
	at = (uint32_t)p->count - 1;
	*node = (struct node){ .label = label, .python = frame->python };
	if (p->nodes[parent].last)
		p->nodes[p->nodes[parent].last].next = at;
	else
		p->nodes[parent].first = at;
	p->nodes[parent].last = at;
	return gm_table_put(&p->children, parent, (uint64_t)(uintptr_t)label, at) ? 0 : at;
}

/* Return the one copy of @frame's label. *@known keeps it for the next call; NULL: first call, or out of memory. */
static const char *label_of(struct picture *p, const struct gm_frame *frame, const char **known)
{
	char text[512];

	if (!*known) {
		gm_flame_label(frame, text, sizeof(text));
		*known = gm_values_string(p->texts, text, strlen(text));
	}
	return *known;
}

static int add_stack(struct picture *p, const struct gm_flame *flame, size_t s, const char **labels)
{
	static const struct gm_frame none = { .name = "(no stack)", .file = "", .module = "" };
	const struct gm_stacks *stacks = flame->stacks;
	size_t count, i;
	const uint32_t *ids = gm_stack(stacks, (int64_t)s, &count);
	bool earlier = flame == p->before;
	uint32_t at = 0;

	*(earlier ? &p->nodes[0].before : &p->nodes[0].weight) += flame->weights[s];
	for (i = 0; i < (count ? count : 1) && i < DEPTH_MOST; i++) {
		uint32_t id = count ? flame->alike[ids[count - 1 - i]] : (uint32_t)stacks->frame_count;
		const struct gm_frame *frame = count ? &stacks->frames[id] : &none;

		at = child_of(p, at, frame, label_of(p, frame, &labels[id]));
		if (!at)
			return -ENOMEM;
		*(earlier ? &p->nodes[at].before : &p->nodes[at].weight) += flame->weights[s];
	}
	if (!earlier && i > p->deepest)
		p->deepest = (unsigned int)i;
	return 0;
}

static int grow_tree(struct picture *p, const struct gm_flame *flame)
{
	const char **labels = calloc(flame->stacks->frame_count + 1, sizeof(*labels));
	int r = labels ? 0 : -ENOMEM;

	for (size_t s = 0; !r && s < flame->count; s++)
		if (flame->weights[s])
			r = add_stack(p, flame, s, labels);
	free(labels);
	return r;
}

/* Write @text, cut between characters to @most bytes. Characters that XML does not allow become '?'. */
static void put_escaped(FILE *out, const char *text, size_t most)
{
	size_t end = strnlen(text, most);

	while (end == most && end && ((unsigned char)text[end] & 0xc0) == 0x80)
		end--;
	for (size_t i = 0; i < end; i++) {
		unsigned char c = (unsigned char)text[i];
		/* U+FFFE and U+FFFF */
		bool none = c == 0xef && end - i > 2 && (unsigned char)text[i + 1] == 0xbf &&
			    (unsigned char)text[i + 2] >= 0xbe;
		size_t control = gm_show_control(text + i);

		if (none || control)
			putc_unlocked('?', out);
		else if (c == '&' || c == '<' || c == '>' || c == '"')
			fprintf(out, "&#%d;", c);
		else
			putc_unlocked(c, out);
		i += none ? 2 : control ? control - 1 : 0;
	}
}

/* Return the number of bytes of the first @letters characters of @text. */
static size_t fit(const char *text, size_t letters)
{
	size_t i = 0;

	for (; text[i]; i++)
		if (((unsigned char)text[i] & 0xc0) != 0x80 && !letters--)
			break;
	return i;
}

/* Write the colour of a box that is compared with another run: red for more weight, blue for less, deeper for a larger
 * change. */
static void put_change(FILE *out, const struct node *node)
{
	int64_t grown = gm_wrap_subtract(node->weight, node->before);
	double most = (double)(node->weight > node->before ? node->weight : node->before);
	double share = most > 0 ? (grown < 0 ? -(double)grown : (double)grown) / most : 0;

	fprintf(out, "hsl(%d,%d%%,%.0f%%)", grown < 0 ? 215 : 5, grown ? 75 : 0, 88 - 28 * (share < 1 ? share : 1));
}

/* Write the colour of a box, the same for a label in every picture: warm for native code, green for Python. */
static void put_color(FILE *out, const struct node *node)
{
	unsigned int hash = 2166136261u;

	for (const char *at = node->label; *at; at++)
		hash = (hash ^ (unsigned char)*at) * 16777619u;
	fprintf(out, "hsl(%u,%u%%,%u%%)", (node->python ? 100 : 15) + hash % 40, 60 + (hash >> 8) % 20,
		64 + (hash >> 16) % 12);
}

static void put_amount(struct picture *p, int64_t weight)
{
	if (p->flame->weigh == GM_WEIGH_COUNT)
		fprintf(p->out, "%lld allocations", (long long)weight);
	else
		fputs(gm_show_bytes(weight), p->out);
	fprintf(p->out, ", %.2f%%", 100.0 * (double)weight / (double)p->nodes[0].weight);
}

static void put_box(struct picture *p, const struct node *node, double x, double width,
		    unsigned int row)
{
	unsigned int y = TOP + (p->deepest - row) * ROW;
	size_t letters = width > 20 ? (size_t)((width - 6) / 6.6) : 0;

	fprintf(p->out, "<g class=\"b\" data-x=\"%.3f\" data-w=\"%.3f\" data-r=\"%u\" data-n=\"%lld\"><title>", x,
		width, row, (long long)node->weight);
	put_escaped(p->out, node->label, SIZE_MAX);
	fputs(" (", p->out);
	put_amount(p, node->weight);
	if (p->before && p->flame->weigh == GM_WEIGH_COUNT)
		fprintf(p->out, "; before %lld", (long long)node->before);
	else if (p->before)
		fprintf(p->out, "; before %s", gm_show_bytes(node->before));
	fprintf(p->out, ")</title><rect x=\"%.3f\" y=\"%u\" width=\"%.3f\" height=\"%d\" fill=\"", x, y,
		width, ROW - 1);
	(p->before ? put_change : put_color)(p->out, node);
	fprintf(p->out, "\"/><text x=\"%.3f\" y=\"%u\">", x + 3, y + 12);
	put_escaped(p->out, node->label, fit(node->label, letters));
	fputs("</text></g>\n", p->out);
}

/* Write the boxes above @parent, from @x on. DEPTH_MOST limits the recursion. */
static void put_children(struct picture *p, uint32_t parent, double x, double scale, unsigned int row)
{
	for (uint32_t at = p->nodes[parent].first; at; at = p->nodes[at].next) {
		double width = (double)p->nodes[at].weight * scale;

		if (width >= NARROW) {
			put_box(p, &p->nodes[at], x, width, row);
			put_children(p, at, x, scale, row + 1);
		}
		x += width;
	}
}

static const char script[] =
	"<script><![CDATA[\n"
	"const boxes = [...document.querySelectorAll('.b')].map(g => ({ g, x: +g.dataset.x, w: +g.dataset.w,\n"
	"  r: +g.dataset.r, name: g.querySelector('title').textContent.replace(/ \\([^(]*\\)$/, '') }));\n"
	"function zoom(x, w, r) {\n"
	"  for (const b of boxes) {\n"
	"    const under = b.r < r && b.x <= x + 1e-2 && b.x + b.w >= x + w - 1e-2;\n"
	"    const inside = b.r >= r && b.x >= x - 1e-2 && b.x + b.w <= x + w + 1e-2;\n"
	"    b.g.style.display = under || inside ? '' : 'none';\n"
	"    if (!under && !inside) continue;\n"
	"    const left = under ? 0 : (b.x - x) / w * 1200, width = under ? 1200 : b.w / w * 1200;\n"
	"    const rect = b.g.querySelector('rect'), text = b.g.querySelector('text');\n"
	"    rect.setAttribute('x', left); rect.setAttribute('width', width);\n"
	"    text.setAttribute('x', left + 3);\n"
	"    text.textContent = width > 20 ? [...b.name].slice(0, (width - 6) / 6.6).join('') : '';\n"
	"  }\n"
	"}\n"
	"for (const b of boxes) b.g.addEventListener('click', e => { e.stopPropagation(); zoom(b.x, b.w, b.r); });\n"
	"document.documentElement.addEventListener('click', () => zoom(0, 1200, 0));\n"
	"]]></script>\n";

static void put_picture(struct picture *p, const char *title)
{
	int height = TOP + ROW * (int)(p->deepest + 1) + 10;
	double scale = p->nodes[0].weight > 0 ? WIDTH / (double)p->nodes[0].weight : 0;

	fprintf(p->out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" "
		"width=\"%.0f\" height=\"%d\" viewBox=\"0 0 %.0f %d\">\n<style>text{font:12px monospace;"
		"pointer-events:none}.b{cursor:pointer}.b:hover rect{stroke:#000}</style>\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text x=\"3\" y=\"20\">",
		WIDTH, height, WIDTH, height);
	put_escaped(p->out, title, 300);
	fprintf(p->out, ": %s, ", gm_weigh_name(p->flame->weigh));
	if (p->flame->weigh == GM_WEIGH_COUNT)
		fprintf(p->out, "%lld in all", (long long)p->nodes[0].weight);
	else
		fprintf(p->out, "%s in all", gm_show_bytes(p->nodes[0].weight));
	if (p->before && p->flame->weigh == GM_WEIGH_COUNT)
		fprintf(p->out, ", before %lld: red is more, blue is less", (long long)p->nodes[0].before);
	else if (p->before)
		fprintf(p->out, ", before %s: red is more, blue is less", gm_show_bytes(p->nodes[0].before));
	fputs("</text>\n", p->out);
	put_children(p, 0, 0, scale, 0);
	fputs(script, p->out);
	fputs("</svg>\n", p->out);
}

int gm_flame_svg(FILE *out, const struct gm_flame *flame, const struct gm_flame *before, const char *title)
{
	struct picture p = { .out = out, .flame = flame, .before = before, .texts = gm_values_open() };
	struct node *ground = p.texts ? gm_list_add(&p.nodes, &p.count, sizeof(*ground)) : NULL;
	int r = -ENOMEM;

	if (ground) {
		*ground = (struct node){ .label = "" };
		r = grow_tree(&p, flame);
	}
	if (!r && before)
		r = grow_tree(&p, before);
	if (!r)
		put_picture(&p, title);
	gm_table_free(&p.children);
	gm_values_close(p.texts);
	free(p.nodes);
	return r;
}
