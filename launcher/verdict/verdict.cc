#include "launcher/verdict/verdict.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/process/signals.h"
#include "base/text.h"
#include "launcher/verdict/exception_line.h"

namespace hvd::launcher {

namespace {

using wire::Cause;
using wire::DeathRecord;

bool is_failure(const DeathRecord& d) { return d.cause != Cause::finished && d.cause != Cause::stopped; }

/// The earliest failure by time; nullptr: no rank has failed.  A lost guard has the time at which hvdrun noticed the
/// loss.  So a failure that follows from the loss may have an earlier time.
const DeathRecord* first_failure(const std::vector<DeathRecord>& deaths) {
  const DeathRecord* first = nullptr;
  for (const DeathRecord& d : deaths)
    if (is_failure(d) && (!first || d.time_ns < first->time_ns)) first = &d;
  return first;
}

/// True if gloo, torch's own backend, lost the connection to another rank.
bool gloo_lost_a_rank(const DeathRecord& d) {
  static constexpr std::string_view signs[] = {"Connection closed by peer", "Connection reset by peer", "Broken pipe"};
  if (d.cause != Cause::exited) return false;
  return std::ranges::any_of(split(d.traceback, '\n'), [](const std::string& line) {
    return line.find("gloo/transport/") != line.npos &&
           std::ranges::any_of(signs, [&](std::string_view sign) { return line.find(sign) != line.npos; });
  });
}

/// The earliest rank that ended without a failure, if no rank has failed otherwise than by a connection of gloo.
/// gloo's error has an address and no rank.
const DeathRecord* who_left_gloo(const std::vector<DeathRecord>& deaths) {
  const DeathRecord* left = nullptr;
  for (const DeathRecord& d : deaths) {
    if (is_failure(d) && !gloo_lost_a_rank(d)) return nullptr;
    if (d.cause == Cause::finished && (!left || d.time_ns < left->time_ns)) left = &d;
  }
  return left;
}

/// The rank that left without a failure, and so made @p first fail.  The libhvd of @p first named the rank for which it
/// waited.  nullptr: there is no such rank.
const DeathRecord* who_left(const DeathRecord& first, const std::vector<DeathRecord>& deaths) {
  if (gloo_lost_a_rank(first)) return who_left_gloo(deaths);
  const auto& failure = first.failure;
  if (!failure || failure->code != static_cast<int>(Code::peer_lost) || first.cause != Cause::exited) return nullptr;
  for (const DeathRecord& d : deaths)
    if (failure->peer == d.rank && d.rank != first.rank && !is_failure(d)) return &d;
  return nullptr;
}

/// The way to let ranks end one by one, for a script like that of @p first.
const char* way_to_join(const DeathRecord& first) {
  const bool uses_c10d = gloo_lost_a_rank(first) || (first.failure && first.failure->operation.starts_with("c10d/"));
  return uses_c10d ? "DistributedDataParallel.join()" : "hvd.join()";
}

}  // namespace

const char* end_of(const DeathRecord& d) {
  return d.cause == Cause::finished ? "finished before" : is_failure(d) ? "failed after it" : "stopped";
}

namespace {

/// "ranks 0-1,3 were stopped, rank 4 finished before": all ranks except the culprit.
std::string others(const std::vector<DeathRecord>& deaths, const DeathRecord* culprit, int size) {
  std::map<std::string, std::vector<int>> by_end;
  int ended = 0;
  for (const DeathRecord& d : deaths) {
    ++ended;
    if (culprit && d.rank == culprit->rank) continue;
    by_end[end_of(d)].push_back(d.rank);
  }
  std::vector<std::string> parts;
  for (auto& [end, ranks] : by_end) {
    std::sort(ranks.begin(), ranks.end());
    const bool one = ranks.size() == 1;
    parts.push_back((one ? "rank " : "ranks ") + ranges(ranks) +
                    (end != "stopped" ? " "
                     : one            ? " was "
                                      : " were ") +
                    end);
  }
  if (ended < size) parts.push_back(count_of(size - ended, "rank") + " had not started");
  return join(parts, ", ");
}

bool silent(const DeathRecord& d) { return d.traceback.empty() && d.tail.empty() && d.text.empty(); }

/// The name of the module that an import did not find, from the exception's line.  Empty: the rank has failed
/// otherwise.
std::string missing_module(const std::string& line) {
  constexpr std::string_view words = "ModuleNotFoundError: No module named '";
  if (!line.starts_with(words)) return "";
  const std::string name = line.substr(words.size());
  return name.substr(0, name.find('\''));
}

/// A name with a dot: Python found the package before the dot, but not the module in that package.
std::string advice_for_missing(const std::string& module, const std::string& host, const std::string& line) {
  const std::string package = module.substr(0, module.find('.'));
  if (package == module)
    return "install it on " + host + "; hvdrun doctor with the same options lists the missing parts of each host";
  if (line.ends_with("'" + package + "' is not a package"))
    return "a file " + package + ".py, perhaps beside the script, hides the package " + package + ": rename the file";
  if (package == "horovod" || package == "hvd" || package == "sparkdl")
    return "is there a folder named " + package +
           " beside the script? it would hide hvdrun's package; otherwise hvdrun "
           "has no such module, and none can be installed: docs/horovod.md lists the missing modules";
  return package + " is there on " + host + ", but without it: another version of " + package + " may have it";
}

/// Advice for the user.  Empty: there is none, or the record has a hint of the rank or its guard.
std::string advice(const DeathRecord& d) {
  if (!d.hint.empty()) return "";
  if (d.cause == Cause::oom)
    return "give " + d.host + " fewer ranks (-H " + d.host + ":n), the model a smaller batch, or the host more memory";
  if (d.cause == Cause::vanished) return "is " + d.host + " well? try: hvdrun doctor -H " + d.host;
  if (d.cause == Cause::signalled && d.code == SIGKILL && d.text.empty())
    return "a user or the kernel killed it; the kernel does so when memory runs out (see dmesg on " + d.host + ")";
  const std::string line = d.traceback.empty() ? "" : exception_line(d.traceback);
  if (const std::string module = missing_module(line); !module.empty()) return advice_for_missing(module, d.host, line);
  if (d.cause == Cause::exited && d.code == 1 && d.phase == "python" && silent(d))
    return "it wrote nothing: try its Python and the script on " + d.host + " by hand, or hvdrun doctor -H " + d.host;
  return "";
}

}  // namespace

std::string rank_text(const DeathRecord& d) { return "rank " + std::to_string(d.rank) + " on " + d.host; }

std::string story(const DeathRecord& d) {
  const std::string text = d.text.empty() ? "" : ": " + d.text;
  if (d.phase == wire::leaving_phase && d.code % 128 == SIGTERM) return "ended properly after SIGTERM";
  switch (d.cause) {
    case Cause::finished:
      return "finished";
    case Cause::stopped:
      return "was stopped";
    case Cause::exited:
      return "ended with exit code " + std::to_string(d.code) + text;
    case Cause::signalled:
      return "was killed by " + signal_text(d.code) + (d.core_dumped ? ", core dumped" : "") + text;
    case Cause::oom:
      return "was killed by the kernel's out-of-memory killer" + text;
    case Cause::unstarted:
      return "could not start" + text;
    case Cause::vanished:
      return "is lost" + text;
  }
  return "ended";
}

std::string exception_text(const DeathRecord& d) {
  constexpr std::size_t most_exception_bytes = 500;
  if (d.cause != Cause::exited || d.traceback.empty()) return "";
  return " (" + shortened(exception_line(d.traceback), most_exception_bytes) + ")";
}

std::string signal_text(int number) {
  const char* name = signal_name(number);
  std::string text = "signal " + std::to_string(number) + (name ? " (SIG" + std::string(name) + ")" : "");
  if (number == SIGSEGV) text += ", an access to memory that is not its own";
  if (number == SIGBUS) text += ", often a full /dev/shm";
  if (number == SIGABRT) text += ", raised by the program itself";
  if (number == SIGALRM || number == SIGVTALRM || number == SIGPROF) text += ", a timer of the program itself";
  if (number == SIGILL) text += ", an instruction that this processor lacks";
  return text;
}

static Verdict judge_end(const std::vector<DeathRecord>& deaths, int size, const EndReason& ended) {
  Verdict verdict;
  const DeathRecord* first = first_failure(deaths);
  verdict.outcome = Outcome::failed;
  if (ended.signal) {
    verdict.exit_code = 128 + ended.signal;
    verdict.outcome = Outcome::interrupted;
    const std::string why = ended.signal == SIGINT    ? "interrupted"
                            : ended.signal == SIGPIPE ? "nobody reads the output any more"
                                                      : "ended by " + signal_text(ended.signal);
    verdict.lines.push_back("hvdrun: " + why + "; all ranks have ended");
    return verdict;
  }
  if (ended.output_errno != 0) {
    verdict.exit_code = static_cast<int>(Code::unavailable);
    verdict.lines.push_back("hvdrun: standard output cannot be written: " + errno_text(ended.output_errno) +
                            "; all ranks have ended");
    if (ended.output_errno == ENOSPC || ended.output_errno == EDQUOT)
      verdict.lines.emplace_back("        make room there, or send the output elsewhere");
    return verdict;
  }
  if (ended.time_limit_seconds > 0) {
    verdict.exit_code = static_cast<int>(Code::timeout);
    verdict.outcome = Outcome::time_limit;
    char limit[32];
    std::snprintf(limit, sizeof limit, "%g s", ended.time_limit_seconds);
    verdict.lines.push_back(std::string("hvdrun: the time limit of ") + limit + " was reached; all ranks have ended");
    return verdict;
  }
  if (!ended.hang.empty()) {
    verdict.exit_code = static_cast<int>(Code::timeout);
    verdict.outcome = Outcome::hung;
    verdict.lines.push_back("hvdrun: " + ended.hang + "; all ranks have ended (--stall-check-shutdown-time-seconds)");
    return verdict;
  }
  if (!ended.starter_fault.empty() && (!first || first->cause == Cause::vanished)) {
    verdict.exit_code = ended.starter_code;
    verdict.lines.push_back("hvdrun: " + ended.starter + " " + ended.starter_fault +
                            " while the job was running; all ranks have ended");
    return verdict;
  }
  if (!ended.elastic.empty()) {
    verdict.exit_code = static_cast<int>(Code::unavailable);
    verdict.lines.push_back("hvdrun: the job cannot go on: " + ended.elastic);
  }
  if (!first) {
    if (ended.elastic.empty()) verdict.outcome = Outcome::finished;
    return verdict;
  }
  verdict.first_cause = *first;
  verdict.exit_code = std::max(1, wire::exit_code(*first));
  std::string line = "hvdrun: " + rank_text(*first) + " " + story(*first) + exception_text(*first);
  if (const DeathRecord* left = who_left(*first, deaths)) {
    verdict.left = *left;
    verdict.lines.push_back("hvdrun: " + rank_text(*left) + " left the job while others still waited for it");
    verdict.lines.push_back(std::string("        does it have fewer steps, or end early?  ") + way_to_join(*first) +
                            " lets ranks end one by one");
    line.replace(0, 8, "        ");
  }
  verdict.lines.push_back(line);
  verdict.calls = disagreeing_calls(*first, deaths);
  for (const std::string& call : lines_of(verdict.calls)) verdict.lines.push_back("        " + call);
  if (!first->hint.empty()) verdict.lines.push_back("        " + first->hint);
  if (size > 1) verdict.lines.push_back("        " + others(deaths, first, size));
  if (first->cause == Cause::exited && silent(*first) && !ended.mpirun_said.empty()) {  // mpirun prints MPI's errors
    verdict.lines.push_back("        it wrote nothing, but mpirun said:");
    for (const std::string& said : ended.mpirun_said) verdict.lines.push_back("          " + said);
  } else if (const std::string next = advice(*first); !next.empty()) {
    verdict.lines.push_back("        " + next);
  }
  return verdict;
}

Verdict judge(const std::vector<DeathRecord>& deaths, int size, const EndReason& ended) {
  Verdict verdict = judge_end(deaths, size, ended);
  for (std::string& line : verdict.lines) line = shortened(line, most_headline_bytes);
  if (verdict.lines.empty() || ended.waits.empty() || !ended.hang.empty()) return verdict;
  verdict.lines.emplace_back("        until then:");
  for (const std::string& line : ended.waits) verdict.lines.push_back("          " + line);
  return verdict;
}

}  // namespace hvd::launcher
