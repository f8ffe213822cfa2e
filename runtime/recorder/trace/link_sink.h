/// @file link_sink.h — sends trace frames to the guard, over the socket whose descriptor is in HVD_LINK_FD.
#pragma once
#include <atomic>
#include <chrono>
#include <vector>

#include "recorder/trace/tracer.h"

namespace hvd::trace {

/// Sends frames of the type trace (message.h).  A frame fits one buffer of the socket.  So it needs no lock against
/// other writers of the same socket, if their frames fit one buffer too.
class LinkSink : public Sink {
 public:
  explicit LinkSink(int fd) : fd_(fd) {}  ///< @p fd belongs to the caller
  bool write(std::span<const std::uint8_t> body) override;
  void hurry() override;

 private:
  bool wait_for_room();

  const int fd_;
  std::vector<std::uint8_t> frame_;
  std::atomic<std::int64_t> deadline_ns_{0};  ///< of hurry(), CLOCK_MONOTONIC; 0: none
};

}  // namespace hvd::trace
