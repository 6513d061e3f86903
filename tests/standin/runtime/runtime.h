/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the stand-in runtime share: the way to the driver.
 *
 * A call that concerns memory or contexts is the driver's, and goes there as a program's own call would: found by name in
 * libcuda.so.1, which is opened at the first call. Everything else is answered here.
 */
#ifndef RUNTIME_H
#define RUNTIME_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#define API __attribute__((visibility("default")))

/* The driver's function; the headers make `cuMemAlloc` its exported name, `cuMemAlloc_v2`. */
#define DRIVER(function) ((__typeof__(&(function)))driver(NAME(function)))
#define NAME(function) #function

/* The answer of a driver's function that needs a context. */
#define IN_CONTEXT(function, ...) keep(with_context() ?: DRIVER(function)(__VA_ARGS__))

/* driver.c */
void *find_in_driver(const char *name); /* NULL when it has no such function */
void *driver(const char *name); /* ends the program when the driver lacks it */
CUresult start(void);
CUresult use(int device); /* its primary context for this thread */
CUresult with_context(void); /* that of this thread's device, if the thread has none */
cudaError_t keep(CUresult result); /* for cudaGetLastError */

/* devices.c */
extern __thread int device_of_thread;

#endif
