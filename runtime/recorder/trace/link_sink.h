/// @file link_sink.h — batches to the guard, over the socket whose descriptor is in HVD_LINK_FD.
#pragma once
#include <atomic>
#include <chrono>
#include <vector>

#include "recorder/trace/tracer.h"

namespace hvd::trace {

/// Frames as in message.h, type trace.  Each is small enough to be one buffer of the socket, so it needs no lock
/// against other writers of the same socket, if they keep to that size too.
class LinkSink : public Sink {
 public:
  explicit LinkSink(int fd) : fd_(fd) {}  ///< not owned
  bool write(std::span<const std::uint8_t> body) override;
  void hurry() override;

 private:
  bool wait_for_room();

  const int fd_;
  std::vector<std::uint8_t> frame_;
  std::atomic<std::int64_t> deadline_ns_{0};  ///< CLOCK_MONOTONIC; 0: none
};

}  // namespace hvd::trace
