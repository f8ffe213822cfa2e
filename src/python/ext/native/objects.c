/* objects.c — Python's integers as C's, and owned references where CPython's older functions lend one.
 *
 * A number that is too large for C is refused: truncated, it would name another rank, another process set or another
 * size. */
#include "native.h"

/* The exception of a failed conversion, with hvd's own text. An exception of the user's __index__ is not changed. */
static int refuse(PyObject* value, const char* what, int bits) {
  const int is_large = PyErr_ExceptionMatches(PyExc_OverflowError);
  if (!is_large && !PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
  PyErr_Clear();
  if (is_large)
    PyErr_Format(PyExc_ValueError, "%s is %R: it must fit into %d bits", what, value, bits);
  else
    PyErr_Format(PyExc_TypeError, "%s is %R: it must be an integer", what, value);
  return -1;
}

int int64_of(PyObject* value, const char* what, int64_t* number) {
  const long long found = PyLong_AsLongLong(value);
  if (found == -1 && PyErr_Occurred()) return refuse(value, what, 64);
  *number = found;
  return 0;
}

int int32_of(PyObject* value, const char* what, int32_t* number) {
  int64_t found = 0;
  if (int64_of(value, what, &found)) return -1;
  *number = (int32_t)found;
  if (*number == found) return 0;
  PyErr_Format(PyExc_ValueError, "%s is %R: it must fit into 32 bits", what, value);
  return -1;
}

PyObject* strong(PyObject* weak) {
  if (!is_set(weak)) return NULL;
#ifdef Py_GIL_DISABLED
  PyObject* object = NULL;
  if (PyWeakref_GetRef(weak, &object) < 0) PyErr_Clear();
  return object;
#else
  PyObject* object = PyWeakref_GetObject(weak); /* borrowed */
  if (!is_set(object)) return NULL;
  Py_INCREF(object);
  return object;
#endif
}

PyObject* value_of(PyObject* dictionary, PyObject* key) {
#ifdef Py_GIL_DISABLED
  PyObject* found = NULL;
  PyDict_GetItemRef(dictionary, key, &found);
#else
  PyObject* found = PyDict_GetItemWithError(dictionary, key); /* borrowed */
  Py_XINCREF(found);
#endif
  return found;
}
