/* SPDX-License-Identifier: Apache-2.0 */
/* A program with Python in it: runs the text that it is given, with a second word in an interpreter of its own. */
#include <Python.h>

__attribute__((noinline)) static int serve(const char *text)
{
	return PyRun_SimpleString(text) + 1;
}

int main(int count, char **words)
{
	PyThreadState *main_state, *own = NULL;
	int done;

	Py_Initialize();
	main_state = PyThreadState_Get();
	if (count > 2)
		own = Py_NewInterpreter();
	done = serve(words[1]);
	if (own) {
		Py_EndInterpreter(own);
		PyThreadState_Swap(main_state);
	}
	Py_Finalize();
	return done - 1;
}
