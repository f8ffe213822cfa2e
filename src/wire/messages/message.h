/// @file message.h — every message between hvdrun and a guard, and between a guard and its rank.
///
/// Two links, one vocabulary:
///   channel   hvdrun ↔ guard, channel.h; between hosts through the host's daemon, relayed_frame.h.
///   link      guard ↔ rank process: the socket (SOCK_SEQPACKET) whose descriptor is in HVD_LINK_FD.
///             Each frame: u32 body length, u16 type, u16 zero, body (little endian); link.h.
/// JSON bodies are small, and parsed with a limit on depth and size.  Everything that comes from user code (results,
/// output, exception text) is opaque bytes.
#pragma once
#include <cstdint>

namespace hvd::wire {

inline constexpr int protocol_version = 1;

enum class Type : std::uint16_t {
  // guard → hvdrun
  hello = 1,  ///< JSON Hello (hello.h): first message; hvdrun answers with manifest
  output =
      2,  ///< u8 stream (1 stdout, 2 stderr), then bytes as read; never split inside a UTF-8 sequence is NOT promised
  death = 3,  ///< JSON DeathRecord (death.h): the rank has ended, well or not
  clean = 4,  ///< the rank and all its descendants have ended; the guard waits for release
  payload_ready =
      5,  ///< JSON PayloadReady (payload_ready.h): this host's copy of the payload can be read there by the same user
  trace = 6,     ///< trace_record.h bytes, from the rank
  result = 7,    ///< a piece of the rank's result
  phase = 8,     ///< UTF-8 word: python, mpi_init, initialised, finalised (for the verdict)
  pong = 9,      ///< i64 echoed hvdrun time, i64 guard CLOCK_MONOTONIC ns (clock alignment)
  started = 10,  ///< JSON StartReport (start_report.h): the cores, GPU and Python that the rank got
  stall =
      11,  ///< JSON Stall (stalls.h), from the rank's libhvd: operations that wait, and for which ranks; may be none
  unstarted =
      12,  ///< JSON StartFailure (start_report.h), rank → guard: the payload cannot be run; ends up in the death record
  stack = 13,    ///< JSON StackPicture (stack_picture.h): where the rank is
  swept = 15,    ///< JSON CleanupResult (cleanup_result.h): the answer to a release that asked for it
  taken = 16,    ///< u64: bytes of `input` that the rank has taken in all; all ones: it takes no more
  paused = 17,   ///< u8: 1 when the rank has been stopped by a signal, 0 when it goes on
  failure = 19,  ///< Failure (failure.h), rank → guard: why operations have failed; ends up in the death record
  standing =
      18,     ///< JSON StatusReport (status_report.h): where the rank is, and what it waits for; rank → guard: empty
  pmix = 20,  ///< pmix_message.h, between hvdrun and a host daemon, both ways
  meeting = 21,      ///< meeting_message.h, between hvdrun and a host daemon, both ways: ranks find their world
  steps = 22,        ///< step_record.h: what the rank did in its last steps
  operations = 23,   ///< JSON RankOperations (operation_record.h): the rank's last operations
  want_report = 24,  ///< the rank's program asks for the job's live report, from now on
  relayed = 25,      ///< relayed_frame.h: a guard's frame, between hvdrun and its host's daemon, both ways
  console = 26,      ///< ConsoleOutput (console.h), then bytes: of the debugger that hvdrun attach has opened
  // PMIx server → its host daemon
  pmix_environment = 27,  ///< i32 rank, then "NAME=value" and a NUL each
  collective_wait = 28,  ///< JSON CollectiveWait (collective_record.h): the rank waits in torch.distributed, or no more
  // hvdrun → guard
  manifest = 32,         ///< JSON RankManifest (manifest.h)
  payload = 33,          ///< a piece of the payload, in order; an empty piece ends it
  stop = 34,             ///< JSON StopRequest (stop_request.h): a signal now, SIGKILL after grace
  signal = 35,           ///< i32 signal number to pass on; SIGTSTP stops also ranks that have no handler for it
  release = 36,          ///< the guard may exit; with the body "sweep" it first looks over its host and says `swept`
  ping = 37,             ///< i64 hvdrun CLOCK_MONOTONIC ns
  stacks = 39,           ///< asks for a stack: "native", or empty for Python frames only
  input = 40,            ///< a piece of the rank's standard input; an empty piece ends it
  complete = 41,         ///< all ranks have come: nobody else is to connect to the daemon of this host
  host_change = 43,      ///< u8: 1 hosts were removed, 2 added, 3 both, 0 will be; the rank sees it in its status page
  start_rank = 44,       ///< i32, to a host daemon: it starts a guard more, for the worker of that number
  ask_operations = 45,   ///< u32: at most so many of the rank's last operations are sent
  live_report = 46,      ///< JSON, as hvd.report() gives it: steps, times, findings of the last half minute
  timeline = 47,         ///< u8: 1 the rank records for the timeline from its next step on, 0 it stops
  console_input = 48,    ///< ConsoleInput (console.h), then bytes
  daemon_manifest = 42,  ///< JSON DaemonManifest (daemon_manifest.h), to a host daemon: the answer to its hello
};

}  // namespace hvd::wire
