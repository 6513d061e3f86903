/* SPDX-License-Identifier: Apache-2.0 */
/* A program with Python in it: runs the text that it is given. */
#include <Python.h>

__attribute__((noinline)) static int serve(const char *text)
{
	return PyRun_SimpleString(text) + 1;
}

int main(int count, char **words)
{
	int done;

	(void)count;
	Py_Initialize();
	done = serve(words[1]);
	Py_Finalize();
	return done - 1;
}
