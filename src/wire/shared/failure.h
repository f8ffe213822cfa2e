/// @file failure.h — why operations of a rank have failed.  A failure is a message of libhvd to the guard, and a part
/// of the death record.
///
/// hvdrun decides on these numbers, never on the text of an exception.  Header only: libhvd links it too.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace hvd::wire {

struct Failure {
  std::int32_t code = 0;   ///< hvd_status of the operations; 0: no failure (the rank has formed a new world)
  std::int32_t peer = -1;  ///< the rank of the world that has died or left; -1: no rank's end is the cause
  std::string operation;   ///< names of the operations that were under way
};

/// Body of Type::failure: code and peer in the host's byte order (both ends are on one host), then the names.
inline std::string pack(const Failure& f) {
  constexpr std::size_t most_name_bytes = 1000;
  std::string body(2 * sizeof(std::int32_t), '\0');
  std::memcpy(body.data(), &f.code, sizeof f.code);
  std::memcpy(body.data() + sizeof f.code, &f.peer, sizeof f.peer);
  return body + f.operation.substr(0, most_name_bytes);
}

/// A malformed body gives no failure, because a rank may send anything.
inline Failure failure_from(std::string_view body) {
  Failure f;
  if (body.size() < 2 * sizeof(std::int32_t)) return f;
  std::memcpy(&f.code, body.data(), sizeof f.code);
  std::memcpy(&f.peer, body.data() + sizeof f.code, sizeof f.peer);
  f.operation = body.substr(2 * sizeof(std::int32_t));
  return f.code < 0 || f.code > 255 || f.peer < -1 ? Failure{} : f;
}

}  // namespace hvd::wire
