/// @file message.h — the types of all messages between hvdrun, host daemons, guards and ranks.
///
///   channel   hvdrun ↔ guard and hvdrun ↔ host daemon (channel/channel.h).  Between hosts a guard's frames travel
///             through the daemon of its host (channel/relayed_frame.h).
///   link      guard ↔ rank process: the socket whose descriptor is in HVD_LINK_FD (link.h).
///
/// A comment below gives the body of the message.  JSON bodies are parsed with a limit on depth and size.  Results,
/// output and texts of exceptions come from the user's code: these bytes are never interpreted.
#pragma once
#include <cstdint>

namespace hvd::wire {

inline constexpr int protocol_version = 1;

enum class Type : std::uint16_t {
  // guard → hvdrun
  hello = 1,          ///< JSON Hello (hello.h): the first message; the answer is a manifest
  output = 2,         ///< u8 stream (1 stdout, 2 stderr), then bytes; a piece may end inside a UTF-8 sequence
  death = 3,          ///< JSON DeathRecord (death.h): the rank has ended
  clean = 4,          ///< empty: the rank's descendants have ended too, and the guard waits for `release`
  payload_ready = 5,  ///< JSON PayloadReady (payload_ready.h): this host has its copy of the payload
  trace = 6,          ///< bytes of trace/trace_record.h, from the rank
  result = 7,         ///< a piece of the rank's result
  phase = 8,          ///< a word for the verdict: python, mpi_init, initialised, finalised, leaves (death.h)
  pong = 9,           ///< i64 time of the `ping`, i64 the guard's CLOCK_MONOTONIC in ns
  started = 10,       ///< JSON StartReport (start_report.h): the cores, GPU and Python of the rank
  stall = 11,         ///< JSON list of Stall (shared/stalls.h), from a coordinator: operations that wait, or none
  unstarted = 12,     ///< JSON StartFailure (start_report.h), rank → guard: the payload cannot be run
  stack = 13,         ///< JSON StackPicture (stack_picture.h): the answer to `stacks`
  swept = 15,         ///< JSON CleanupResult (cleanup_result.h): the answer to a release with "sweep"
  taken = 16,         ///< u64 bytes of `input` that the rank has read so far; all ones: it reads no more
  paused = 17,        ///< u8: 1 a signal has stopped the rank, 0 the rank goes on
  standing = 18,      ///< JSON StatusReport (status_report.h).  rank → guard it is empty: the rank has loaded libhvd
  failure = 19,       ///< Failure (shared/failure.h), rank → guard: why operations have failed
  pmix = 20,          ///< pmix_message.h, hvdrun ↔ host daemon
  meeting = 21,       ///< meeting_message.h, hvdrun ↔ host daemon: ranks find their world
  steps = 22,         ///< records of shared/step_record.h: the rank's last steps
  operations = 23,    ///< JSON RankOperations (collectives/operation_record.h): the rank's last operations
  want_report = 24,   ///< empty: the rank's program wants `live_report` from now on
  relayed = 25,       ///< channel/relayed_frame.h, hvdrun ↔ host daemon: a frame of one guard
  console = 26,       ///< ConsoleOutput (console.h), then bytes of the debugger that `hvdrun attach` has opened
  collective_wait = 28,  ///< JSON CollectiveWait (collectives/collective_record.h): a torch.distributed wait, or none
  finding = 53,  ///< JSON AgreementFinding (shared/agreement_finding.h), from the rank: what --agreement has found
  mismatched_call = 57,  ///< JSON (shared/mismatched_call.h), rank → guard: a call on which ranks disagree
  // hvdrun ↔ host daemon, over several networks (channel/paths.h)
  path = 54,       ///< the first frame of each path: to which connection it belongs
  moved = 55,      ///< u64 frames received so far: frames travel by this path from now on
  confirmed = 56,  ///< u64 frames received so far
  // hvdrun join → hvdrun --listen
  join = 29,           ///< JSON JoinOffer (join_offer.h): the first message of a host that joins
  script_output = 30,  ///< bytes that the shell of `script` and its daemon have written
  script_end = 31,     ///< decimal exit code of that shell
  leave = 38,          ///< empty: the host was told to end
  // PMIx server → its host daemon
  pmix_environment = 27,  ///< i32 rank, then "NAME=value" texts, each ended by a zero byte
  // hvdrun → guard
  manifest = 32,  ///< JSON RankManifest (manifest/manifest.h)
  payload = 33,   ///< a piece of the payload, in order; an empty piece ends it
  stop = 34,      ///< JSON StopRequest (stop_request.h): a signal now, SIGKILL after the grace.  To a host daemon
                  ///< it is empty: the daemon ends as if hvdrun had ended
  signal = 35,    ///< i32 number of a signal for the rank; SIGTSTP also stops ranks that do not handle it
  release = 36,   ///< the guard may exit ("sweep": after a clean-up of its host); a daemon: no more guards start
  ping = 37,      ///< i64 hvdrun's CLOCK_MONOTONIC in ns
  stacks = 39,    ///< "native", or empty for Python frames only
  input = 40,     ///< a piece of the rank's standard input; an empty piece ends it
  complete = 41,  ///< all ranks have come: mpirun's daemon on this host needs no more connections
  daemon_manifest = 42,  ///< JSON DaemonManifest (manifest/daemon_manifest.h), to a host daemon
  host_change = 43,      ///< u8: hosts were 1 removed, 2 added, 3 both; 0: workers for a change are being started
  start_rank = 44,       ///< i32 number of a worker, to a host daemon: start one more guard, for this worker
  ask_operations = 45,   ///< u32: send at most this many of the rank's last operations
  live_report = 46,      ///< JSON as hvd.report() returns it: steps, times, findings of the last half minute
  timeline = 47,         ///< u8: from its next step on the rank records the timeline (1), or stops (0)
  console_input = 48,    ///< ConsoleInput (console.h), then bytes
  pause_limit = 52,      ///< u32 seconds from now: libhvd's stall limit ends no operation meanwhile
  // hvdrun --listen → hvdrun join
  script = 49,       ///< a piece of a text for /bin/sh; an empty piece ends it, and the shell starts
  script_stop = 50,  ///< empty: the shell's processes are to end
  dismiss = 51,      ///< decimal exit code for the host, a blank, and the reason as one line
};

}  // namespace hvd::wire
