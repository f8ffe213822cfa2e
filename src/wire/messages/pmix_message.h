/// @file pmix_message.h — messages between the PMIx servers of a job's hosts; hvdrun passes them on.
///
/// One struct for both directions.  Host daemon → hvdrun: fence, request, published, abort, spawn, broken, guard_ended,
/// continued.  hvdrun → host daemon: fence_data, answer, ask.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::wire {

struct PmixMessage {
  enum class Kind : std::uint8_t {
    fence = 1,    ///< all participants of this host have come: `ranks` (empty: all ranks), with their `data`
    request,      ///< a process of this host needs the data of `rank`, of another host
    published,    ///< the reply to `ask`
    abort,        ///< `rank` has called MPI_Abort with `status`; `data` is the text
    spawn,        ///< `rank` has called MPI_Comm_spawn; the server refuses every call
    broken,       ///< this host has no server and starts its ranks without PMIx; `data` says why
    guard_ended,  ///< the guard of `rank` was killed or failed: `status` as from waitpid(2).  Or it was not started,
                  ///< and `data` says why
    fence_data,   ///< the reply to `fence`: all hosts' data, or `failed`
    answer,       ///< the reply to `request`
    ask,          ///< another host needs the data of `rank`, of this host
    continued,    ///< a process of this host was stopped by a signal and got SIGCONT; `status` is its process id.  It
                  ///< is the guard of `rank`; with -1 the PMIx server; with `failed` the daemon itself
  };
  Kind kind = Kind::fence;
  bool failed = false;
  std::int32_t rank = -1;
  std::int32_t status = 0;
  std::uint64_t token = 0;  ///< chosen by the sender of a question, repeated in the reply
  std::vector<std::int32_t> ranks{};
  std::string data{};
};

std::string encode(const PmixMessage& message);
/// Throws Error{usage} when @p bytes are not one whole message.
PmixMessage decode_pmix_message(std::string_view bytes);

}  // namespace hvd::wire
