/// @file small.h — the small JSON bodies: stop, started, unstarted, payload_ready, standing and their like.
#pragma once
#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "status_page.h"

namespace hvd::wire {

/// hvdrun → guard: this signal now, SIGKILL after the grace period.
struct Stop {
  std::string reason;
  double grace_seconds = 5;
  int signal = SIGTERM;  ///< SIGINT and SIGHUP reach the ranks as themselves; anything else is read as SIGTERM
};
std::string to_json(const Stop& s);
Stop stop_from_json(const std::string& text);

/// guard → hvdrun: what the rank really got.
struct Started {
  std::int64_t pid = 0;
  std::vector<int> cpus;  ///< empty: not bound
  int threads = 0;        ///< OMP_NUM_THREADS, 0: as the user set it
  std::string gpu;        ///< empty: none
  std::string python;     ///< "embedded", "exec", or empty for a command
  std::string warning;    ///< one line for the user, or empty
};
std::string to_json(const Started& s);
Started started_from_json(const std::string& text);

/// rank → guard: the payload could not be run; becomes Cause::unstarted.
struct Unstarted {
  int code = 2;
  std::string text, hint;
};
std::string to_json(const Unstarted& u);
Unstarted unstarted_from_json(const std::string& text);

/// guard → hvdrun: where the rank is.
struct StackPicture {
  std::string state;                      ///< one letter as in ps(1): R, S, D, T (stopped); empty: it does not run
  std::string python;                     ///< as faulthandler writes it; empty: it cannot tell
  std::string native;                     ///< frames of all threads; empty: not asked for
  std::vector<std::string> addresses{};   ///< of its host
  std::vector<std::string> unanswered{};  ///< addresses from which its connections get no acknowledgement any more
};
std::string to_json(const StackPicture& p);
StackPicture stack_picture_from_json(const std::string& text);

/// guard → hvdrun: what the rank is about.  Told when it has changed; waits once they have lasted two seconds.
struct Standing {
  Place place = Place::script;
  double place_seconds = 0;   ///< since it came there
  std::string waits_for;      ///< the first by name of the operations that it has submitted and that do not end
  double waited_seconds = 0;  ///< since none of them moves
};
std::string to_json(const Standing& s);
Standing standing_from_json(const std::string& text);

/// guard → hvdrun: what was left of the job on its host when all its ranks had ended.
struct Swept {
  std::vector<std::string> ended;  ///< names of processes that were killed
  std::vector<std::string> files;  ///< removed from /dev/shm
  std::vector<std::string> left;   ///< "1234 name": processes that could not be ended
};
std::string to_json(const Swept& s);
Swept swept_from_json(const std::string& text);

/// guard → hvdrun: this host's copy of the payload.
std::string payload_ready_to_json(const std::string& path);
std::string payload_ready_from_json(const std::string& text);

}  // namespace hvd::wire
