/// @file held_port.h — a TCP port that a rank's process will open.
#pragma once
#include "base/file.h"

namespace hvd {

/// A TCP port that is kept free.  The port is bound, so the kernel does not give it to a program that asks for any
/// port.  No process listens on it, so a server's bind() succeeds: both set SO_REUSEADDR, as servers do.
class HeldPort {
 public:
  /// Throws Error{unavailable} when no port is free.
  HeldPort();
  int number() const { return number_; }

 private:
  Fd socket_;
  int number_ = 0;
};

}  // namespace hvd
