/// @file python_host.cc — hvdrank-python: the process that becomes Python.
///
/// A separate program.  exec starts it with the rank's argv and environment, so that it looks like the interpreter.
/// The program links only libc, so our libstdc++ and ZeroMQ cannot conflict with the user's.
///
/// Uses no Python headers, but a few stable-ABI functions of the libpython that HVD_LIBPYTHON names.  The builtin
/// module _hvdrank serves the bootstrap.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/environment.h"
#include "wire/messages/link.h"

namespace {

struct PyObject;
using Call = PyObject* (*)(PyObject*, PyObject*);

/// PyMethodDef and PyModuleDef of the stable ABI.
struct MethodDef {
  const char* name;
  Call call;
  int flags;
  const char* doc;
};
struct ModuleDef {
  ssize_t refcount;
  void* type;
  void* init;
  ssize_t index;
  void* copy;
  const char* name;
  const char* doc;
  ssize_t size;
  MethodDef* methods;
  void *slots, *traverse, *clear, *free;
};
constexpr int arguments = 1;  // METH_VARARGS
constexpr int abi_version = 3;

PyObject* (*module_create)(ModuleDef*, int);
PyObject* (*unicode_from_string)(const char*);
PyObject* (*tuple_item)(PyObject*, ssize_t);
long (*long_value)(PyObject*);
int (*bytes_value)(PyObject*, char**, ssize_t*);
PyObject* (*set_from_errno)(PyObject*);
PyObject** os_error;
PyObject* (*build_value)(const char*, ...);
void* (*save_thread)();
void (*restore_thread)(void*);
int (*is_finalizing)();  // nullptr: this Python has no such function

char* boot_text;
int link_fd = -1;

/// boot() -> str: the bootstrap's parameters from the guard, as JSON; "" if there are none.
PyObject* boot(PyObject*, PyObject*) { return unicode_from_string(boot_text ? boot_text : ""); }

/// send(type: int, body: bytes, at most 64 KiB) -> None.  Blocks, without the GIL, until the guard has room.
PyObject* send(PyObject*, PyObject* args) {
  char* body = nullptr;
  ssize_t bytes = 0;
  PyObject* first = tuple_item(args, 0);
  PyObject* second = first ? tuple_item(args, 1) : nullptr;
  if (second == nullptr || bytes_value(second, &body, &bytes) != 0) return nullptr;
  const long type = long_value(first);
  void* thread = save_thread();
  const int error =
      hvd::wire::link::send(link_fd, static_cast<hvd::wire::Type>(type), body, static_cast<size_t>(bytes));
  restore_thread(thread);
  if (error) {
    errno = error;
    return set_from_errno(*os_error);
  }
  return build_value("");
}

MethodDef methods[] = {{"boot", boot, arguments, "What the guard says about the payload, as JSON."},
                       {"send", send, arguments, "Sends one frame to the guard."},
                       {nullptr, nullptr, 0, nullptr}};
ModuleDef module = {1,  nullptr, nullptr, 0,       nullptr, "_hvdrank", "hvdrun's guard, from inside a rank.",
                    -1, methods, nullptr, nullptr, nullptr, nullptr};

PyObject* init_module() { return module_create(&module, abi_version); }

template <class F>
bool find(void* library, const char* name, F* out) {
  *out = reinterpret_cast<F>(dlsym(library, name));
  return *out != nullptr;
}

/// Removes a variable from the environment, before Python copies the environment.  Returns the value, or null.
char* take(const char* name) {
  const char* value = hvd::environment_value(name);
  char* copy = value ? strdup(value) : nullptr;
  unsetenv(name);
  return copy;
}

}  // namespace

/// Replaces libc's function for libpython.
///
/// While Python ends, a thread that asks for the GIL never gets it.  Before 3.14, CPython ends such a thread by
/// pthread_exit(), which unwinds the thread's stack.  A C++ frame that must not be unwound then ends the process with
/// SIGABRT.  For example, gloo's thread does this when it releases a tensor.
///
/// Here the thread waits for the end of the process, as in 3.14.  The wait has a limit, because the main thread may
/// wait for this thread.
extern "C" [[noreturn]] void pthread_exit(void* value) {
  if (is_finalizing && is_finalizing()) {
    const timespec process_may_take{2, 0};
    nanosleep(&process_may_take, nullptr);
  }
  reinterpret_cast<void (*)(void*)>(dlsym(RTLD_NEXT, "pthread_exit"))(value);
  abort();
}

int main(int argc, char** argv) {
  const char* path = take("HVD_LIBPYTHON");
  if (path == nullptr) {
    fputs("hvdrank-python: is started by hvdrank, not by hand\n", stderr);
    return 2;
  }
  void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  int (*append)(const char*, PyObject* (*)()) = nullptr;
  int (*python_main)(int, char**) = nullptr;
  const bool whole =
      library && find(library, "PyImport_AppendInittab", &append) && find(library, "Py_BytesMain", &python_main) &&
      find(library, "PyModule_Create2", &module_create) &&
      find(library, "PyUnicode_FromString", &unicode_from_string) && find(library, "PyTuple_GetItem", &tuple_item) &&
      find(library, "PyLong_AsLong", &long_value) && find(library, "PyBytes_AsStringAndSize", &bytes_value) &&
      find(library, "PyErr_SetFromErrno", &set_from_errno) && find(library, "PyExc_OSError", &os_error) &&
      find(library, "Py_BuildValue", &build_value) && find(library, "PyEval_SaveThread", &save_thread) &&
      find(library, "PyEval_RestoreThread", &restore_thread);
  if (!whole) {  // run the interpreter instead, which reads HVD_BOOT from its environment
    execv(argv[0], argv);
    perror(argv[0]);
    return 127;
  }
  if (!find(library, "Py_IsFinalizing", &is_finalizing)) find(library, "_Py_IsFinalizing", &is_finalizing);
  if (const char* fd = hvd::environment_value(hvd::wire::link::fd_variable)) link_fd = atoi(fd);
  boot_text = take("HVD_BOOT");
  append("_hvdrank", init_module);
  return python_main(argc, argv);
}
