#include "launcher/job/first_hosts.h"

#include <poll.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/trust.h"
#include "base/format.h"
#include "base/process/capture.h"
#include "base/process/held_signals.h"
#include "base/text.h"
#include "launcher/hosts/host_manifest.h"
#include "launcher/hosts/parse_hosts.h"
#include "launcher/job/job.h"

namespace hvd::launcher {

namespace {

namespace fs = std::filesystem;

constexpr int look_every_ms = 100;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// For messages: ": " and the script's standard error; empty: it wrote nothing there.
std::string words_of(const CaptureResult& done) {
  const std::string said(trim(done.err));
  return said.empty() ? "" : ": " + said;
}

/// The script's command: a program of that whole name, or else a program and its arguments, as horovodrun took them.
std::vector<std::string> script_command(const Settings& settings, const Environment& environment) {
  const std::string text = settings.text("host-discovery-script");
  std::vector<std::string> words{path_of_program(text, environment)};
  std::error_code ignored;
  if (!fs::exists(words[0], ignored) && text.find(' ') != std::string::npos) {
    words = shell_words(text, "--host-discovery-script");
    words[0] = path_of_program(words[0], environment);
  }
  return words;
}

/// The output of the script's first call.
std::string first_answer(const Settings& settings, const Environment& environment) {
  const std::string program = settings.text("host-discovery-script");
  const std::vector<std::string> command = script_command(settings, environment);
  if (!settings.flag("allow-writable")) look_at(command[0]).need_trust(command.size() > 1 ? command[0] : program);
  const double limit = settings.number("start-timeout");
  const CaptureResult done = capture(command, "", std::chrono::milliseconds(static_cast<long long>(limit * 1000)));
  if (!done.started)
    throw Error(Code::usage, program, "cannot be executed: " + done.err, "name it with its path, and chmod +x it");
  if (done.timed_out)
    throw Error(Code::unavailable, program,
                "did not end within " + settings.text("start-timeout") + " s" + words_of(done),
                "try it by hand, or give more time with --start-timeout");
  if (done.code != 0)
    throw Error(Code::unavailable, program, "ended with exit code " + std::to_string(done.code) + words_of(done),
                "try it by hand");
  if (done.out.size() >= most_captured_bytes)
    throw Error(Code::usage, program, "printed " + human_bytes(most_captured_bytes) + " or more",
                "print one host a line: host:slots");
  return done.out;
}

/// How long a job may wait for its slots, and the option that sets the limit.
std::pair<double, const char*> patience_of(const Settings& settings) {
  const double elastic = settings.number("elastic-timeout"), job = settings.number("time-limit");
  if (job > 0 && job < elastic) return {job, "--time-limit"};
  return {elastic, "--elastic-timeout"};
}

std::string slots_text(long long slots) { return slots == 0 ? "no slot" : count_of(slots, "slot"); }

/// Runs the script once a second.  A failure is no error here, as later while the job runs.
Allocation wait_for_slots(const Settings& settings, const Environment& environment, Allocation named) {
  const std::string program = settings.text("host-discovery-script");
  const int needed = slots_to_begin(settings);
  const auto [limit, option] = patience_of(settings);
  std::fprintf(stderr, "hvdrun: %s\n",
               printable(formatted("waiting up to {:g} s ({}) for {}{}: {} names {} so far", limit, option,
                                   count_of(needed, "slot"), settings.has("min-np") ? " (--min-np)" : "", program,
                                   slots_text(named.total_slots())))
                   .c_str());
  const Allocation nothing{{}, named.source, {}};
  Allocation latest = nothing;
  DiscoverySource source = discovery_source(settings, environment);
  source.parse = [&latest, parse = source.parse](const std::string& text) { return latest = parse(text); };
  HeldSignals held;
  HostDiscovery discovery(std::move(source));
  for (const double until = steady_seconds() + limit; steady_seconds() < until;) {
    pollfd signal{held.fd(), POLLIN, 0};
    if (::poll(&signal, 1, look_every_ms) > 0) held.end_if_asked();
    const HostDiscovery::Discovered found = discovery.turn(steady_seconds());
    if (!found.line.empty()) std::fprintf(stderr, "hvdrun: %s\n", printable(found.line).c_str());
    if (!found.hosts) continue;
    named = found.hosts->empty() ? nothing : latest;
    if (named.total_slots() >= needed) return named;
  }
  throw Error(Code::timeout, program,
              formatted("names {}, and the job needs {}; no more came in {:g} s ({})", slots_text(named.total_slots()),
                        needed, limit, option),
              "give a smaller --min-np, or wait longer with --elastic-timeout");
}

}  // namespace

int slots_to_begin(const Settings& settings) {
  return settings.integer("min-np").value_or(settings.integer("num-proc").value_or(1));
}

DiscoverySource discovery_source(const Settings& settings, const Environment& environment) {
  DiscoverySource source;
  if (const std::string program = settings.text("host-discovery-script"); !program.empty()) {
    source.command = script_command(settings, environment);
    source.parse = [program, slots = settings.integer("slots-per-host").value_or(1)](const std::string& text) {
      return parse_discovered(text, slots, program);
    };
  } else if (const std::string file = settings.text("hostfile"); !file.empty()) {
    source.hostfile = fs::absolute(file);
    source.parse = [file](const std::string& text) { return parse_hostfile(text, file); };
  } else if (const std::string manifest = settings.text("manifest"); !manifest.empty()) {
    source.hostfile = fs::absolute(manifest);
    source.parse = [manifest](const std::string& text) { return parse_manifest(text, manifest); };
  }
  return source;
}

Allocation first_hosts(const Settings& settings, const Environment& environment, bool waits) {
  const std::string program = settings.text("host-discovery-script"), text = first_answer(settings, environment);
  Allocation named;
  if (waits && trim(text).empty())
    named.source = "host discovery script " + program;
  else
    named = parse_discovered(text, settings.integer("slots-per-host").value_or(1), program);
  if (!waits || named.total_slots() >= slots_to_begin(settings)) return named;
  return wait_for_slots(settings, environment, std::move(named));
}

}  // namespace hvd::launcher
