/* world_calls.c — calls about the world: its start and end, places, process sets, timeline, reports. */
#include <stdlib.h>
#include <string.h>

#include "native.h"

/* A sequence of ranks as [*total], malloc'd.  NULL with an exception. */
static int32_t* rank_list(PyObject* ranks, Py_ssize_t* total) {
  *total = PySequence_Size(ranks);
  if (*total < 0) return NULL;
  if (*total > INT32_MAX) {
    PyErr_Format(PyExc_ValueError, "there are no %zd ranks", *total);
    return NULL;
  }
  int32_t* list = malloc(((size_t)*total + 1) * sizeof *list);
  if (!list) {
    PyErr_NoMemory();
    return NULL;
  }
  for (Py_ssize_t i = 0; i < *total; ++i) {
    PyObject* item = PySequence_GetItem(ranks, i);
    const int failed = !item || int32_of(item, "a rank", &list[i]);
    Py_XDECREF(item);
    if (!failed) continue;
    free(list);
    return NULL;
  }
  return list;
}

static PyObject* py_init(PyObject* self, PyObject* ranks) {
  (void)self;
  int32_t* list = NULL;
  Py_ssize_t total = 0;
  if (usable()) return NULL;
  if (ranks != Py_None && !(list = rank_list(ranks, &total))) return NULL;
  const hvd_init_options options = {sizeof options, list, (int32_t)total};
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = lib.init(list ? &options : NULL);
  Py_END_ALLOW_THREADS;
  free(list);
  if (status != HVD_OK) return raise_status(status);
  Py_RETURN_NONE;
}

static PyObject* py_shutdown(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  int status;
  if (is_forked_child()) Py_RETURN_NONE; /* it is the parent's runtime */
  Py_BEGIN_ALLOW_THREADS;
  status = lib.shutdown();
  Py_END_ALLOW_THREADS;
  if (status != HVD_OK) return raise_status(status);
  Py_RETURN_NONE;
}

static PyObject* py_is_initialized(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  return PyBool_FromLong(lib.is_initialized());
}

static PyObject* numbers_of(const hvd_world* w) {
  return Py_BuildValue("(iiiiiiii)", w->rank, w->size, w->local_rank, w->local_size, w->cross_rank, w->cross_size,
                       w->homogeneous, w->mpi_threads);
}

static PyObject* py_world(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  hvd_world w;
  if (usable()) return NULL;
  const int status = lib.get_world(&w);
  return status == HVD_OK ? numbers_of(&w) : raise_status(status);
}

static PyObject* py_expect(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  hvd_world w;
  int status;
  if (usable()) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = lib.expect(&w);
  Py_END_ALLOW_THREADS;
  return status == HVD_OK ? numbers_of(&w) : raise_status(status);
}

static PyObject* py_set_add(PyObject* self, PyObject* ranks) {
  (void)self;
  Py_ssize_t total = 0;
  int32_t set = 0;
  int status;
  if (usable_in_world()) return NULL;
  int32_t* list = rank_list(ranks, &total);
  if (!list) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = lib.set_add(list, (int32_t)total, &set);
  Py_END_ALLOW_THREADS;
  free(list);
  return status == HVD_OK ? PyLong_FromLong(set) : raise_status(status);
}

static PyObject* py_set_remove(PyObject* self, PyObject* arg) {
  (void)self;
  int32_t set;
  int status;
  if (int32_of(arg, "process_set_id", &set) || usable_in_world()) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = lib.set_remove(set);
  Py_END_ALLOW_THREADS;
  if (status != HVD_OK) return raise_status(status);
  Py_RETURN_NONE;
}

static PyObject* py_timeline_start(PyObject* self, PyObject* args) {
  (void)self;
  const char* path;
  int mark_cycles, status;
  if (!PyArg_ParseTuple(args, "sp", &path, &mark_cycles) || usable_in_world()) return NULL;
  Py_BEGIN_ALLOW_THREADS; /* a FIFO waits for its reader, and a slow disk takes time */
  status = lib.timeline_start(path, mark_cycles);
  Py_END_ALLOW_THREADS;
  if (status != HVD_OK) return raise_status(status);
  Py_RETURN_NONE;
}

static PyObject* py_timeline_stop(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  int status;
  if (usable()) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = lib.timeline_stop();
  Py_END_ALLOW_THREADS;
  if (status != HVD_OK) return raise_status(status);
  Py_RETURN_NONE;
}

static PyObject* py_built(PyObject* self, PyObject* arg) {
  (void)self;
  const char* what = PyUnicode_AsUTF8AndSize(arg, NULL);
  return what ? PyLong_FromLong(lib.built(what)) : NULL;
}

static PyObject* py_use_memory(PyObject* self, PyObject* arg) {
  (void)self;
  const char* framework = PyUnicode_AsUTF8AndSize(arg, NULL);
  return framework ? PyBool_FromLong(lib.use_memory(framework) == HVD_OK) : NULL;
}

static PyObject* py_check_world(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = lib.check_world();
  Py_END_ALLOW_THREADS;
  if (status != HVD_OK) return raise_status(status);
  Py_RETURN_NONE;
}

static PyObject* py_departed(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  return PyBool_FromLong(lib.departed());
}

static PyObject* py_part_begin(PyObject* self, PyObject* arg) {
  (void)self;
  int32_t part;
  if (int32_of(arg, "part", &part)) return NULL;
  lib.part_begin(part);
  Py_RETURN_NONE;
}

static PyObject* py_part_end(PyObject* self, PyObject* arg) {
  (void)self;
  int32_t part;
  if (int32_of(arg, "part", &part)) return NULL;
  lib.part_end(part);
  Py_RETURN_NONE;
}

static PyObject* py_step_end(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  lib.step_end();
  Py_RETURN_NONE;
}

static PyObject* py_batches_made(PyObject* self, PyObject* arg) {
  (void)self;
  int64_t ns;
  if (int64_of(arg, "ns", &ns)) return NULL;
  lib.batches_made(ns);
  Py_RETURN_NONE;
}

static PyObject* py_report(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  if (usable_in_world()) return NULL;
  static const size_t most = 64 << 10;  // hvdrun sends less
  char* text = PyMem_Malloc(most);
  if (!text) return PyErr_NoMemory();
  size_t length = 0;
  const int status = lib.report(text, most, &length);
  PyObject* made = status == HVD_OK ? PyBytes_FromStringAndSize(text, (Py_ssize_t)length) : raise_status(status);
  PyMem_Free(text);
  return made;
}

static PyObject* py_not_finite(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  if (usable_in_world()) return NULL;
  char text[8 << 10];  // an operation's name is shorter
  size_t length = 0;
  const int status = lib.not_finite(text, sizeof text, &length);
  return status == HVD_OK ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace") : raise_status(status);
}

/* The hashes of parts of the host's memory, as signed numbers. */
static PyObject* py_hashes(PyObject* self, PyObject* parts) {
  (void)self;
  const Py_ssize_t count = PySequence_Size(parts);
  if (count < 0) return NULL;
  struct part {
    void* data;
    size_t bytes;
    uint64_t hash;
  }* const all = PyMem_Calloc((size_t)count + 1, sizeof *all);
  PyObject* found = all ? PyList_New(count) : PyErr_NoMemory();
  for (Py_ssize_t i = 0; found && i < count; ++i) {
    PyObject* const pair = PySequence_GetItem(parts, i);
    if (pair && PyTuple_Check(pair) && PyTuple_Size(pair) == 2) {
      all[i].data = PyLong_AsVoidPtr(PyTuple_GetItem(pair, 0));
      all[i].bytes = PyLong_AsSize_t(PyTuple_GetItem(pair, 1));
    } else if (pair) {
      PyErr_SetString(PyExc_TypeError, "a part must be an address and a number of bytes");
    }
    Py_XDECREF(pair);
    if (PyErr_Occurred()) Py_CLEAR(found);
  }
  if (found) {
    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t i = 0; i < count; ++i) all[i].hash = lib.hash(all[i].data, all[i].bytes);
    Py_END_ALLOW_THREADS;
  }
  for (Py_ssize_t i = 0; found && i < count; ++i) {
    PyObject* const number = PyLong_FromLongLong((long long)all[i].hash);
    if (!number || PyList_SetItem(found, i, number)) Py_CLEAR(found);
  }
  PyMem_Free(all);
  return found;
}

static PyObject* py_links(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  if (usable_in_world()) return NULL;
  size_t count = 0, room = 0;
  hvd_link* links = NULL;
  int status;
  Py_BEGIN_ALLOW_THREADS;  // another thread may be in the middle of an engine step
  status = lib.links(NULL, 0, &room);
  Py_END_ALLOW_THREADS;
  if (status != HVD_OK) return raise_status(status);
  links = PyMem_New(hvd_link, room + 1);
  if (!links) return PyErr_NoMemory();
  Py_BEGIN_ALLOW_THREADS;
  status = lib.links(links, room, &count);
  Py_END_ALLOW_THREADS;
  PyObject* made = status == HVD_OK ? PyList_New(0) : raise_status(status);
  for (size_t i = 0; made && i < room && i < count; ++i) {
    PyObject* link = Py_BuildValue("(isLLL)", links[i].peer, links[i].card, (long long)links[i].bytes,
                                   (long long)links[i].busy_ns, (long long)links[i].round_trip_ns);
    if (!link || PyList_Append(made, link)) Py_CLEAR(made);
    Py_XDECREF(link);
  }
  PyMem_Free(links);
  return made;
}

/* One of gc.callbacks: (phase, info), where phase is "start" or "stop". */
static PyObject* py_collecting(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  (void)self;
  if (count != 2) return wrong_count("collecting", count);
  const char* phase = PyUnicode_AsUTF8AndSize(arguments[0], NULL);
  if (!phase) return NULL;
  if (strcmp(phase, "start") == 0)
    lib.part_begin(HVD_PART_COLLECT);
  else
    lib.part_end(HVD_PART_COLLECT);
  Py_RETURN_NONE;
}

static PyObject* py_version(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  return PyUnicode_FromString(lib.version());
}

/* An object that must outlive the interpreter, because the runtime's thread uses its memory. */
static PyObject* py_leak(PyObject* self, PyObject* object) {
  (void)self;
  Py_INCREF(object);
  Py_RETURN_NONE;
}

PyMethodDef world_methods[] = {
    {"init", py_init, METH_O, "init(ranks or None)"},
    {"shutdown", py_shutdown, METH_NOARGS, NULL},
    {"is_initialized", py_is_initialized, METH_NOARGS, NULL},
    {"world", py_world, METH_NOARGS, "rank, size, local rank and size, cross rank and size, homogeneous, mpi threads"},
    {"expect", py_expect, METH_NOARGS, "expect() -> as world(): see hvd_expect"},
    {"before_use", py_before_use, METH_O, "before_use(callable or None): calls that need the world call it first"},
    {"set_add", py_set_add, METH_O, "set_add(ranks) -> number.  Collective"},
    {"set_remove", py_set_remove, METH_O, "set_remove(number).  Collective"},
    {"timeline_start", py_timeline_start, METH_VARARGS, "timeline_start(path, mark_cycles)"},
    {"timeline_stop", py_timeline_stop, METH_NOARGS, NULL},
    {"built", py_built, METH_O, "built(what) -> int"},
    {"use_memory", py_use_memory, METH_O, "use_memory(framework) -> bool: device memory comes from it"},
    {"check_world", py_check_world, METH_NOARGS,
     "check_world(): raises the error by which operations of the world ended"},
    {"departed", py_departed, METH_NOARGS, "departed() -> bool: who left the world did so by shutdown()"},
    {"part_begin", py_part_begin, METH_O, "part_begin(part): see hvd_part_begin"},
    {"part_end", py_part_end, METH_O, "part_end(part)"},
    {"report", py_report, METH_NOARGS, "report() -> bytes: see hvd_report"},
    {"not_finite", py_not_finite, METH_NOARGS, "not_finite() -> str: see hvd_not_finite"},
    {"hashes", py_hashes, METH_O, "hashes([(address, bytes)]) -> [int]: see hvd_hash"},
    {"links", py_links, METH_NOARGS, "links() -> [(peer, card, bytes, busy_ns, round_trip_ns)]: see hvd_links"},
    {"step_end", py_step_end, METH_NOARGS, "step_end()"},
    {"batches_made", py_batches_made, METH_O, "batches_made(ns): see hvd_batches_made"},
    {"collecting", FAST(py_collecting), METH_FASTCALL, "collecting(phase, info): for gc.callbacks"},
    {"version", py_version, METH_NOARGS, NULL},
    {"leak", py_leak, METH_O, "leak(object): never frees it"},
    {NULL, NULL, 0, NULL}};
