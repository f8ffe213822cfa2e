#include "launcher/process/script_shell.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <map>

#include "base/environment.h"
#include "base/error.h"
#include "base/process/process.h"

namespace hvd::launcher {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto last_grace = std::chrono::seconds(6);  // hvdrun's own grace period is five
constexpr std::chrono::seconds kill_limit{3};

std::map<std::string, std::string> environment_with(const std::string& own_folder) {
  std::map<std::string, std::string> out;
  for (char** entry = environment_block(); *entry; ++entry) {
    const std::string line = *entry;
    if (const std::size_t equals = line.find('='); equals != std::string::npos)
      out[line.substr(0, equals)] = line.substr(equals + 1);
  }
  out["TMPDIR"] = own_folder;
  return out;
}

std::string swept_place() {
  std::string where = place_for_own_folder();
  sweep_own_folders(where, "hvd-host-");
  return where;
}

}  // namespace

std::string script_on_stdin() {
  constexpr std::size_t most_bytes = 1u << 20;
  std::string text;
  char piece[4096];
  for (ssize_t n; (n = ::read(0, piece, sizeof piece)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 || text.size() > most_bytes) throw Error(Code::usage, "standard input", "holds no script of hvdrun");
    text.append(piece, static_cast<std::size_t>(n));
  }
  return text;
}

ScriptShell::ScriptShell(const std::string& script)
    : folder_(swept_place(), "hvd-host-", ::getpid()), shell_({"/bin/sh"}, environment_with(folder_.path()), script) {}

ScriptShell::~ScriptShell() { kill_descendants(kill_limit); }

void ScriptShell::stop() {
  if (!deadline_) deadline_ = Clock::now() + last_grace;
}

std::optional<int> ScriptShell::code() {
  if (const auto status = shell_.status()) return WIFSIGNALED(*status) ? 128 + WTERMSIG(*status) : WEXITSTATUS(*status);
  if (deadline_ && Clock::now() > *deadline_) return 128 + SIGTERM;
  return std::nullopt;
}

}  // namespace hvd::launcher
