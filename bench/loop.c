/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls a driver in a loop, below the Python functions that called in here, and times it by the thread's own CPU time:
 * other work on the machine then counts only as far as it disturbs caches.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <time.h>

#define DRIVERS 16
#define BYTES 4096

typedef unsigned long long CUdeviceptr;

static struct {
	int (*set_current)(void *);
	int (*allocate)(CUdeviceptr *, size_t);
	int (*release)(CUdeviceptr);
	void *context;
} drivers[DRIVERS];

static double cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

/* Load a driver under a number. Returns 0 if it could be initialised. */
int load(int number, const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	int (*retain)(void **, int);
	int (*init)(unsigned int);

	if (!library || number < 0 || number >= DRIVERS)
		return 1;
	*(void **)&init = dlsym(library, "cuInit");
	*(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
	*(void **)&drivers[number].set_current = dlsym(library, "cuCtxSetCurrent");
	*(void **)&drivers[number].allocate = dlsym(library, "cuMemAlloc_v2");
	*(void **)&drivers[number].release = dlsym(library, "cuMemFree_v2");
	return init(0) || retain(&drivers[number].context, 0);
}

/* A thread's first call, as in any CUDA program. */
int enter(int number)
{
	return drivers[number].set_current(drivers[number].context);
}

/* Allocate `count` times, then free all of it. `ns` gets what one allocation cost, and one free. */
int measure(int number, int count, CUdeviceptr *addresses, double *ns)
{
	int (*allocate)(CUdeviceptr *, size_t) = drivers[number].allocate;
	int (*release)(CUdeviceptr) = drivers[number].release;
	double began, between, ended;
	int failed = 0;

	began = cpu_ns();
	for (int i = 0; i < count; i++)
		failed |= allocate(&addresses[i], BYTES);
	between = cpu_ns();
	for (int i = 0; i < count; i++)
		failed |= release(addresses[i]);
	ended = cpu_ns();
	if (count) {
		ns[0] = (between - began) / count;
		ns[1] = (ended - between) / count;
	}
	return failed;
}

/* The same below so many functions more, each with a frame of ordinary size. */
int measure_below(int levels, int number, int count, CUdeviceptr *addresses, double *ns)
{
	volatile int kept[16];
	int failed;

	kept[levels & 15] = count;
	failed = levels > 1 ? measure_below(levels - 1, number, kept[levels & 15], addresses, ns)
			    : measure(number, kept[levels & 15], addresses, ns);
	kept[0] = failed;
	return kept[0];
}

/* Allocate `count` times and keep it. The addresses follow each other: the first and last can be told apart from none. */
int hold(int number, int count)
{
	CUdeviceptr address;
	int failed = 0;

	for (int i = 0; i < count; i++)
		failed |= drivers[number].allocate(&address, BYTES);
	return failed;
}
