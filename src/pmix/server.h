/// @file server.h — the PMIx server of one host's ranks; mpirun's daemon does the same for Open MPI's processes.
///
/// libpmix calls back in a thread of its own.  Each call becomes an Event, which the owner's thread takes.  The server
/// never blocks and never talks to other hosts: the owner carries fences and requests between the hosts.
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
    connected,  ///< a rank has called MPI_Init, or another user of PMIx
    fence,      ///< all local participants have come: gather `data` of all hosts, then finish_fence()
    request,    ///< a rank of this host needs the data of `rank`, of another host: then answer()
    published,  ///< the reply to ask(): `data` of a rank of this host; with `failed` none
    abort,      ///< MPI_Abort with `status`
    spawn,      ///< MPI_Comm_spawn; the server refuses every call
  };
  Kind kind;
  int rank = -1;
  std::uint64_t token = 0;  ///< number of the fence or request
  std::vector<int> ranks;   ///< fence: its participants, ascending; empty: all
  std::string data;
  int status = 0;
  bool failed = false;
};

class Server {
 public:
  /// Listens.  One for each process, ever: libpmix has one state.  This process has one thread so far: its environment
  /// is changed for the time of the call.  No PMIX_* of an outer launcher may be left in this
  /// process's environment.
  /// @param folder  of this host and job; only we can enter it
  /// @param host    this host's name in the job
  /// @param ranks_below  the process whose descendants alone may connect
  /// Throws Error{unavailable}.
  Server(const PmixLibrary& library, const std::string& folder, const std::string& host, pid_t ranks_below);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Makes the job's processes of this host known.  libpmix ends each of its calls within milliseconds.
  /// Throws Error{unavailable}; Error{timeout} where a call takes longer than @p limit: this server is of no use then.
  void add(const PmixJob& job, std::chrono::milliseconds limit = std::chrono::seconds(10));
  /// The variables of @p rank, of this host, for PMIx: "NAME=value" texts.
  std::vector<std::string> environment(int rank) const;

  /// Readable while events wait.
  int fd() const;
  std::optional<Event> next();

  /// The data of all hosts, in any order.  @p failed: one of the hosts will never come.
  void finish_fence(std::uint64_t token, std::string data, bool failed = false);
  /// The data of another host's rank.  @p failed: the data will never come.
  void answer(std::uint64_t token, std::string data, bool failed = false);
  /// Asks for the data of the local @p rank; the reply is the event `published` with @p token.
  void ask(int rank, std::uint64_t token);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hvd::pmix
