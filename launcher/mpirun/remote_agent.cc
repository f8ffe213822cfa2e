#include "launcher/mpirun/remote_agent.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/process/signals.h"
#include "base/text.h"
#include "launcher/options/settings.h"
#include "launcher/start/remote_shell.h"
#include "options/variable.h"

namespace hvd::launcher {

namespace {

constexpr const char *ssh_variable = "HVD_AGENT_SSH", *seal_variable = "HVD_AGENT_SEAL",
                     *cwd_variable = "HVD_AGENT_CWD", *preflight_variable = "HVD_AGENT_PREFLIGHT",
                     *log_variable = "HVD_AGENT_LOGS";

std::string variable(options::AnyVariable name) { return std::string(options::text_of(name)); }

/// A file name for any host name.
std::string log_path(const std::string& folder, const std::string& host) {
  std::string name = host;
  for (char& c : name)
    if (c == '/') c = '_';
  return folder + "/ssh." + name;
}

}  // namespace

void add_agent_variables(const AgentTask& task, std::map<std::string, std::string>* environment) {
  std::vector<std::string> quoted;
  for (const std::string& word : task.ssh) quoted.push_back(shell_quote(word));
  (*environment)[ssh_variable] = join(quoted, " ");
  if (task.seal) (*environment)[seal_variable] = "munge";
  (*environment)[cwd_variable] = task.cwd;
  (*environment)[preflight_variable] = task.preflight;
  (*environment)[log_variable] = task.log_folder;
}

int remote_agent(const std::vector<std::string>& args) {
  // ssh must not outlive an mpirun that SIGKILL has ended.  The setting survives exec.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (args.size() < 2) {
    std::fputs("hvdrun: --remote-agent is for mpirun's use\n", stderr);
    return 2;
  }
  const std::string& host = args[0];
  if (const std::string folder = variable(log_variable); !folder.empty()) {
    const Fd log(::open(log_path(folder, host).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (log) ::dup2(log.get(), 2);
  }
  std::string keys;
  try {
    keys = keys_text(variable("HVD_JOB_KEYS"), variable(seal_variable) == "munge");
  } catch (const Error& e) {
    std::fprintf(stderr, "hvdrun: %s\n", e.what());
    return static_cast<int>(e.code);
  }
  const std::string script =
      remote_script(variable(preflight_variable), host, variable(cwd_variable), keys, {args.begin() + 1, args.end()});
  const Fd file(::memfd_create("hvdrun-agent", MFD_CLOEXEC));
  if (!file || !write_all(file.get(), script) || ::lseek(file.get(), 0, SEEK_SET) != 0 || ::dup2(file.get(), 0) < 0) {
    std::fprintf(stderr, "hvdrun: cannot hand the job's key to ssh: %s\n", errno_text(errno).c_str());
    return 4;
  }
  std::vector<std::string> words = shell_on(shell_words(variable(ssh_variable), ssh_variable), host);
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
