/// @file zmq_socket.h — owners and checked calls for ZeroMQ; used by zmq_channel.cc and zap.cc only.
#pragma once
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/handle.h"
#include "zmq_library.h"

namespace hvd::wire::zmq {

[[noreturn]] inline void fail(const std::string& call, int error) {
  throw Error(Code::unavailable, call, lib().strerror(error));
}
inline void check(int rc, const char* call) {
  if (rc != 0) fail(call, lib().error_number());
}

struct SocketTraits {
  using type = void*;
  static type null() noexcept { return nullptr; }
  static void abandon(type s) noexcept { lib().close(s); }
};
using Socket = Handle<SocketTraits>;

/// Closing a context waits for the sockets' linger.  All sockets must be closed before the context.
struct ContextTraits {
  using type = void*;
  static type null() noexcept { return nullptr; }
  static void abandon(type c) noexcept {
    while (lib().ctx_term(c) != 0 && lib().error_number() == EINTR) {}
  }
};
using Context = Handle<ContextTraits>;

inline Context make_context() {
  Context c(lib().ctx_new());
  if (!c) fail("zmq_ctx_new", lib().error_number());
  return c;
}

inline Socket make_socket(const Context& context, int kind) {
  Socket s(lib().socket(context.get(), kind));
  if (!s) fail("zmq_socket", lib().error_number());
  return s;
}

inline void set(const Socket& s, int option, int value) {
  check(lib().setsockopt(s.get(), option, &value, sizeof value), "zmq_setsockopt");
}
inline void set(const Socket& s, int option, const std::string& value) {
  check(lib().setsockopt(s.get(), option, value.data(), value.size()), "zmq_setsockopt");
}
inline int get_int(const Socket& s, int option) {
  int value = 0;
  std::size_t size = sizeof value;
  check(lib().getsockopt(s.get(), option, &value, &size), "zmq_getsockopt");
  return value;
}

/// One message part, released with the object.
class MessagePart {
 public:
  MessagePart() noexcept { lib().msg_init(&message_); }
  MessagePart(const MessagePart&) = delete;
  MessagePart& operator=(const MessagePart&) = delete;
  ~MessagePart() { lib().msg_close(&message_); }

  /// False when nothing waits (or the context ends, when blocking).
  bool receive(const Socket& s, int flags) {
    for (;;) {
      if (lib().msg_recv(&message_, s.get(), flags) >= 0) return true;
      if (lib().error_number() == EAGAIN || lib().error_number() == ETERM) return false;
      if (lib().error_number() != EINTR) fail("zmq_msg_recv", lib().error_number());
    }
  }
  bool more() const noexcept { return lib().msg_more(&message_) != 0; }
  const char* data() noexcept { return static_cast<const char*>(lib().msg_data(&message_)); }
  std::size_t size() const noexcept { return lib().msg_size(&message_); }
  std::string text() { return {data(), size()}; }
  int source_fd() noexcept { return lib().msg_get(&message_, ZMQ_SRCFD); }

 private:
  zmq_msg_t message_;
};

/// One event of a socket monitor.
struct MonitorEvent {
  int kind = 0;
  int value = 0;
};

/// Reads the next event of a monitor's PAIR socket; false when none waits.
inline bool next_event(const Socket& monitor, MonitorEvent* out) {
  MessagePart first, address;
  if (!first.receive(monitor, ZMQ_DONTWAIT)) return false;
  if (first.more()) address.receive(monitor, ZMQ_DONTWAIT);
  std::uint16_t kind = 0;
  std::uint32_t value = 0;
  if (first.size() < sizeof kind + sizeof value) return false;
  std::memcpy(&kind, first.data(), sizeof kind);
  std::memcpy(&value, first.data() + sizeof kind, sizeof value);
  *out = {kind, static_cast<int>(value)};
  return true;
}

/// Watches @p s for @p events; the result is read with next_event().
inline Socket monitor(const Context& context, const Socket& s, const char* name, int events) {
  check(lib().socket_monitor(s.get(), name, events), "zmq_socket_monitor");
  Socket m = make_socket(context, ZMQ_PAIR);
  set(m, ZMQ_LINGER, 0);
  check(lib().connect(m.get(), name), "zmq_connect");
  return m;
}

}  // namespace hvd::wire::zmq
