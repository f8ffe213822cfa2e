/// @file revocation_watch.h — a thread that sleeps until hvdrun ends (revokes) this rank's world.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "api/rank_meeting.h"
#include "base/file.h"
#include "core/engine/engine.h"
#include "transport/revocation.h"

namespace hvd::api {

/// Reads the meeting's socket.  No thread may call RankMeeting::meet() while this object exists.
class RevocationWatch {
 public:
  /// Watches for the end of the world @p epoch, and then raises @p revocation.  Throws Error{unavailable}.
  RevocationWatch(RankMeeting meeting, std::uint64_t epoch, std::shared_ptr<transport::Revocation> revocation);
  /// Stops the thread.  The engine of tell() must outlive this object.
  ~RevocationWatch();
  RevocationWatch(const RevocationWatch&) = delete;
  RevocationWatch& operator=(const RevocationWatch&) = delete;
  /// Also calls engine->revoke() when the world ends; at once if it has ended already.
  void tell(core::Engine* engine);

 private:
  void run();

  RankMeeting meeting_;
  const std::uint64_t epoch_;
  const std::shared_ptr<transport::Revocation> revocation_;
  std::atomic<core::Engine*> engine_{nullptr};
  Fd stop_;
  std::thread thread_;
};

}  // namespace hvd::api
