/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of `play`, and the making of their calls. */
#ifndef PLAY_H
#define PLAY_H

#include <stdint.h>

#define WORDS 16

/* A line's call, and what it is given. */
struct line {
	const struct call *call; /* NULL: churn */
	char *words[WORDS];
	int times;
};

/* play_calls.c */
void load_calls(void *driver); /* a handle of dlopen */
const struct call *call_named(const char *name);
int perform(const struct line *line); /* the CUresult; of a function without one, 0 */
uint64_t value(const char *word);
void set_register(const char *word, uint64_t to);
void fail(const char *what, const char *word) __attribute__((noreturn));

#endif
