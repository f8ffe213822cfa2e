/// @file handle.h — one move-only owner for every foreign handle.
#pragma once
#include <utility>

namespace hvd {

/// Owns a value of Traits::type, released exactly once.
///
/// Traits supplies:
///   using type = ...;                      cheap to copy, comparable
///   static type null() noexcept;           the empty value
///   static void abandon(type) noexcept;    local, never blocks, never talks to peers
/// and, when orderly release needs the peers or can fail:
///   static void close(type);               may be collective, may throw
///
/// The destructor runs on error paths, where other ranks may be gone, so it
/// only ever calls abandon().  Orderly shutdown calls close() by name.
template <class Traits>
class Handle {
 public:
  using type = typename Traits::type;

  Handle() noexcept = default;
  explicit Handle(type v) noexcept : v_(v) {}
  Handle(Handle&& o) noexcept : v_(o.release()) {}
  Handle& operator=(Handle&& o) noexcept {
    if (this != &o) {
      reset();
      v_ = o.release();
    }
    return *this;
  }
  ~Handle() { reset(); }

  type get() const noexcept { return v_; }
  explicit operator bool() const noexcept { return v_ != Traits::null(); }
  type release() noexcept { return std::exchange(v_, Traits::null()); }
  void reset() noexcept {
    if (*this) Traits::abandon(release());
  }
  void close() {
    if (*this) Traits::close(release());
  }

 private:
  type v_ = Traits::null();
};

}  // namespace hvd
