/// @file pmix_message.h — what the PMIx servers of a job's hosts say to one another, by way of hvdrun.
///
/// One struct for both directions.  Host daemon → hvdrun: fence, request, published, abort, spawn, broken, guard_ended.
/// hvdrun → host daemon: fence_data, answer, ask.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::wire {

struct PmixMessage {
  enum class Kind : std::uint8_t {
    fence = 1,    ///< all of this host's participants have come: `ranks`, empty for all; `data` is theirs
    request,      ///< a process here needs what `rank`, of another host, publishes
    published,    ///< the reply to `ask`
    abort,        ///< `rank` has called MPI_Abort with `status`; `data` is its text
    spawn,        ///< `rank` has called MPI_Comm_spawn, which was refused
    broken,       ///< this host's server does not start, and its ranks are started without; `data` says why
    guard_ended,  ///< the guard of `rank` has ended badly: `status` is what waitpid(2) said
    fence_data,   ///< the reply to `fence`: all hosts' data, or `failed`
    answer,       ///< the reply to `request`
    ask,          ///< another host needs what `rank`, of this host, publishes
  };
  Kind kind = Kind::fence;
  bool failed = false;
  std::int32_t rank = -1;
  std::int32_t status = 0;
  std::uint64_t token = 0;  ///< given by who asks, repeated in the reply
  std::vector<std::int32_t> ranks{};
  std::string data{};
};

std::string encode(const PmixMessage& message);
/// Throws Error{usage} when @p bytes are not one whole message.
PmixMessage decode_pmix_message(std::string_view bytes);

}  // namespace hvd::wire
