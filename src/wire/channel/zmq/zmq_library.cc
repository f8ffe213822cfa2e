#include "zmq_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "base/error.h"

namespace hvd::wire::zmq {
namespace {

constexpr const char* name = "libzmq.so.5";

[[noreturn]] void fail() {
  const char* why = dlerror();
  throw Error(Code::unavailable, name, why ? why : "cannot be loaded", "install ZeroMQ: apt install libzmq5");
}

/// Opens the wheel's libzmq, else the system's.  Null: there is none, and dlerror() has the reason.
void* open_library() {
  std::error_code no_proc;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", no_proc);
  const std::string bundled = program.parent_path().parent_path() / "lib/hvdrun" / name;
  // The library is never closed, because its threads may outlive any owner.  RTLD_NOW would also bind the functions of
  // all libraries that it depends on.
  if (void* lib = dlopen(bundled.c_str(), RTLD_LAZY | RTLD_LOCAL)) return lib;
  return dlopen(name, RTLD_LAZY | RTLD_LOCAL);
}

template <class F>
void find(void* library, const char* function, F* out) {
  *out = reinterpret_cast<F>(dlsym(library, function));
  if (*out == nullptr) fail();
}

ZmqLibrary load() {
  void* lib = open_library();
  if (lib == nullptr) fail();
  ZmqLibrary l{};
  find(lib, "zmq_bind", &l.bind);
  find(lib, "zmq_close", &l.close);
  find(lib, "zmq_connect", &l.connect);
  find(lib, "zmq_ctx_new", &l.ctx_new);
  find(lib, "zmq_ctx_shutdown", &l.ctx_shutdown);
  find(lib, "zmq_ctx_term", &l.ctx_term);
  find(lib, "zmq_curve_keypair", &l.curve_keypair);
  find(lib, "zmq_curve_public", &l.curve_public);
  find(lib, "zmq_errno", &l.error_number);
  find(lib, "zmq_getsockopt", &l.getsockopt);
  find(lib, "zmq_msg_close", &l.msg_close);
  find(lib, "zmq_msg_data", &l.msg_data);
  find(lib, "zmq_msg_get", &l.msg_get);
  find(lib, "zmq_msg_init", &l.msg_init);
  find(lib, "zmq_msg_init_size", &l.msg_init_size);
  find(lib, "zmq_msg_more", &l.msg_more);
  find(lib, "zmq_msg_recv", &l.msg_recv);
  find(lib, "zmq_msg_send", &l.msg_send);
  find(lib, "zmq_msg_size", &l.msg_size);
  find(lib, "zmq_send", &l.send);
  find(lib, "zmq_setsockopt", &l.setsockopt);
  find(lib, "zmq_socket", &l.socket);
  find(lib, "zmq_socket_monitor", &l.socket_monitor);
  find(lib, "zmq_strerror", &l.strerror);
  find(lib, "zmq_z85_decode", &l.z85_decode);
  find(lib, "zmq_z85_encode", &l.z85_encode);
  return l;
}

}  // namespace

const ZmqLibrary& lib() {
  static const ZmqLibrary loaded = load();
  return loaded;
}

}  // namespace hvd::wire::zmq
