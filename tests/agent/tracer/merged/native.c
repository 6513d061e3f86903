/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the driver from C: from main, through the C library, in a thread, from what is inlined. Prints as situations.py
 * does. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long *, size_t);

static void *context;

__attribute__((noinline)) static int allocate(size_t size)
{
	unsigned long address;

	return cuMemAlloc_v2(&address, size) + 1;
}

__attribute__((noinline)) static int deeper(int depth, size_t size)
{
	return depth ? deeper(depth - 1, size) + 1 : allocate(size);
}

static int compare(const void *left, const void *right)
{
	static int called;

	if (!called++)
		allocate(1001);
	return *(const int *)left - *(const int *)right;
}

__attribute__((noinline)) static int sorted(int *numbers)
{
	qsort(numbers, 3, sizeof(*numbers), compare);
	return numbers[0];
}

static inline __attribute__((always_inline)) int inlined(size_t size)
{
	return allocate(size) + 1;
}

static inline __attribute__((always_inline)) int inlined_below(size_t size)
{
	return inlined(size) + 1;
}

__attribute__((noinline)) static int around(size_t size)
{
	int done = inlined(size);

	return done + inlined_below(size + 1);
}

static void *work(void *argument)
{
	cuCtxSetCurrent(context);
	return (void *)((long)argument + deeper(3, 1002));
}

int main(void)
{
	int numbers[] = { 2, 1, 3 };
	pthread_t thread;

	cuInit(0);
	cuDevicePrimaryCtxRetain(&context, 0);
	cuCtxSetCurrent(context);
	deeper(2, 1000);
	sorted(numbers);
	around(1003);
	pthread_create(&thread, NULL, work, NULL);
	pthread_join(thread, NULL);
	puts("{\"1000\": [\"recursion\", []], \"1001\": [\"through the C library\", []], "
	     "\"1002\": [\"a thread\", []], \"1003\": [\"from what is inlined\", []], "
	     "\"1004\": [\"from what is inlined into what is inlined\", []]}");
	fflush(stdout);
	getchar();
	return 0;
}
