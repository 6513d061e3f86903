/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads PAIRS ROUNDS: PAIRS threads allocate, as many others free what those have allocated. One call in ten fails for
 * want of memory, one address in fifty is never freed, one free in a hundred is of an address that nobody has.
 *
 * Prints the driver's own ledger: allocated bytes and objects, freed bytes and objects, failed calls, unknown frees. Then
 * waits for the end of its input, so that what it holds can be looked at.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MAILBOX 64

typedef unsigned long long CUdeviceptr;

struct ledger {
	uint64_t allocated_bytes, allocated_objects, freed_bytes, freed_objects, failed,
		unknown_frees;
};

struct pair {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	CUdeviceptr box[MAILBOX];
	int filled, done;
	unsigned int seed;
	pthread_t allocator, releaser;
};

static int (*cuInit)(unsigned int);
static int (*cuMemAlloc_v2)(CUdeviceptr *, size_t);
static int (*cuMemFree_v2)(CUdeviceptr);
static int (*cuDevicePrimaryCtxRetain)(void **, int);
static int (*cuCtxSetCurrent)(void *);
static void (*standin_ledger)(struct ledger *);
static void *context;
static int rounds;

static void *allocate(void *argument)
{
	struct pair *pair = argument;
	CUdeviceptr address;

	cuCtxSetCurrent(context);
	for (int i = 0; i < rounds; i++) {
		int choice = rand_r(&pair->seed) % 100;
		size_t small = 1 + rand_r(&pair->seed) % 100000;
		size_t bytes = choice < 10 ? (size_t)1 << 50 : small;

		if (cuMemAlloc_v2(&address, bytes))
			continue;
		if (choice >= 98) /* never freed */
			continue;
		pthread_mutex_lock(&pair->lock);
		while (pair->filled == MAILBOX)
			pthread_cond_wait(&pair->changed, &pair->lock);
		pair->box[pair->filled++] = address;
		pthread_cond_signal(&pair->changed);
		pthread_mutex_unlock(&pair->lock);
	}
	pthread_mutex_lock(&pair->lock);
	pair->done = 1;
	pthread_cond_signal(&pair->changed);
	pthread_mutex_unlock(&pair->lock);
	return NULL;
}

static void *release(void *argument)
{
	struct pair *pair = argument;
	unsigned int count = 0;

	cuCtxSetCurrent(context);
	for (;;) {
		CUdeviceptr address;

		pthread_mutex_lock(&pair->lock);
		while (!pair->filled && !pair->done)
			pthread_cond_wait(&pair->changed, &pair->lock);
		if (!pair->filled) {
			pthread_mutex_unlock(&pair->lock);
			return NULL;
		}
		address = pair->box[--pair->filled];
		pthread_cond_signal(&pair->changed);
		pthread_mutex_unlock(&pair->lock);
		cuMemFree_v2(address);
		if (++count % 100 == 0)
			cuMemFree_v2(0xdead000);
	}
}

int main(int argc, char **argv)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	int pairs = argc > 1 ? atoi(argv[1]) : 4;
	struct pair *all = calloc(pairs, sizeof(*all));
	struct ledger ledger;

	rounds = argc > 2 ? atoi(argv[2]) : 1000;
	if (!driver || !all)
		return 1;
	*(void **)&cuInit = dlsym(driver, "cuInit");
	*(void **)&cuMemAlloc_v2 = dlsym(driver, "cuMemAlloc_v2");
	*(void **)&cuMemFree_v2 = dlsym(driver, "cuMemFree_v2");
	*(void **)&cuDevicePrimaryCtxRetain = dlsym(driver, "cuDevicePrimaryCtxRetain");
	*(void **)&cuCtxSetCurrent = dlsym(driver, "cuCtxSetCurrent");
	*(void **)&standin_ledger = dlsym(driver, "standin_ledger");
	if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0))
		return 1;
	for (int i = 0; i < pairs; i++) {
		pthread_mutex_init(&all[i].lock, NULL);
		pthread_cond_init(&all[i].changed, NULL);
		all[i].seed = i + 1;
		pthread_create(&all[i].allocator, NULL, allocate, &all[i]);
		pthread_create(&all[i].releaser, NULL, release, &all[i]);
	}
	for (int i = 0; i < pairs; i++) {
		pthread_join(all[i].allocator, NULL);
		pthread_join(all[i].releaser, NULL);
	}
	standin_ledger(&ledger);
	printf("%lu %lu %lu %lu %lu %lu\n", ledger.allocated_bytes, ledger.allocated_objects,
	       ledger.freed_bytes, ledger.freed_objects, ledger.failed, ledger.unknown_frees);
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
