/// @file server.h — the PMIx server of one host's ranks.  Under mpirun, mpirun's daemon has this function.
///
/// libpmix has its own thread, which calls back.  Each callback becomes an Event, and the owner's thread takes it with
/// next().  The server never talks to other hosts: the owner passes fences and requests between hosts.  Only add()
/// waits, for libpmix.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pmix/pmix_job.h"

namespace hvd::pmix {

struct Event {
  enum class Kind {
    connected,  ///< `rank` has called MPI_Init, or PMIx in another way
    fence,      ///< all local participants have come: gather `data` of all hosts, then call finish_fence()
    request,    ///< a rank of this host needs the data of `rank`, which is on another host: call answer()
    published,  ///< the reply to ask(): `data` of a rank of this host; with `failed`, no data
    abort,      ///< MPI_Abort with `status`
    spawn,      ///< MPI_Comm_spawn; the server refuses every call
  };
  Kind kind;
  int rank = -1;
  std::uint64_t token = 0;  ///< number of the fence or request
  std::vector<int> ranks;   ///< fence: the participants, ascending; empty: all ranks
  std::string data;
  int status = 0;
  bool failed = false;
};

class Server {
 public:
  /// Starts to listen.  A process can make one server, because libpmix has one global state.
  /// Call this while the process has one thread: the call changes the environment, and restores it.  The environment
  /// must not contain PMIX_* variables of an outer launcher.
  /// @param folder       for files of libpmix, private to this user, host and job
  /// @param host         this host's name in the job
  /// @param ranks_below  only descendants of this process may connect
  /// Throws Error{unavailable}.
  Server(const PmixLibrary& library, const std::string& folder, const std::string& host, pid_t ranks_below);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Registers the job and its processes of this host, and waits for libpmix.  Each of libpmix's calls takes
  /// milliseconds.
  /// Throws Error{unavailable}.  Throws Error{timeout} if a call takes longer than @p limit; the server is then
  /// useless.
  void add(const PmixJob& job, std::chrono::milliseconds limit = std::chrono::seconds(10));
  /// PMIx's environment variables for @p rank, which is of this host: "NAME=value" texts.  Throws Error{unavailable}.
  std::vector<std::string> environment(int rank) const;

  /// A descriptor that is readable while events wait.
  int fd() const;
  std::optional<Event> next();

  /// Ends a fence.  @p data  the data of all hosts, in any order.  @p failed  true: a host will never take part
  void finish_fence(std::uint64_t token, std::string data, bool failed = false);
  /// Answers a request.  @p data  the data of another host's rank.  @p failed  true: the data will never come
  void answer(std::uint64_t token, std::string data, bool failed = false);
  /// Asks for the data of the local @p rank.  The reply is the event `published` with the same @p token.
  void ask(int rank, std::uint64_t token);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hvd::pmix
