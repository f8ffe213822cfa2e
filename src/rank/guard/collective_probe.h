/// @file collective_probe.h — asks Python in the rank for what it waits in torch.distributed, and hears the answers.
///
/// Python connects when it makes its first process group (python/start/hvdrank_collectives.py).  The guard then looks
/// once a second, from outside, whether the rank's main thread has run.  It asks a rank that has not, once; and one
/// that runs, every few seconds, since NCCL's waits use the processor.
#pragma once
#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "rank/streams/outbox.h"
#include "wire/shared/collective_record.h"

namespace hvd::rank {

class CollectiveProbe {
 public:
  using Clock = std::chrono::steady_clock;

  /// Listens.  Where that fails nobody can connect, and name() is empty.
  CollectiveProbe();
  /// Of the abstract socket.
  const std::string& name() const { return name_; }
  void add_fds(std::vector<pollfd>& fds) const;
  /// Somebody is to be asked now and then.
  bool is_connected() const { return static_cast<bool>(link_); }
  /// The next time at which step() has something to do.
  Clock::time_point deadline() const;
  /// One turn of the guard's loop.  Sends Type::collective_wait when what the rank waits for has changed.
  void step(Outbox& outbox, Clock::time_point now);
  /// Asks for the last collectives.  answered() tells when they are there, or are not to be had.
  void ask_all(Clock::time_point now);
  bool answered(Clock::time_point now) const { return !all_asked_ || !link_ || now >= all_limit_; }
  /// What the rank told last, whole or not; nothing: it uses no torch.distributed.
  std::optional<wire::RankCollectives> last() const { return told_; }
  /// The process that trains, where it is another than the rank's first one; 0: not known.
  pid_t pid() const { return pid_; }

 private:
  void accept_rank();
  void read_answers(Outbox& outbox, Clock::time_point now);
  void take(const std::string& text, Outbox& outbox, Clock::time_point now);
  void look(Clock::time_point now);
  void ask(char question);

  std::string name_;
  Fd listener_, link_;
  pid_t pid_ = 0;
  std::optional<wire::RankCollectives> told_;
  wire::CollectiveWait said_;  ///< to hvdrun
  Clock::time_point said_at_{};
  std::string activity_;  ///< of the main thread, when last looked at
  Clock::time_point still_since_{}, look_at_{}, asked_at_{}, all_limit_{};
  bool asked_since_still_ = false, open_question_ = false, all_asked_ = false;
};

}  // namespace hvd::rank
