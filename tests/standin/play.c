/* SPDX-License-Identifier: Apache-2.0 */
/*
 * play [-v]: makes the driver calls that its input says, each on the thread that it says, one after the other.
 *
 *   THREAD CALL ARGUMENTS...       THREAD 0 to 15. the arguments are in the order of the call's own
 *   * TIMES CALL ARGUMENTS...      the call, TIMES times on each thread that exists, all threads at once
 *   THREAD respawn                 the thread ends, a new one takes its number
 *   THREAD churn BYTES             cuMemAlloc_v2 and cuMemFree_v2 of what it gave
 *   memory rN BYTES                memory of the program itself, to be registered
 *   close VALUE                    closes a descriptor (of cuMemExportToShareableHandle)
 *   print VALUE                    prints it, in decimal
 *   checkpoint                     prints the driver's ledger, one line of JSON (driver/ledger.c says of what)
 *
 * A VALUE is a number (0x.. for hexadecimal), rN (register 0 to 9999, at first 0) or rN+NUMBER. What a call gives goes
 * into the register that stands in the place of its pointer, when the call succeeds. What is needless in a test is left
 * out: null pointers, streams, a graph's dependencies; play_calls.c has the shape of each call's arguments. -v prints
 * each call's result, but not that of a call on all threads. Empty lines and those that begin with # do nothing.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "play.h"

#define THREADS 16

struct worker {
	pthread_t thread;
	int exists, asked, done, ends;
	const struct line *line;
	int result;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct worker workers[THREADS];
static int (*allocate)(uint64_t *, size_t);
static int (*release)(uint64_t);
static size_t (*ledger)(char *, size_t);
static int verbose;

static int churn(size_t bytes)
{
	uint64_t address;
	int result = allocate(&address, bytes);

	return result ? result : release(address);
}

static void *work(void *argument)
{
	struct worker *worker = argument;

	pthread_mutex_lock(&lock);
	while (!worker->ends) {
		if (worker->asked == worker->done) {
			pthread_cond_wait(&changed, &lock);
			continue;
		}
		pthread_mutex_unlock(&lock);
		for (int i = 0; i < worker->line->times; i++)
			worker->result = worker->line->call ? perform(worker->line)
							    : churn(value(worker->line->words[0]));
		pthread_mutex_lock(&lock);
		worker->done = worker->asked;
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void start(struct worker *worker)
{
	*worker = (struct worker){ .exists = 1 };
	if (pthread_create(&worker->thread, NULL, work, worker))
		fail("no thread", "pthread_create");
}

static void end(struct worker *worker)
{
	pthread_mutex_lock(&lock);
	worker->ends = 1;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	pthread_join(worker->thread, NULL);
	worker->exists = 0;
}

/* On one thread, or on all (NULL). */
static void run(struct worker *one, const struct line *line)
{
	pthread_mutex_lock(&lock);
	for (struct worker *worker = workers; worker < workers + THREADS; worker++)
		if (worker->exists && (!one || worker == one)) {
			worker->line = line;
			worker->asked++;
		}
	pthread_cond_broadcast(&changed);
	for (struct worker *worker = workers; worker < workers + THREADS; worker++)
		while (worker->exists && worker->asked != worker->done)
			pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static struct worker *worker_of(const char *word)
{
	char *end_of_number;
	unsigned long at = strtoul(word, &end_of_number, 10);

	if (*end_of_number || at >= THREADS)
		fail("not a thread", word);
	if (!workers[at].exists)
		start(&workers[at]);
	return &workers[at];
}

static void play_call(char **words)
{
	struct line line = { .times = 1 };
	struct worker *worker = NULL;
	char **rest = words + 1;

	if (strcmp(words[0], "*"))
		worker = worker_of(words[0]);
	else
		line.times = value(*rest++);
	if (worker && *rest && !strcmp(*rest, "respawn")) {
		end(worker);
		start(worker);
		return;
	}
	if (!*rest)
		fail("no call", NULL);
	if (strcmp(*rest, "churn"))
		line.call = call_named(*rest);
	for (int i = 0; rest[i + 1]; i++)
		line.words[i] = rest[i + 1];
	run(worker, &line);
	if (verbose && worker)
		printf("%s %s = %d\n", words[0], *rest, worker->result);
}

static void checkpoint(void)
{
	size_t size = ledger(NULL, 0) + 1;
	char *text = malloc(size);

	ledger(text, size);
	puts(text);
	free(text);
}

static void play_line(char *text)
{
	char *words[WORDS + 1] = { 0 };
	int count = 0;

	for (char *word = strtok(text, " \t\n"); word && count < WORDS;
	     word = strtok(NULL, " \t\n"))
		words[count++] = word;
	if (!count || *words[0] == '#')
		return;
	if (!strcmp(words[0], "checkpoint"))
		checkpoint();
	else if (!strcmp(words[0], "print"))
		printf("%lu\n", value(words[1]));
	else if (!strcmp(words[0], "close"))
		close(value(words[1]));
	else if (!strcmp(words[0], "memory"))
		set_register(words[1],
			     (uintptr_t)mmap(NULL, value(words[2]), PROT_READ | PROT_WRITE,
					     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	else
		play_call(words);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	char text[1024];

	verbose = argc > 1 && !strcmp(argv[1], "-v");
	if (!driver)
		fail("dlopen", dlerror());
	load_calls(driver);
	*(void **)&allocate = dlsym(driver, "cuMemAlloc_v2");
	*(void **)&release = dlsym(driver, "cuMemFree_v2");
	*(void **)&ledger = dlsym(driver, "standin_ledger_json");
	((void (*)(void))dlsym(driver, "standin_demand_contexts"))();
	while (fgets(text, sizeof(text), stdin))
		play_line(text);
	return 0;
}
