/* module.c — the module hvd._native: its functions, types and constants. */
#include "native.h"

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "_native",
    "The C interface of libhvd, for hvd/_runtime/requests.py and hvd/_runtime/submission.py.",
    -1,
    world_methods,
    NULL,
    NULL,
    NULL,
    NULL};

/* The lists of hvd.h. */
#define LISTED(enumerator, number, word, name) {name, &#enumerator[sizeof "HVD_" - 1], enumerator},
#define LISTED_TYPE(enumerator, number, word, name, bytes) {name, enumerator, bytes},
typedef struct listed_word {
  const char *name, *constant;
  int number;
} listed_word;
static const listed_word kinds[] = {HVD_KINDS(LISTED)};
static const listed_word reduces[] = {HVD_REDUCES(LISTED)};
static const struct {
  const char* name;
  int number, bytes;
} dtypes[] = {HVD_DTYPES(LISTED_TYPE)};
#define COUNT(array) (sizeof array / sizeof array[0])

/* 0, or -1 with an exception.  The value's reference is taken. */
static int add_object(PyObject* module, const char* name, PyObject* value) {
  if (value && PyModule_AddObject(module, name, value) == 0) return 0;
  Py_XDECREF(value);
  return -1;
}

/* The names by number, as a tuple. */
static PyObject* names_of(const listed_word* words, size_t count) {
  PyObject* names = PyTuple_New((Py_ssize_t)count);
  for (size_t i = 0; names && i < count; ++i)
    PyTuple_SetItem(names, words[i].number, PyUnicode_FromString(words[i].name));
  return names;
}

/* ALLREDUCE and the other kinds, Average and the other reductions: integers. KIND_NAMES, REDUCE_NAMES: by number.
 * DTYPES: {name: number}, without OPAQUE. ITEM_BYTES: of an element, by dtype. */
static int add_lists(PyObject* module) {
  for (size_t i = 0; i < COUNT(kinds); ++i)
    if (PyModule_AddIntConstant(module, kinds[i].constant, kinds[i].number)) return -1;
  for (size_t i = 0; i < COUNT(reduces); ++i)
    if (PyModule_AddIntConstant(module, reduces[i].name, reduces[i].number)) return -1;
  PyObject* numbers = PyDict_New();
  PyObject* bytes = PyTuple_New((Py_ssize_t)COUNT(dtypes));
  for (size_t i = 0; numbers && bytes && i < COUNT(dtypes); ++i) {
    PyObject* number = PyLong_FromLong(dtypes[i].number);
    if (number && dtypes[i].number != HVD_OPAQUE) PyDict_SetItemString(numbers, dtypes[i].name, number);
    Py_XDECREF(number);
    PyTuple_SetItem(bytes, dtypes[i].number, PyLong_FromLong(dtypes[i].bytes));
  }
  if (PyModule_AddIntConstant(module, "OPAQUE", HVD_OPAQUE) ||
      PyModule_AddIntConstant(module, "PART_INPUT", HVD_PART_INPUT) ||
      PyModule_AddIntConstant(module, "PART_INPUT_TORCH", HVD_PART_INPUT_TORCH) ||
      PyModule_AddIntConstant(module, "PART_INPUT_TENSORFLOW", HVD_PART_INPUT_TENSORFLOW) ||
      PyModule_AddIntConstant(module, "PART_SAVE", HVD_PART_SAVE) ||
      PyModule_AddIntConstant(module, "PART_COMPILE", HVD_PART_COMPILE) ||
      PyModule_AddIntConstant(module, "PART_FUTURE", HVD_PART_FUTURE))
    return -1;
  const int failed = add_object(module, "DTYPES", numbers) | add_object(module, "ITEM_BYTES", bytes) |
                     add_object(module, "KIND_NAMES", names_of(kinds, COUNT(kinds))) |
                     add_object(module, "REDUCE_NAMES", names_of(reduces, COUNT(reduces)));
  return failed || PyErr_Occurred() ? -1 : 0;
}

attribute_names attributes;

static int intern_names(void) {
  attributes.grad = PyUnicode_InternFromString("grad");
  attributes.process_set_id = PyUnicode_InternFromString("process_set_id");
  attributes.layout = PyUnicode_InternFromString("layout");
  return attributes.grad && attributes.process_set_id && attributes.layout ? 0 : -1;
}

PyMODINIT_FUNC PyInit__native(void) {
  if ((!lib.library && open_library()) || intern_names()) return NULL;
  PyObject* module = PyModule_Create(&definition);
  if (!module) return NULL;
#ifdef Py_GIL_DISABLED
  PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
  PyMethodDef* const tables[] = {request_methods, handle_methods,     result_methods,   tensor_methods,
                                 call_methods,    group_call_methods, gradient_methods, backward_methods};
  int failed = 0;
  for (size_t i = 0; i < COUNT(tables) && !failed; ++i) failed = PyModule_AddFunctions(module, tables[i]);
  if (!capturing_error) capturing_error = PyErr_NewException("hvd._native.Capturing", PyExc_ValueError, NULL);
  Py_XINCREF(capturing_error); /* add_object takes one */
  if (failed || add_object(module, "Capturing", capturing_error) || add_gradient_types(module) || add_lists(module)) {
    Py_DECREF(module);
    return NULL;
  }
  return module;
}
