/// @file sim_channel.h — a channel for tests: no sockets, no keys, no threads.
///
/// Frames arrive at once and in order.  The test chooses the length of the queues, and cuts connections.  One thread
/// only.
#pragma once
#include <memory>

#include "channel.h"

namespace hvd::wire {

class SimNet {
 public:
  /// @p queue_frames  how many frames wait for a reader, each way and peer, before send() is false.
  explicit SimNet(std::size_t queue_frames = 64);
  std::unique_ptr<Listener> listen();
  std::unique_ptr<Connection> connect();
  /// Ends the connection of the nth connect() (from 0), as if its host had gone.
  /// @param loses_frames  frames on their way do not arrive
  void cut(std::size_t nth, bool loses_frames = false);

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace hvd::wire
