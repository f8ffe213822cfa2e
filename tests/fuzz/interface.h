/// @file interface.h — calls of the C interface, with arguments that a string of bytes chooses.
///
/// Arguments are wrong in every way that a callee can notice: NULL, numbers out of range, stale handles, sizes that
/// overflow. Arguments that no callee can check are right: a pointer that is not NULL points to as much memory as the
/// request says. Every call must return a known status, and one line of text with a failure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "hvd/hvd.h"

namespace hvd::fuzz {

/// Takes decisions from bytes; zeros when no bytes are left.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  std::uint64_t number(int bytes);
  /// Returns a number from 0 to n - 1.
  std::uint64_t below(std::uint64_t n) { return number(n > 256 ? 4 : 1) % n; }
  bool rarely() { return below(16) == 0; }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

/// The state that all threads of a run share: handles, and the memory of tensors. The memory must outlive the
/// operations.
class Pool {
 public:
  void add(hvd_handle handle);
  hvd_handle pick(Bytes& from);
  unsigned char* memory(std::size_t bytes);
  /// The bytes of the tensors that are kept.
  std::size_t kept() const { return kept_; }
  /// Called after hvd_shutdown: no operation writes to tensors any more.
  void clear();

 private:
  std::mutex mutex_;
  std::deque<hvd_handle> handles_;
  std::vector<std::unique_ptr<unsigned char[]>> tensors_;
  std::size_t kept_ = 0;
};

/// Makes calls until the bytes are used up. @p first: this thread may call hvd_init and hvd_shutdown.
void play(Bytes bytes, Pool& pool, bool first);

}  // namespace hvd::fuzz
