/// @file collective_probe.h — asks Python in the rank which torch.distributed call it waits for, and takes the answers.
///
/// Python connects when the program first calls init_process_group() (python/start/hvdrank_collectives.py).  Once a
/// second the guard reads from /proc whether the rank's main thread has run.  The guard asks a sleeping rank once, and
/// a running rank every few seconds, since NCCL's waits use the processor.  While a rank waits, or has a collective
/// under way, the guard asks again.
#pragma once
#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "rank/streams/outbox.h"
#include "wire/collectives/collective_record.h"

namespace hvd::rank {

class CollectiveProbe {
 public:
  using Clock = std::chrono::steady_clock;

  /// Listens.  If that fails, no rank can connect, and name() is empty.
  CollectiveProbe();
  /// The name of the abstract socket.
  const std::string& name() const { return name_; }
  void add_fds(std::vector<pollfd>& fds) const;
  /// True while Python in the rank is connected.
  bool is_connected() const { return static_cast<bool>(link_); }
  /// The next time at which step() has something to do.
  Clock::time_point deadline() const;
  /// One turn of the guard's loop.  Sends Type::collective_wait when the rank's wait has changed, or goes on.
  void step(Outbox& outbox, Clock::time_point now);
  /// Asks for the last collectives.  answered(): they have come, or will not come.
  void ask_all(Clock::time_point now);
  bool answered(Clock::time_point now) const { return !all_asked_ || !link_ || now >= all_limit_; }
  /// The rank's last answer, complete or not; nothing if no answer has come. The collectives may be untrue if ask_all()
  /// is not answered and the main thread has run since. Then the answer has only the rank, its process and its groups.
  std::optional<wire::RankCollectives> last() const;
  /// The process that connected last; 0: none has connected.
  pid_t pid() const { return pid_; }

 private:
  struct Answer {
    wire::RankCollectives collectives;
    Clock::time_point at;
  };
  void accept_rank();
  void read_answers(Outbox& outbox, Clock::time_point now);
  void take(const std::string& text, Outbox& outbox, Clock::time_point now);
  void look(Clock::time_point now);
  void ask(char question);

  std::string name_;
  Fd listener_, link_;
  pid_t pid_ = 0;
  std::optional<Answer> told_;
  wire::CollectiveWait said_;  ///< the last report to hvdrun
  Clock::time_point said_at_{};
  std::string activity_;  ///< of the main thread, when the guard looked last
  Clock::time_point still_since_{}, look_at_{}, asked_at_{}, all_limit_{};
  bool asked_since_still_ = false, open_question_ = false, all_asked_ = false;
};

}  // namespace hvd::rank
