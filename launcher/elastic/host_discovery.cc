#include "launcher/elastic/host_discovery.h"

#include <sys/wait.h>

#include <csignal>
#include <utility>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process/capture.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr double interval_seconds = 1;
constexpr double patience_seconds = 10;  // the program is killed after this time
constexpr double silence_seconds = 60;   // the same reason is not reported again within this time
constexpr std::size_t most_list_bytes = 16u << 20;

std::string too_much() { return "printed more than " + human_bytes(most_captured_bytes); }

std::map<std::string, std::string> own_environment() {
  std::map<std::string, std::string> all;
  for (char** entry = environment_block(); *entry; ++entry) {
    const std::string line = *entry;
    if (const std::size_t equals = line.find('='); equals != std::string::npos)
      all[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return all;
}

}  // namespace

HostDiscovery::~HostDiscovery() {
  if (process_) process_->signal(SIGKILL);
}

std::optional<pid_t> HostDiscovery::child() const {
  if (!process_) return std::nullopt;
  return process_->pid();
}

HostDiscovery::Discovered HostDiscovery::turn(double now) {
  if (!process_ && now < next_) return {};
  if (!source_.command.empty()) return ask(now);
  next_ = now + interval_seconds;
  if (!source_.hostfile.empty()) return read(now);
  return {};
}

/// Starts the program, or reads its output.  The program's standard error is discarded.
HostDiscovery::Discovered HostDiscovery::ask(double now) {
  if (!process_) {
    limit_ = now + patience_seconds;
    printed_.clear();
    try {
      std::vector<std::string> words{"/bin/sh", "-c", "exec \"$0\" \"$@\" 2>/dev/null"};
      words.insert(words.end(), source_.command.begin(), source_.command.end());
      process_ = std::make_unique<ChildProcess>(words, own_environment());
      return {};
    } catch (const Error& e) {
      next_ = now + interval_seconds;
      return fails(std::string("cannot be started: ") + e.what(), now);
    }
  }
  const auto status = process_->status();
  if (printed_.size() <= most_captured_bytes)
    printed_ += process_->read_output(most_captured_bytes + 1 - printed_.size());
  const bool is_too_much = printed_.size() > most_captured_bytes;
  if (!status && is_too_much && !is_killed_) return kill(too_much(), now);
  if (!status && now < limit_) return {};
  if (!status) return kill("did not end within " + std::to_string(static_cast<int>(patience_seconds)) + " s", now);
  process_.reset();
  next_ = now + interval_seconds;
  const std::string text = std::exchange(printed_, {});
  if (std::exchange(is_killed_, false)) return {};
  if (is_too_much) return fails(too_much(), now);
  if (WIFSIGNALED(*status)) return fails("was killed by signal " + std::to_string(WTERMSIG(*status)), now);
  if (*status != 0) return fails("ended with exit code " + std::to_string(WEXITSTATUS(*status)), now);
  return take(text, now);
}

HostDiscovery::Discovered HostDiscovery::kill(const std::string& why, double now) {
  process_->signal(SIGKILL);
  is_killed_ = true;
  limit_ = now + patience_seconds;
  return fails(why, now);
}

HostDiscovery::Discovered HostDiscovery::read(double now) {
  try {
    return take(read_file(source_.hostfile, most_list_bytes), now);
  } catch (const Error& e) { return fails(e.what(), now); }
}

HostDiscovery::Discovered HostDiscovery::take(const std::string& text, double now) {
  if (has_said_ && text == said_) {
    works(now);
    return {};
  }
  try {
    Discovered found;
    found.hosts.emplace();
    if (!trim(text).empty())
      for (const HostSlots& h : source_.parse(text).hosts) found.hosts->push_back({h.host, h.slots});
    said_ = text;
    has_said_ = true;
    works(now);
    return found;
  } catch (const Error& e) { return fails(e.what(), now); }
}

/// Forgets reasons that were reported more than a minute ago, so they can be reported again.
void HostDiscovery::works(double now) {
  std::erase_if(told_, [now](const auto& reason) { return now - reason.second > silence_seconds; });
}

HostDiscovery::Discovered HostDiscovery::fails(const std::string& why, double now) {
  if (!told_.try_emplace(why, now).second) return {};
  const std::string& name = source_.command.empty() ? source_.hostfile : source_.command[0];
  return {std::nullopt, name + (why.starts_with(name) ? why.substr(name.size()) : ": " + why) +
                            "; the job keeps its hosts, and hvdrun runs the script again"};
}

}  // namespace hvd::launcher
