/// @file job_event.h — everything that happens while a job runs, as one variant.
///
/// Guards, host daemons and hvdrun's own parts report events.  supervise/event_table.cc gives each event to its part.
/// A new guard message needs a type in wire/messages/message.h.  Such a message also needs a `using` and a variant
/// entry in this file, and a line of the table.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "wire/collectives/collective_record.h"
#include "wire/collectives/operation_record.h"
#include "wire/messages/cleanup_result.h"
#include "wire/messages/death.h"
#include "wire/messages/hello.h"
#include "wire/messages/meeting_message.h"
#include "wire/messages/message.h"
#include "wire/messages/stack_picture.h"
#include "wire/messages/start_report.h"
#include "wire/messages/status_report.h"
#include "wire/shared/agreement_finding.h"
#include "wire/shared/stalls.h"
#include "wire/shared/step_record.h"

namespace hvd::launcher {

// Messages of guards.  A string_view in a body is valid only while the event is delivered.

/// Calls `read`.  A reader that checks ranks in the body also gets the number of the job's ranks.
template <auto read>
auto read_body(const std::string& body, int num_ranks) {
  if constexpr (std::is_invocable_v<decltype(read), const std::string&, int>)
    return read(body, num_ranks);
  else
    return read(body);
}

/// A guard's message about its rank.
/// @tparam message_type  wire/messages/message.h
/// @tparam read          reads the body; throws Error{usage} for a malformed one
/// @tparam may_be_bad    user code writes the body: a malformed message is ignored
template <wire::Type message_type, auto read, bool may_be_bad = false>
struct GuardEvent {
  static constexpr auto type = message_type;
  static constexpr auto reader = read_body<read>;
  static constexpr bool is_from_user_code = may_be_bad;
  int rank;
  decltype(reader(std::string(), 0)) body;
};

struct RankOutput {
  int stream;  ///< 1 or 2
  std::string_view bytes;
};
RankOutput read_output(const std::string& body);
/// Reads the number of bytes of standard input that the rank has read in all.  UINT64_MAX: the rank reads no more.
std::uint64_t read_taken(const std::string& body);
/// True when a signal has stopped the rank, false when the rank goes on again.
bool read_paused(const std::string& body);
inline std::string_view read_bytes(const std::string& body) { return body; }

using RankStarted = GuardEvent<wire::Type::started, wire::start_report_from_json>;
using RankWrote = GuardEvent<wire::Type::output, read_output, true>;
using RankTraced = GuardEvent<wire::Type::trace, read_bytes>;
using ResultCame = GuardEvent<wire::Type::result, read_bytes>;
using OperationsStalled = GuardEvent<wire::Type::stall, wire::stalls_from_json, true>;
using FindingCame = GuardEvent<wire::Type::finding, wire::agreement_finding_from_json, true>;
using CollectiveWaited = GuardEvent<wire::Type::collective_wait, wire::collective_wait_from_json, true>;
using StatusCame = GuardEvent<wire::Type::standing, wire::status_report_from_json>;
using StackCame = GuardEvent<wire::Type::stack, wire::stack_picture_from_json>;
using StepsCame = GuardEvent<wire::Type::steps, wire::decode_step_records>;
using ReportWanted = GuardEvent<wire::Type::want_report, read_bytes>;
using OperationsCame = GuardEvent<wire::Type::operations, wire::rank_operations_from_json, true>;
using HostSwept = GuardEvent<wire::Type::swept, wire::cleanup_result_from_json>;
using InputTaken = GuardEvent<wire::Type::taken, read_taken, true>;
using RankPaused = GuardEvent<wire::Type::paused, read_paused, true>;
using ConsoleSaid = GuardEvent<wire::Type::console, read_bytes>;

// Events that the session makes itself.

struct GuardCame {
  wire::Hello hello;
};

struct RankEnded {
  wire::DeathRecord death;  ///< time_ns is in our clock
};

struct ClockSampled {
  int rank;
  std::int64_t sent_ns, received_ns, guard_ns;
};

/// Something unusual, for --verbose.
struct SessionNote {
  std::string line;
};

// Host daemons.

/// The rank has called MPI_Abort.
struct RankAborted {
  int rank, status;
};

/// The rank has called MPI_Comm_spawn, which is refused.
struct RankSpawned {
  int rank;
};

/// The host has no PMIx server, so its ranks run without MPI.
struct PmixMissing {
  int host;
  std::string why;
};

/// A host's daemon has moved its connection to another network (wire/channel/paths.h).
struct HostMoved {
  int host;
  std::string from, to;  ///< our addresses in the two networks
};

/// A guard has ended badly, perhaps before it connected, or could not be started.
struct GuardEnded {
  int rank;
  int status;                 ///< waitpid(2)'s
  std::string why_unstarted;  ///< empty: it was started
};

/// A signal had stopped a process of ours for StoppedChildren::limit or more, and another one has sent it SIGCONT.
struct GuardContinued {
  int host;
  int rank;  ///< the guard's rank; -1: the host's PMIx server
  int pid;
  bool is_daemon = false;  ///< it is the host's daemon
};

/// The rank waits in hvd.init() for all ranks.  Only an elastic job acts on this event.
struct WorkerWaits {
  int rank;
};

/// These ranks have met and form a world.  hvdrun sends them the list of members.
struct WorldMet {
  std::uint64_t epoch;
  std::vector<std::int32_t> ranks;
};

/// A rank that will call init() asks for the ranks of the next world.
struct NextWorldAsked {
  wire::MeetingMessage question;
};

// hvdrun's own parts.

/// By rank: the rank's stack at the time of the question.  Ranks without an answer are missing.
using Pictures = std::map<int, wire::StackPicture>;

/// A line about a hang, for the user.
struct HangTold {
  std::string line;
};

/// A hang has lasted for HOROVOD_STALL_SHUTDOWN_TIME_SECONDS.
struct HangTooLong {
  std::string why;
};

/// The ranks that others wait for do work that ends by itself: libhvd's stall limit is to pause.
struct LimitPaused {
  std::uint32_t seconds;  ///< from now on
};

/// Asks ranks where they are.  `done` is called later, with the answers.
struct StacksWanted {
  std::vector<int> ranks;
  std::function<void(const Pictures&)> done;
};

/// Ranks have begun to wait for an operation.  hvdrun then tells the user where the ranks' operations differ.
struct DifferenceWanted {};

/// Asks all ranks for their last operations.  `done` is called later, with the answers.
struct OperationsAsked {
  std::function<void(const wire::JobOperations&)> done;
};

/// `hvdrun kill`.
struct KillWanted {};

/// An elastic job cannot go on.
struct ElasticOver {
  std::string why;
};

using JobEvent =
    std::variant<RankStarted, RankWrote, RankTraced, ResultCame, OperationsStalled, FindingCame, CollectiveWaited,
                 StatusCame, StackCame, StepsCame, ReportWanted, OperationsCame, HostSwept, InputTaken, RankPaused,
                 ConsoleSaid, GuardCame, RankEnded, ClockSampled, SessionNote, RankAborted, RankSpawned, PmixMissing,
                 HostMoved, GuardEnded, GuardContinued, WorkerWaits, WorldMet, NextWorldAsked, HangTold, HangTooLong,
                 LimitPaused, StacksWanted, DifferenceWanted, OperationsAsked, KillWanted, ElasticOver>;

/// Takes one event.  The finder of the event calls it on its own thread and waits for its return.
using EventSink = std::function<void(const JobEvent&)>;

/// Reads a guard's message as an event.  Nothing: no event has this type, or user code wrote a malformed body.
/// Throws Error{usage} when another body is malformed.
std::optional<JobEvent> event_of(wire::Type type, int rank, const std::string& body, int num_ranks);

}  // namespace hvd::launcher
