#include "launcher/verdict/cause_class.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>

#include "base/text.h"
#include "launcher/verdict/disagreeing_calls.h"
#include "launcher/verdict/exception_line.h"

namespace hvd::launcher {

namespace {

using wire::Cause;
using wire::DeathFact;
using wire::DeathRecord;

static_assert(cause_words.size() == static_cast<std::size_t>(CauseClass::unknown) + 1);

/// The general advice for each class, in the order of CauseClass.
struct ClassAdvice {
  AdviceKind kind;
  const char* reason;
};
constexpr std::array<ClassAdvice, cause_words.size()> advices{{
    {AdviceKind::none, ""},
    {AdviceKind::fix_code, "the program raised an exception, which would come again"},
    {AdviceKind::fix_code, "the program imports a module that is not there: install it, or correct the import"},
    {AdviceKind::fix_code, "the program ended itself with an exit code"},
    {AdviceKind::fix_code, "the program, or a library that it uses, crashed"},
    {AdviceKind::restart, "a signal from outside ended the rank; the program has shown no fault"},
    {AdviceKind::restart, "the rank was told to leave and left in order"},
    {AdviceKind::more_memory, "the host's or the container's memory ran out"},
    {AdviceKind::more_memory, "the GPU's memory ran out"},
    {AdviceKind::restart_elsewhere, "the GPU is faulty"},
    {AdviceKind::more_memory, "/dev/shm is full: give it more"},
    {AdviceKind::stop, "a disk is full: make room first"},
    {AdviceKind::stop, "a limit of the user's processes was reached: raise it first (ulimit)"},
    {AdviceKind::more_memory, "a process that the rank needed was killed, mostly for lack of memory"},
    {AdviceKind::fix_code, "the ranks disagree on an operation"},
    {AdviceKind::restart_elsewhere,
     "ranks differ that must be equal: restart from an older checkpoint, without that host"},
    {AdviceKind::fix_code, "a rank ended while others still waited for it"},
    {AdviceKind::restart, "the connection to another rank was lost"},
    {AdviceKind::fix_code, "the ranks wait for one that does not come"},
    {AdviceKind::restart_elsewhere, "the host does not answer any more"},
    {AdviceKind::restart, "a process of hvdrun was ended from outside; the program has shown no fault"},
    {AdviceKind::stop, "the job could not start, and a restart would fail likewise"},
    {AdviceKind::restart, "too few workers were left; the program has shown no fault"},
    {AdviceKind::stop, "the user's time limit was reached"},
    {AdviceKind::stop, "somebody asked hvdrun to end the job"},
    {AdviceKind::stop, "the output cannot be written: make room, or send it elsewhere"},
    {AdviceKind::stop, "the cause is not known: a person must read the evidence"},
}};

/// The name of an exception's type, without its module: "OSError" of "builtins.OSError: [Errno 28] …".
std::string type_of(const std::string& line) {
  const std::string name = line.substr(0, line.find_first_of(": "));
  return name.substr(name.rfind('.') + 1);
}

/// The number in "[Errno 28]"; 0: there is none.
int errno_of(const std::string& line) {
  constexpr std::string_view before = "[Errno ";
  const std::size_t at = line.find(before);
  if (at == std::string::npos) return 0;
  const std::size_t begin = at + before.size();
  return static_cast<int>(to_integer(line.substr(begin, line.find(']', begin) - begin)).value_or(0));
}

/// True for exceptions of a network or a service, which may not occur again.
bool may_pass(const std::string& type) {
  static constexpr std::string_view types[] = {"ConnectionError",
                                               "ConnectionResetError",
                                               "ConnectionRefusedError",
                                               "BrokenPipeError",
                                               "TimeoutError",
                                               "ConnectTimeout",
                                               "ReadTimeout",
                                               "HTTPError",
                                               "URLError",
                                               "ConnectionAbortedError",
                                               "RemoteDisconnected",
                                               "gaierror"};
  return std::find(std::begin(types), std::end(types), type) != std::end(types);
}

/// Returns the HTTP status in a client's exception, or 0. Examples with status 404: "HTTPError: HTTP Error 404: Not
/// Found", "HTTPError: 404 Client Error: …", "HTTPStatusError: Client error '404 Not Found' for url …".
int http_status(const std::string& line) {
  const std::size_t end_of_type = line.find(": ");
  if (end_of_type == std::string::npos || type_of(line).find("HTTP") == std::string::npos) return 0;
  std::string text = line.substr(end_of_type, line.find("://", end_of_type) - end_of_type);
  std::ranges::replace_if(
      text, [](unsigned char c) { return !std::isalnum(c); }, ' ');
  for (const std::string& word : split(text, ' '))
    if (const auto number = to_integer(word); word.size() == 3 && number && *number >= 400 && *number <= 599)
      return static_cast<int>(*number);
  return 0;
}

/// True for a status of HTTP that the same request gets again: 4xx, except "too late" and "too often".
bool is_refusal(int status) { return status >= 400 && status < 500 && status != 408 && status != 429; }

bool has_line(const DeathRecord& d, std::string_view begin) {
  return std::ranges::any_of(d.tail, [&](const std::string& line) { return line.starts_with(begin); });
}

/// True for the messages of torch's CPU allocator, of C++, and of XLA and TensorFlow on the CPU.
bool tells_no_memory(const std::string& line) {
  for (const char* sign : {"can't allocate memory: you tried to allocate", "not enough memory: you tried to allocate",
                           "Error: std::bad_alloc", "RESOURCE_EXHAUSTED: Out of memory", "OOM when allocating tensor"})
    if (line.find(sign) != std::string::npos) return true;
  return false;
}

/// NumPy's error when only a part of an array could be written: "OSError: 100 requested and 12 written".  It has no
/// errno.
bool is_short_write(const std::string& line) {
  return line.starts_with("OSError: ") && line.find(" requested and ") != std::string::npos &&
         line.ends_with(" written");
}

CauseClass class_of_exception(const DeathRecord& d) {
  const std::string line = exception_line(d.traceback), type = type_of(line);
  const int number = errno_of(line);
  if (type == "ModuleNotFoundError") return CauseClass::missing_module;
  if (type == "MemoryError" || type == "_ArrayMemoryError" || number == ENOMEM || tells_no_memory(line))
    return CauseClass::out_of_memory;
  if (number == ENOSPC || number == EDQUOT || is_short_write(line)) return CauseClass::disk_full;
  if (number == EMFILE || number == ENFILE) return CauseClass::limit;
  if (type == "DivergedError") return CauseClass::diverged;
  return CauseClass::exception;
}

CauseClass class_of_exit(const DeathRecord& d) {
  if (d.phase == wire::leaving_phase && d.code % 128 == SIGTERM) return CauseClass::preempted;
  if (ended_by_disagreement(d)) return CauseClass::mismatch;
  const int failure = d.failure ? d.failure->code : 0;
  if (failure == static_cast<int>(Code::peer_lost)) return CauseClass::peer_lost;
  if (failure == static_cast<int>(Code::diverged)) return CauseClass::diverged;
  return d.traceback.empty() ? CauseClass::exit_code : class_of_exception(d);
}

/// True if gloo has ended the process because a message has another length than the collective expects.
bool is_gloo_mismatch(const DeathRecord& d) {
  return std::ranges::any_of(d.tail, [](const std::string& line) {
    return line.find("op.preamble.length <= op.nbytes") != std::string::npos;
  });
}

CauseClass class_of_signal(const DeathRecord& d) {
  switch (d.code) {
    case SIGABRT:
      if (has_line(d, "terminate called after throwing an instance of 'std::bad_alloc'"))
        return CauseClass::out_of_memory;
      if (is_gloo_mismatch(d)) return CauseClass::mismatch;
      [[fallthrough]];
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGSYS:
    case SIGTRAP:
    case SIGALRM:  // alarm() and setitimer() of the program itself
    case SIGVTALRM:
    case SIGPROF:
      return CauseClass::crash;
    case SIGXCPU:
    case SIGXFSZ:
      return CauseClass::limit;
    default:
      return CauseClass::killed;
  }
}

CauseClass class_of(const DeathRecord& d) {
  switch (d.fact) {
    case DeathFact::gpu_memory:
      return CauseClass::gpu_out_of_memory;
    case DeathFact::gpu_error:
    case DeathFact::gpu_program:
      return CauseClass::gpu_fault;
    case DeathFact::shared_memory_full:
      return CauseClass::shared_memory_full;
    case DeathFact::disk_full:
      return CauseClass::disk_full;
    case DeathFact::limit:
      return CauseClass::limit;
    case DeathFact::worker_killed:
      return CauseClass::worker_killed;
    case DeathFact::host_lost:
      return CauseClass::host_lost;
    case DeathFact::ended_outside:
      return CauseClass::killed;
    case DeathFact::alone:
      return CauseClass::launcher_lost;
    case DeathFact::none:
      break;
  }
  switch (d.cause) {
    case Cause::finished:
    case Cause::stopped:
      return CauseClass::none;
    case Cause::exited:
      return class_of_exit(d);
    case Cause::signalled:
      return class_of_signal(d);
    case Cause::oom:
      return CauseClass::out_of_memory;
    case Cause::unstarted:
      return CauseClass::not_started;
    case Cause::vanished:
      return CauseClass::launcher_lost;
  }
  return CauseClass::unknown;
}

Advice advice_for(CauseClass kind) {
  const ClassAdvice& advice = advices[static_cast<std::size_t>(kind)];
  return {advice.kind, advice.reason};
}

JobCause cause_of_hang(const OpenHang& hang) {
  JobCause cause{CauseClass::hang, hang.rank, hang.host, hang.operation, hang.frame, advice_for(CauseClass::hang)};
  if (hang.gpu_is_late)
    cause.advice = {AdviceKind::fix_code,
                    "the rank's GPU does not end a kernel, or a stream waits for an event that never comes"};
  if (hang.is_stopped)
    cause.advice = {AdviceKind::restart, "a signal from outside has stopped the rank (kill -CONT lets it go on)"};
  if (hang.link_is_broken) cause.advice = {AdviceKind::restart_elsewhere, "the network between two hosts is down"};
  return cause;
}

JobCause general(CauseClass kind) {
  JobCause cause;
  cause.kind = kind;
  cause.advice = advice_for(kind);
  return cause;
}

}  // namespace

JobCause cause_of_death(const DeathRecord& d) {
  JobCause cause = general(class_of(d));
  cause.rank = d.rank;
  cause.host = d.host;
  if (d.failure) cause.operation = d.failure->operation;
  if (cause.kind == CauseClass::diverged) {  // all ranks get the error: the rank that ends first is not to blame
    cause.rank = d.failure ? d.failure->peer : -1;
    if (cause.rank != d.rank) cause.host.clear();
  }
  cause.frame = d.cause == Cause::exited ? exception_frame(d.traceback) : d.frame;
  if (cause.kind == CauseClass::exception) {
    const std::string line = exception_line(d.traceback);
    if (is_refusal(http_status(line)))
      cause.advice = {AdviceKind::fix_code, "a service refuses the request: correct the address or the access rights"};
    else if (may_pass(type_of(line)) || http_status(line) != 0)
      cause.advice = {AdviceKind::restart, "the program lost a connection to a service, which may be back"};
  }
  if (cause.kind == CauseClass::crash && (d.code == SIGALRM || d.code == SIGVTALRM || d.code == SIGPROF))
    cause.advice.reason = "a timer that the program had set ended it: it needs a handler for this signal";
  if (d.fact == DeathFact::gpu_program)
    cause.advice = {AdviceKind::fix_code, "a kernel of the program failed on the GPU"};
  if (cause.kind == CauseClass::killed && d.cause == Cause::signalled && d.code == SIGKILL)
    cause.advice.reason = "a user or the kernel killed the rank; the kernel does so when memory runs out";
  return cause;
}

JobCause cause_of(const Verdict& verdict, const EndReason& ended) {
  const auto hang_or = [&](CauseClass kind) {
    return ended.open_hang ? cause_of_hang(*ended.open_hang) : general(kind);
  };
  if (ended.signal) return hang_or(ended.signal == SIGPIPE ? CauseClass::output_lost : CauseClass::interrupted);
  if (ended.output_errno != 0) return general(CauseClass::output_lost);
  if (ended.time_limit_seconds > 0) return hang_or(CauseClass::time_limit);
  if (!ended.hang.empty()) return hang_or(CauseClass::hang);
  if (verdict.left) {
    JobCause cause = cause_of_death(*verdict.left);
    cause.kind = CauseClass::left_early;
    cause.advice = advice_for(CauseClass::left_early);
    if (verdict.first_cause && verdict.first_cause->failure) cause.operation = verdict.first_cause->failure->operation;
    return cause;
  }
  if (verdict.first_cause) return cause_of_death(*verdict.first_cause);
  if (!ended.elastic.empty()) return general(CauseClass::too_few_workers);
  if (!ended.starter_fault.empty()) return general(CauseClass::launcher_lost);
  return general(verdict.exit_code == 0 ? CauseClass::none : CauseClass::unknown);
}

JobCause cause_of_failed_start(Code code) {
  JobCause cause = general(code == Code::internal ? CauseClass::unknown : CauseClass::not_started);
  if (code == Code::timeout) cause.advice = {AdviceKind::restart, "a host or a service was late"};
  return cause;
}

}  // namespace hvd::launcher
