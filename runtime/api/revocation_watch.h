/// @file revocation_watch.h — a thread that sleeps until hvdrun says that this rank's world is over.
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

/// Reads the meeting's socket while nobody meets.
class RevocationWatch {
 public:
  /// Of the world @p epoch.  Throws Error{unavailable}.
  RevocationWatch(RankMeeting meeting, std::uint64_t epoch, std::shared_ptr<transport::Revocation> revocation);
  /// The engine must live until then.
  ~RevocationWatch();
  RevocationWatch(const RevocationWatch&) = delete;
  RevocationWatch& operator=(const RevocationWatch&) = delete;
  /// From now on it is told too; at once where the word has come before.
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
