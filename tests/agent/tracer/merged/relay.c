/* SPDX-License-Identifier: Apache-2.0 */
/* An extension module that calls the driver, and Python. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

int cuMemAlloc_v2(unsigned long *, size_t);

__attribute__((noinline)) static int ask(size_t size)
{
	unsigned long address;

	return cuMemAlloc_v2(&address, size) + 1;
}

static PyObject *allocate(PyObject *module, PyObject *size)
{
	(void)module;
	return PyLong_FromLong(ask(PyLong_AsSize_t(size)));
}

__attribute__((noinline)) static PyObject *once(PyObject *function)
{
	PyObject *answer = PyObject_CallObject(function, NULL);

	return answer ? answer : PyErr_Format(PyExc_RuntimeError, "it failed");
}

static PyObject *call(PyObject *module, PyObject *function)
{
	(void)module;
	return once(function);
}

static PyMethodDef methods[] = {
	{ "allocate", allocate, METH_O, NULL },
	{ "call", call, METH_O, NULL },
	{ NULL, NULL, 0, NULL },
};
static struct PyModuleDef relay = { PyModuleDef_HEAD_INIT, .m_name = "relay",
				    .m_methods = methods };

PyMODINIT_FUNC PyInit_relay(void)
{
	return PyModule_Create(&relay);
}
