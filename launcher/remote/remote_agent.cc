#include "launcher/remote/remote_agent.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/files/trust.h"
#include "base/format.h"
#include "base/process/capture.h"
#include "base/process/signals.h"
#include "base/text.h"
#include "launcher/mpirun/mpirun.h"
#include "launcher/options/settings.h"
#include "options/variable.h"

namespace hvd::launcher {

namespace {

constexpr auto munge_limit = std::chrono::seconds(10);
constexpr const char* no_munge_hint = "is munged running? srun carries a shell's input in clear";

std::string variable(options::AnyVariable name) { return std::string(options::text_of(name)); }

/// Shell text; a host without room for a folder goes on without.
constexpr const char* private_folder =
    "umask u=rwx\n"
    "t=$(\"$hvd_rank\" --folder $$ </dev/null) && TMPDIR=$t && export TMPDIR &&\n"
    "trap 'HVD_JOB_KEYS= \"$hvd_rank\" --remove-folder \"$t\" </dev/null' EXIT && trap 'exit 143' HUP INT TERM\n";

/// A file name for any host name.
std::string log_path(const std::string& folder, const std::string& host) {
  std::string name = host;
  for (char& c : name)
    if (c == '/') c = '_';
  return folder + "/ssh." + name;
}

}  // namespace

std::string remote_script(const std::string& preflight, const std::string& host, const std::string& cwd,
                          const std::string& job_keys, const std::vector<std::string>& daemon) {
  // The daemon's words are shell text with their own quotes.  Its stdin must not be the rest of this script.  Its
  // session folder has a name that anybody could guess and make first, so it goes into a folder that only we can enter.
  return preflight + private_folder + "HVD_JOB_KEYS=" + job_keys + "\nHVD_HOST=" + shell_quote(host) +
         "\nexport HVD_JOB_KEYS HVD_HOST\ncd " + shell_quote(cwd) + " 2>/dev/null || cd\n{ " + join(daemon, " ") +
         "\n} </dev/null\n";
}

std::string keys_text(const std::string& job_keys, bool sealed) {
  if (!sealed) return shell_quote(job_keys);
  const char* const path = environment_value("PATH");
  const std::string munge = find_program("munge", absolute_only(path ? path : ""));
  if (munge.empty()) throw Error(Code::unavailable, "munge", "is not in PATH", no_munge_hint);
  look_at(munge, PathUse::file, {.anyone = true})
      .need_trust(munge);  // a cluster's software may have an owner of its own
  const CaptureResult done =
      capture({munge, formatted("--restrict-uid={}", ::getuid()), "--ttl=300"}, job_keys, munge_limit);
  if (!done.ok())
    throw Error(Code::unavailable, "munge", "cannot seal the job's key: " + std::string(trim(done.err)), no_munge_hint);
  return unseal_text(done.out);
}

bool needs_seal(const std::vector<std::string>& launch_agent) {
  return !launch_agent.empty() && launch_agent[0] == "srun";
}

std::string unseal_text(const std::string& credential) {
  return "\"$(unmunge --metadata=/dev/null <<'END_OF_CREDENTIAL'\n" + std::string(trim(credential)) +
         "\nEND_OF_CREDENTIAL\n)\"";
}

std::vector<std::string> shell_on(const std::vector<std::string>& words, const std::string& host) {
  std::vector<std::string> out;
  bool named = false;
  for (std::string w : words) {
    for (std::size_t at = 0; (at = w.find("{host}", at)) != std::string::npos; at += host.size(), named = true)
      w.replace(at, 6, host);
    out.push_back(std::move(w));
  }
  if (!named) out.insert(out.end(), {"--", host});
  out.emplace_back("/bin/sh");
  return out;
}

std::vector<std::string> ssh_command(const std::string& program, const std::string& port, const std::string& identity,
                                     int connect_timeout_seconds) {
  std::vector<std::string> words = shell_words(program, "HVD_SSH");
  for (const char* w : {"-x", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-o"}) words.emplace_back(w);
  words.push_back(formatted("ConnectTimeout={}", connect_timeout_seconds));
  if (!port.empty()) words.insert(words.end(), {"-p", port});
  if (!identity.empty()) words.insert(words.end(), {"-i", identity});
  return words;
}

int remote_agent(const std::vector<std::string>& args) {
  // A SIGKILLed mpirun must not leave ssh behind; the setting survives exec.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (args.size() < 2) {
    std::fputs("hvdrun: --remote-agent is for mpirun's use\n", stderr);
    return 2;
  }
  const std::string& host = args[0];
  if (const std::string folder = variable(AgentVariables::log_folder); !folder.empty()) {
    const Fd log(::open(log_path(folder, host).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (log) ::dup2(log.get(), 2);
  }
  std::string keys;
  try {
    keys = keys_text(variable("HVD_JOB_KEYS"), variable(AgentVariables::seal) == "munge");
  } catch (const Error& e) {
    std::fprintf(stderr, "hvdrun: %s\n", e.what());
    return static_cast<int>(e.code);
  }
  const std::string script = remote_script(variable(AgentVariables::preflight), host, variable(AgentVariables::cwd),
                                           keys, {args.begin() + 1, args.end()});
  const Fd file(::memfd_create("hvdrun-agent", MFD_CLOEXEC));
  if (!file || !write_all(file.get(), script) || ::lseek(file.get(), 0, SEEK_SET) != 0 || ::dup2(file.get(), 0) < 0) {
    std::fprintf(stderr, "hvdrun: cannot hand the job's key to ssh: %s\n", errno_text(errno).c_str());
    return 4;
  }
  std::vector<std::string> words = shell_on(shell_words(variable(AgentVariables::ssh), AgentVariables::ssh), host);
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  for (const char* name : {"HVD_JOB_KEYS", "HVD_JOB_DIR"}) ::unsetenv(name);  // ssh has no need of them (SendEnv)
  restore_signals();
  ::execvp(argv[0], argv.data());
  std::fprintf(stderr, "%s%s: %s\n", cannot_run_mark, argv[0], errno_text(errno).c_str());
  return 127;
}

}  // namespace hvd::launcher
