/* gradient_flush.c — submits the contents of an Outbox: reads the gradients that wait, all at once. */
#include <stdlib.h>
#include <string.h>

#include "gradient.h"

#define READ_AHEAD 3 /* gradients whose memory is fetched before they are read */

/* The contents of one submission. */
typedef struct batch {
  gradient** entries;
  hvd_request* requests;
  request_box** boxes;
  hvd_handle* handles;
  size_t count;
} batch;

/* Moves the contents out of the box. */
static batch take_out(outbox* box) {
  const batch taken = {box->entries, box->requests, box->boxes, NULL, box->count};
  box->entries = NULL;
  box->requests = NULL;
  box->boxes = NULL;
  box->count = box->room = 0;
  box->bytes = 0;
  return taken;
}

static void free_batch(batch* taken) {
  for (size_t i = 0; i < taken->count; ++i) {
    if (taken->boxes && taken->boxes[i]) {
      free_box(taken->boxes[i]);
      free(taken->boxes[i]);
    }
    Py_DECREF(taken->entries[i]);
  }
  free(taken->entries);
  free(taken->requests);
  free(taken->boxes);
  free(taken->handles);
}

/* Reports to the reducer the gradients that count as not submitted. Keeps the present exception. */
static void refuse_all(outbox* box, const batch* taken) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  for (size_t i = 0; i < taken->count; ++i) {
    BEGIN_ALONE(taken->entries[i]);
    taken->entries[i]->waits = 0;
    END_ALONE();
    PyObject* told = PyObject_CallMethod((PyObject*)box, "refused", "O", taken->entries[i]);
    if (!told) PyErr_WriteUnraisable((PyObject*)box);
    Py_XDECREF(told);
  }
  PyErr_Restore(type, value, trace);
}

/* Updates box->shared, because a process set's number changes with the world. 0, or -1 with an exception. */
static int find_operation(outbox* box) {
  PyObject* operation = PyObject_CallMethod((PyObject*)box, "current_operation", NULL);
  if (!operation) return -1;
  if (operation == box->operation) {
    Py_DECREF(operation);
    return 0;
  }
  hvd_request shared;
  memset(&shared, 0, sizeof shared);
  if (fill_operation(&shared, operation)) {
    Py_DECREF(operation);
    return -1;
  }
  PyObject* before = box->operation;
  box->shared = shared;
  box->operation = operation;
  Py_XDECREF(before);
  return 0;
}

static void share_operation(const outbox* box, const batch* taken) {
  for (size_t i = 0; i < taken->count; ++i) {
    hvd_request* request = &taken->requests[i];
    if (taken->boxes[i]) continue;
    request->kind = box->shared.kind;
    request->set = box->shared.set;
    request->reduce = box->shared.reduce;
    request->root = box->shared.root;
    request->prescale = box->shared.prescale;
    request->postscale = box->shared.postscale;
  }
}

/* The tensors that the runtime will read and write. */
static PyObject* works_of(const batch* taken) {
  PyObject* works = PyTuple_New((Py_ssize_t)taken->count);
  for (size_t i = 0; works && i < taken->count; ++i) {
    PyObject* work;
    BEGIN_ALONE(taken->entries[i]);
    work = taken->entries[i]->work ? taken->entries[i]->work : Py_None;
    Py_INCREF(work);
    END_ALONE();
    PyTuple_SetItem(works, (Py_ssize_t)i, work);
  }
  return works;
}

/* Makes box->owned keep works, until release(). If that fails, works are never freed. No key is reused: box->keys may
 * still hold keys of an earlier world. */
static void own(outbox* box, PyObject* works) {
  static _Atomic long long last_key;
  PyObject* key = PyLong_FromLongLong(++last_key);
  if (key && PyDict_SetItem(box->owned, key, works) == 0 && PyList_Append(box->keys, key) == 0) Py_DECREF(works);
  PyErr_Clear();
  Py_XDECREF(key);
}

static int submit_batch(outbox* box, batch* taken) {
  PyObject* works = works_of(taken);
  if (!works) return -1;
  taken->handles = malloc(taken->count * sizeof *taken->handles);
  if (!taken->handles) {
    Py_DECREF(works);
    PyErr_NoMemory();
    return -1;
  }
  int recorded;
  const int status = submit_requests(taken->requests, taken->count, 0, taken->handles, &recorded);
  if (status != HVD_OK) {
    raise_status(status);
    Py_DECREF(works);
    return -1;
  }
  submitted(taken->handles[0]);
  for (size_t i = 0; i < taken->count; ++i) {
    BEGIN_ALONE(taken->entries[i]);
    taken->entries[i]->handle = taken->handles[i];
    END_ALONE();
  }
  ++box->calls;
  box->tensors += (long long)taken->count;
  own(box, works);
  return 0;
}

int note_device(outbox* box, const hvd_request* request) {
  if (request->device == HVD_HOST_DEVICE || (request->device == box->last_gpu && request->stream == box->last_stream))
    return 0;
  PyObject* device = Py_BuildValue("(iN)", (int)request->device, PyLong_FromVoidPtr(request->stream));
  const int failed = !device || PySet_Add(box->devices, device);
  Py_XDECREF(device);
  if (failed) return -1;
  box->last_gpu = request->device;
  box->last_stream = request->stream;
  return 0;
}

/* Moves those that still wait to rest.  0, or -1 with an exception. */
static int separate(batch* taken, batch* rest) {
  gradient** entries = malloc(taken->count * sizeof *entries);
  if (!entries) {
    PyErr_NoMemory();
    return -1;
  }
  rest->entries = entries;
  size_t kept = 0;
  for (size_t i = 0; i < taken->count; ++i) {
    if (taken->entries[i]->waits) {
      rest->entries[rest->count++] = taken->entries[i];
      continue;
    }
    taken->entries[kept] = taken->entries[i];
    taken->requests[kept] = taken->requests[i];
    taken->boxes[kept++] = taken->boxes[i];
  }
  taken->count = kept;
  return 0;
}

/* Reads the gradients that wait.  rest: those that Python must submit.  0, or -1 with an exception. */
static int read_waiting(outbox* box, batch* taken, batch* rest) {
  size_t unread = 0;
  for (size_t i = 0; i < taken->count; ++i) {
    gradient* entry = taken->entries[i];
    if (i + READ_AHEAD < taken->count) prefetch_gradient(taken->entries[i + READ_AHEAD]);
    int status = 2;
    BEGIN_ALONE(entry);
    if (entry->waits) status = read_gradient(entry, &taken->requests[i]);
    END_ALONE();
    if (status < 0 || (status == 1 && note_device(box, &taken->requests[i]))) return -1;
    unread += status == 0;
  }
  return unread ? separate(taken, rest) : 0;
}

/* Has Python submit gradients that C cannot read. */
static int submit_rest(outbox* box, const batch* rest) {
  for (size_t i = 0; i < rest->count; ++i) {
    BEGIN_ALONE(rest->entries[i]);
    rest->entries[i]->waits = 0;
    END_ALONE();
    PyObject* done = PyObject_CallMethod((PyObject*)box, "submit_unread", "O", rest->entries[i]);
    Py_XDECREF(done);
    if (done) continue;
    const batch left = {rest->entries + i, NULL, NULL, NULL, rest->count - i};
    refuse_all(box, &left);
    return -1;
  }
  return 0;
}

int outbox_flush(outbox* box) {
  if (!box->count) return 0;
  int failed = usable_in_world() || find_operation(box);
  batch taken = take_out(box), rest = {NULL, NULL, NULL, NULL, 0};
  failed = failed || read_waiting(box, &taken, &rest);
  if (!failed && taken.count) {
    share_operation(box, &taken);
    failed = submit_batch(box, &taken);
  }
  if (failed) {
    refuse_all(box, &taken);
    refuse_all(box, &rest);
  }
  free_batch(&taken);
  if (!failed && rest.count) failed = submit_rest(box, &rest) || outbox_flush(box);
  free_batch(&rest);
  return failed ? -1 : 0;
}

void outbox_empty(outbox* box) {
  batch taken = take_out(box);
  free_batch(&taken);
}

void outbox_drop(outbox* box) {
  batch taken = take_out(box);
  refuse_all(box, &taken);
  free_batch(&taken);
}
