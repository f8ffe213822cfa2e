#include "launcher/supervise/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

namespace fs = std::filesystem;
constexpr std::size_t most_output_bytes = 64u << 10;

/// In the child: only system calls from here to exec.
[[noreturn]] void become(char** argv, char** envp, pid_t parent, int output, int report) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGPIPE, SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2, SIGTSTP}) {
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    ::sigaction(number, &standard, nullptr);
  }
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) ::dup2(null, 0);
  ::dup2(output, 1);
  ::dup2(output, 2);
  ::execve(argv[0], argv, envp);
  const int number = errno;
  [[maybe_unused]] const ssize_t n = ::write(report, &number, sizeof number);
  ::_exit(127);
}

std::vector<pid_t> children_of_this_process() {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& task : fs::directory_iterator("/proc/self/task", ignored)) {
    std::ifstream list(task.path() / "children");
    for (pid_t pid = 0; list >> pid;) found.push_back(pid);
  }
  return found;
}

struct Process {
  std::string name;
  char state = 0;
  pid_t parent = 0;
};

/// Every process, from one walk.
std::map<pid_t, Process> processes() {
  std::map<pid_t, Process> out;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const auto pid = to_integer(entry.path().filename().string());
    if (!pid) continue;
    std::ifstream file(entry.path() / "stat");
    std::string line;
    std::getline(file, line);
    const std::size_t begin = line.find('('), end = line.rfind(')');  // the name may hold anything
    if (begin == std::string::npos || end == std::string::npos) continue;
    const std::vector<std::string> fields = words(std::string_view(line).substr(end + 1));
    if (fields.size() > 1)
      out[static_cast<pid_t>(*pid)] = {line.substr(begin + 1, end - begin - 1), fields[0][0],
                                       static_cast<pid_t>(to_integer(fields[1]).value_or(0))};
  }
  return out;
}

}  // namespace

Child::Child(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment) {
  std::vector<std::string> words = command, lines;
  for (const auto& [name, value] : environment) lines.push_back(name + "=" + value);
  std::vector<char*> argv, envp;
  for (std::string& w : words) argv.push_back(w.data());
  for (std::string& l : lines) envp.push_back(l.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  int output[2], report[2];
  if (::pipe2(output, O_CLOEXEC) != 0 || ::pipe2(report, O_CLOEXEC) != 0)
    throw Error(Code::unavailable, "pipe", errno_text(errno), "too many open files? see ulimit -n");
  output_ = Fd(output[0]);
  Fd output_end(output[1]), report_read(report[0]), report_end(report[1]);
  ::fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  const pid_t self = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw Error(Code::unavailable, "fork", errno_text(errno), "too many processes? see ulimit -u");
  if (pid_ == 0) become(argv.data(), envp.data(), self, output_end.get(), report_end.get());
  report_end.reset();
  int number = 0;
  ssize_t n = 0;
  while ((n = ::read(report_read.get(), &number, sizeof number)) < 0 && errno == EINTR) {}
  if (n == sizeof number) {
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
    throw Error(Code::unavailable, command[0], "cannot be executed: " + errno_text(number));
  }
}

Child::~Child() {
  if (pid_ > 0 && !status_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

std::string Child::read_output() {
  std::string fresh;
  char piece[16384];
  while (output_) {
    const ssize_t n = ::read(output_.get(), piece, sizeof piece);
    if (n > 0) {
      fresh.append(piece, static_cast<std::size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n == 0 || errno != EAGAIN) output_.reset();
    break;
  }
  text_ += fresh;
  if (text_.size() > most_output_bytes) text_.erase(0, text_.size() - most_output_bytes);
  return fresh;
}

std::optional<int> Child::status() {
  int status = 0;
  for (pid_t pid = 0; !status_ && (pid = ::waitpid(-1, &status, WNOHANG)) > 0;)
    if (pid == pid_) status_ = status;
  return status_;
}

void Child::signal(int number) {
  if (pid_ <= 0 || status_) return;
  ::kill(-pid_, number);
  if (number == SIGKILL) ::kill(pid_, number);
}

void become_subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

bool kill_descendants(int limit_ms, std::vector<std::string>* ended) {
  std::map<pid_t, std::string> names;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  for (;;) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {}
    const bool none = ::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD;
    if (none || std::chrono::steady_clock::now() > deadline) {
      for (const auto& [pid, name] : names)
        if (ended) ended->push_back(name);
      return none;
    }
    // From the top down, so that a killed parent cannot fork again; orphans come up to us for the next round.
    std::vector<pid_t> level = children_of_this_process();
    const std::map<pid_t, Process> all = processes();
    while (!level.empty()) {
      std::vector<pid_t> next;
      for (const pid_t pid : level) {
        if (const auto it = all.find(pid); it != all.end() && it->second.state != 'Z')
          names.emplace(pid, it->second.name);
        ::kill(pid, SIGKILL);
      }
      for (const auto& [pid, process] : all)
        if (std::find(level.begin(), level.end(), process.parent) != level.end()) next.push_back(pid);
      level = std::move(next);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace hvd::launcher
