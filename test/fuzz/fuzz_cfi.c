/*
 * fuzz_cfi.c - unwind tables of any content: the parser and the evaluator must answer, in bounds
 * and in finite time, whatever they are given.
 *
 * Input: 16 bytes that say where to look, then memory from a made-up address on. The main() here
 * makes its own inputs: this program's real tables with a few bytes changed, tables of random
 * instructions, and plain noise. usage: fuzz_cfi [runs], seeded by $SEED.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "recorder/unwind/cfi.h"
#include "test/seed.h"

#define BASE UINT64_C(0x40000000)
#define HEAD 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct memory {
	const uint8_t *data;
	size_t count;
	unsigned long reads;
};

static long answers[3];			/* found, no entry, bad */

static size_t read_memory(void *ctx, void *dst, uintptr_t address, size_t bytes)
{
	struct memory *memory = ctx;
	size_t at = address - BASE;

	memory->reads++;
	if (address < BASE || at >= memory->count)
		return 0;
	if (bytes > memory->count - at)
		bytes = memory->count - at;
	memcpy(dst, memory->data + at, bytes);
	return bytes;
}

static bool load(void *ctx, uintptr_t address, uintptr_t *ret_word)
{
	return read_memory(ctx, ret_word, address, sizeof(*ret_word)) == sizeof(*ret_word);
}

static void insist(int condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "fuzz_cfi: %s\n", what);
	abort();
}

static void check_answer(int err, const struct gm_cfi_frame *frame, uintptr_t pc)
{
	insist(err == 0 || err == -ENOENT || err == -EBADMSG, "an answer that is none");
	answers[err == 0 ? 0 : err == -ENOENT ? 1 : 2]++;
	if (err)
		return;
	insist(frame->row.cfa_register < GM_CFI_REGS, "a register that is none");
	for (unsigned int i = 0; i < GM_CFI_REGS; i++)
		insist(frame->row.how[i] <= GM_CFI_VAL_EXPRESSION, "a rule that is none");
	insist(pc >= frame->start && pc < frame->end, "a frame of other code");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct memory memory = { data + HEAD, size > HEAD ? size - HEAD : 0, 0 };
	struct gm_cfi_source source = { read_memory, &memory, BASE, BASE + memory.count };
	uintptr_t regs[GM_CFI_REGS], value, pc;
	struct gm_cfi_frame frame;
	uint32_t where[4];
	uint8_t *copy;

	if (size < HEAD)
		return 0;
	memcpy(where, data, HEAD);
	copy = malloc(memory.count + 1);	/* its own block: a read beyond it is seen */
	if (!copy)
		return 0;
	memcpy(copy, data + HEAD, memory.count);
	memory.data = copy;
	pc = BASE + (uintptr_t)(int32_t)where[0];
	check_answer(gm_cfi_find(&source, BASE + where[1], pc, &frame), &frame, pc);
	check_answer(gm_cfi_run(&source, BASE + where[2], pc, &frame), &frame, pc);
	for (unsigned int i = 0; i < GM_CFI_REGS; i++)
		regs[i] = BASE + 8 * i;
	gm_cfi_evaluate(&source, BASE + where[3], regs, NULL, load, &memory, &value);
	gm_cfi_evaluate(&source, BASE + where[2], regs, &pc, load, &memory, &value);
	insist(memory.reads < 1000000, "reads without end");
	free(copy);
	return 0;
}

#ifndef GM_LIBFUZZER

static uint64_t state;

static uint64_t random_word(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * UINT64_C(0x2545f4914f6cdd1d);
}

static uint32_t below(uint64_t limit)
{
	return (uint32_t)(random_word() % limit);
}

/* This program's own tables: from .eh_frame_hdr to the end of its segment, code before it. */
static struct {
	const uint8_t *data;
	size_t count;
	uint32_t hdr;			/* offset of .eh_frame_hdr */
} real;

static int find_real(struct dl_phdr_info *info, size_t size, void *arg)
{
	uintptr_t hdr = 0, start = 0, end = 0;

	(void)size;
	(void)arg;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME)
			hdr = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + p->p_vaddr;

		if (p->p_type == PT_LOAD && hdr >= at && hdr < at + p->p_filesz) {
			start = hdr;
			end = at + p->p_filesz;
		}
	}
	real.data = (const uint8_t *)start;
	real.count = end - start;
	return 1;
}

/* Code lies below the tables: addresses of it come out as negative offsets from BASE. */
static size_t real_input(uint8_t *input)
{
	const int32_t *table = (const int32_t *)(const void *)(real.data + 12);
	uint32_t count, entry, where[4];
	unsigned int changes = below(8);

	memcpy(&count, real.data + 8, 4);
	entry = below(count);
	where[0] = (uint32_t)table[2 * entry] + below(40);
	where[1] = 0;
	where[2] = (uint32_t)table[2 * entry + 1];
	where[3] = below(real.count);
	memcpy(input, where, HEAD);
	memcpy(input + HEAD, real.data, real.count);
	while (changes--) {
		/* in the entry itself, in the header, or anywhere */
		size_t at = changes % 3 == 0 ? where[2] + below(64) :
			    changes % 3 == 1 ? below(32) : below(real.count);

		if (at < real.count)
			input[HEAD + at] = (uint8_t)random_word();
	}
	return HEAD + real.count;
}

/* One CIE and one FDE around random instructions, most of them valid. */
static size_t made_input(uint8_t *input)
{
	static const uint8_t cie[] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x03,
		0x0c, 7, 8, 0x90, 1, 0, 0 };
	uint32_t length = 20 + below(300), where[4] = { below(256), 0, sizeof(cie), below(400) };
	uint8_t *at = input + HEAD;
	uint32_t word;

	memcpy(at, cie, sizeof(cie));
	word = sizeof(cie) - 4;
	memcpy(at, &word, 4);
	at += sizeof(cie);
	word = length - 4;
	memcpy(at, &word, 4);
	word = sizeof(cie) + 4;
	memcpy(at + 4, &word, 4);
	word = (uint32_t)BASE;
	memcpy(at + 8, &word, 4);
	word = 256;
	memcpy(at + 12, &word, 4);
	at[16] = 0;
	for (uint32_t i = 17; i < length; i++)
		at[i] = below(3) ? (uint8_t)below(0x18) : (uint8_t)random_word();
	if (below(4) == 0)
		at[below(length)] = (uint8_t)random_word();
	memcpy(input, where, HEAD);
	return HEAD + sizeof(cie) + length;
}

static size_t noise_input(uint8_t *input)
{
	size_t count = HEAD + below(600);
	uint32_t where[4] = { below(600), below(64), below(600), below(600) };

	for (size_t i = HEAD; i < count; i++)
		input[i] = (uint8_t)random_word();
	memcpy(input, where, HEAD);
	return count;
}

int main(int argc, char **argv)
{
	long runs = argc > 1 ? atol(argv[1]) : 600000;
	uint8_t *input;

	state = test_seed();
	dl_iterate_phdr(find_real, NULL);
	input = malloc(HEAD + real.count + 4096);
	if (!input || real.count < 1000)
		return 1;
	for (long i = 0; i < runs; i++) {
		size_t size = i % 3 == 0 ? real_input(input) :
			      i % 3 == 1 ? made_input(input) : noise_input(input);

		LLVMFuzzerTestOneInput(input, size);
	}
	free(input);
	printf("# %ld found, %ld without an entry, %ld bad\n", answers[0], answers[1], answers[2]);
	/* all three must come up often, or the inputs do not reach what they are to test */
	if (answers[0] < runs / 20 || answers[1] < runs / 20 || answers[2] < runs / 20) {
		printf("not ok 1 - fuzz_cfi # the inputs are too much alike\n");
		return 1;
	}
	printf("ok 1 - fuzz_cfi\n");
	return 0;
}

#endif
