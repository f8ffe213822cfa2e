#include "base/process/maker.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "base/process/process.h"
#include "base/text.h"

namespace hvd {
namespace {

long long own_namespace() {
  struct stat about {};
  return ::stat("/proc/self/ns/pid", &about) == 0 ? static_cast<long long>(about.st_ino) : 0;
}

}  // namespace

std::optional<Maker> maker_of(pid_t pid) {
  const auto about = process_entry(pid);
  if (!about) return std::nullopt;
  return Maker{pid, about->start_ticks, own_namespace()};
}

std::string to_text(const Maker& maker) {
  return formatted("{}.{}.{}", maker.pid, maker.start_ticks, maker.pid_namespace);
}

std::optional<Maker> maker_from(std::string_view text) {
  const std::vector<std::string> parts = split(text, '.');
  if (parts.size() != 3) return std::nullopt;
  const auto pid = to_integer(parts[0]), start = to_integer(parts[1]), space = to_integer(parts[2]);
  if (!pid || !start || !space || *pid <= 0 || *space <= 0) return std::nullopt;
  return Maker{*pid, *start, *space};
}

bool is_in_this_namespace(const Maker& maker) { return maker.pid_namespace == own_namespace(); }

bool is_gone(const Maker& maker) {
  if (!is_in_this_namespace(maker)) return false;
  if (::kill(static_cast<pid_t>(maker.pid), 0) != 0 && errno == ESRCH) return true;
  const auto about = process_entry(static_cast<pid_t>(maker.pid));
  if (!about) return false;
  return about->start_ticks != maker.start_ticks || (about->is_zombie() && about->threads <= 1);
}

char process_state(pid_t pid) {
  const auto about = process_entry(pid);
  return about ? about->state : '\0';
}

bool runs_this_program(pid_t pid) {
  struct stat own {
  }, other{};
  return ::stat("/proc/self/exe", &own) == 0 && ::stat(formatted("/proc/{}/exe", pid).c_str(), &other) == 0 &&
         own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

bool catches_signal(pid_t pid, int number) {
  std::istringstream lines(whole_text(formatted("/proc/{}/status", pid)));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("SigCgt:")) continue;
    unsigned long long mask = 0;
    std::istringstream(line.substr(7)) >> std::hex >> mask;
    return mask >> (number - 1) & 1;
  }
  return false;
}

std::string boot_id() {
  const std::string id = first_line("/proc/sys/kernel/random/boot_id");
  return id.empty() ? "-" : id;
}

}  // namespace hvd
