/// @file handle.h — one move-only owner for every foreign handle.
#pragma once
#include <utility>

namespace hvd {

/// Owns a value of Traits::type, released exactly once.
///
/// Traits supplies:
///   using type = ...;                      cheap to copy, comparable
///   static type null() noexcept;           the empty value
///   static void abandon(type) noexcept;    releases locally: never blocks, never talks to other ranks
/// If an orderly release needs the other ranks or can fail, Traits also supplies:
///   static void close(type);               may be collective, may throw
///
/// The destructor calls only abandon(), because it runs on error paths, where other ranks may be gone.  An orderly
/// shutdown calls close().
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
