#include "base/process/signals.h"

#include <csignal>
#include <utility>

namespace hvd {
namespace {

void set(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  ::sigaction(number, &action, nullptr);  // fails for SIGKILL, SIGSTOP and the C library's signals: these have defaults
}

bool is_ignored(int number) {
  struct sigaction now {};
  return ::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void unblock_all() {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace

void take_over_signals() {
  for (int number = 1; number < NSIG; ++number)
    if (number != SIGHUP && is_ignored(number)) set(number, SIG_DFL);
  set(SIGXFSZ, SIG_IGN);
  unblock_all();
}

void restore_signals() {
  for (int number = 1; number < NSIG; ++number) set(number, SIG_DFL);
  unblock_all();
}

const char* signal_name(int number) {
  static constexpr std::pair<int, const char*> names[] = {
      {SIGHUP, "HUP"},       {SIGINT, "INT"},   {SIGQUIT, "QUIT"},   {SIGILL, "ILL"},   {SIGTRAP, "TRAP"},
      {SIGABRT, "ABRT"},     {SIGBUS, "BUS"},   {SIGFPE, "FPE"},     {SIGKILL, "KILL"}, {SIGUSR1, "USR1"},
      {SIGSEGV, "SEGV"},     {SIGUSR2, "USR2"}, {SIGPIPE, "PIPE"},   {SIGALRM, "ALRM"}, {SIGTERM, "TERM"},
      {SIGSTKFLT, "STKFLT"}, {SIGCHLD, "CHLD"}, {SIGCONT, "CONT"},   {SIGSTOP, "STOP"}, {SIGTSTP, "TSTP"},
      {SIGTTIN, "TTIN"},     {SIGTTOU, "TTOU"}, {SIGURG, "URG"},     {SIGXCPU, "XCPU"}, {SIGXFSZ, "XFSZ"},
      {SIGVTALRM, "VTALRM"}, {SIGPROF, "PROF"}, {SIGWINCH, "WINCH"}, {SIGPOLL, "POLL"}, {SIGPWR, "PWR"},
      {SIGSYS, "SYS"},
  };
  for (const auto& [known, name] : names)
    if (known == number) return name;
  return nullptr;
}

}  // namespace hvd
