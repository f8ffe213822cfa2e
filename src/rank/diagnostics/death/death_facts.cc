#include "rank/diagnostics/death/death_facts.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iterator>

#include "base/file.h"
#include "base/format.h"
#include "base/text.h"

namespace hvd::rank {

std::string full_shared_memory(const std::string& folder) {
  struct statvfs about {};
  if (statvfs(folder.c_str(), &about) != 0 || about.f_blocks == 0) return {};
  const auto size = static_cast<std::int64_t>(about.f_blocks) * static_cast<std::int64_t>(about.f_frsize);
  const auto left = static_cast<std::int64_t>(about.f_bavail) * static_cast<std::int64_t>(about.f_frsize);
  if (left > size / 100 && left > 1 << 20) return {};
  return formatted("{} is full ({})", folder, human_bytes(size));
}

std::string thrown_exception(const std::vector<std::string>& tail) {
  constexpr std::string_view before = "terminate called after throwing an instance of '", what = "  what():  ";
  std::string found;
  for (const std::string& line : tail) {
    if (line.starts_with(before)) {
      found = "C++ exception " + line.substr(before.size(), line.rfind('\'') - before.size());
    } else if (line.starts_with(what) && !found.empty()) {
      found += ": " + line.substr(what.size());
    }
  }
  return found;
}

std::string fatal_python_error(const std::vector<std::string>& tail) {
  const auto is_fatal = [](const std::string& line) {
    return line.starts_with("Fatal Python error: ") || (line.starts_with("Timeout (") && line.ends_with(")!"));
  };
  const auto found = std::find_if(tail.rbegin(), tail.rend(), is_fatal);
  return found == tail.rend() ? "" : *found;
}

std::string mpi_abort(const std::vector<std::string>& tail) {
  const auto tells = [](const std::string& line) { return line.starts_with("MPI_ABORT was invoked on rank "); };
  return std::any_of(tail.begin(), tail.end(), tells) ? "it called MPI_Abort" : "";
}

std::string syntax_error_traceback(const std::vector<std::string>& tail) {
  constexpr std::ptrdiff_t most_lines = 5;  // of the place, the source and its marks, before the error's line
  const auto is_error = [](const std::string& line) {
    return line.starts_with("SyntaxError: ") || line.starts_with("IndentationError: ") ||
           line.starts_with("TabError: ");
  };
  const auto error = std::find_if(tail.rbegin(), tail.rend(), is_error);
  if (error == tail.rend()) return {};
  const auto limit = tail.rend() - error > most_lines ? error + most_lines : tail.rend();
  const auto place = std::find_if(error, limit, [](const std::string& line) { return line.starts_with("  File \""); });
  if (place == limit) return {};
  return "Traceback (most recent call last):\n" + join({place.base() - 1, error.base()}, "\n") + "\n";
}

std::string reached_limit(const wire::DeathRecord& r) {
  if (r.code == SIGXFSZ) return "a file would have become larger than the limit (ulimit -f)";
  if (r.code == SIGXCPU) return "it used up its processor time (ulimit -t)";
  rlimit limit{};
  if (r.code != SIGKILL || getrlimit(RLIMIT_CPU, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return {};
  const bool used_up = r.cpu_seconds + 1 >= static_cast<double>(limit.rlim_max);
  return used_up ? formatted("it used up its processor time, {} s (ulimit -t)", limit.rlim_max) : "";
}

std::vector<std::string> local_mounts(const std::string& mounts) {
  static constexpr std::string_view local[] = {"ext2", "ext3", "ext4",    "xfs",   "btrfs", "f2fs",
                                               "zfs",  "jfs",  "overlay", "tmpfs", "vfat",  "exfat"};
  std::vector<std::string> found;
  for (const std::string& line : split(mounts, '\n')) {
    const std::vector<std::string> field = words(line);  // fields: device, folder, type, options
    if (field.size() < 4 || std::find(std::begin(local), std::end(local), field[2]) == std::end(local)) continue;
    const bool is_read_only = field[3] == "ro" || field[3].starts_with("ro,");
    if (!is_read_only && field[1].find('\\') == std::string::npos) found.push_back(field[1]);
  }
  return found;
}

std::string mpirun_in_a_rank(const std::string& words) {
  if (words.find("mpirun does not support recursive calls") == std::string::npos) return {};
  return "inside a rank Open MPI 4's mpirun needs: env -u OMPI_UNIVERSE_SIZE -u OMPI_MCA_ess mpirun …";
}

std::string full_folders(const std::string& cwd, const std::string& temporary) {
  std::vector<std::string> folders = {temporary, cwd, "/dev/shm"};
  for (std::string& folder : local_mounts(whole_text("/proc/self/mounts"))) folders.push_back(std::move(folder));
  std::vector<std::string> full;
  for (const std::string& folder : folders) {
    const std::string text = folder.empty() ? "" : full_shared_memory(folder);
    if (!text.empty() && std::find(full.begin(), full.end(), text) == full.end()) full.push_back(text);
  }
  return full.empty() ? "" : join(full, "; ") + ": make room there, or set TMPDIR to another folder";
}

std::string core_pattern() { return first_line("/proc/sys/kernel/core_pattern"); }

std::string core_place(const std::string& pattern, const std::string& cwd) {
  if (pattern.starts_with("|")) {
    const std::vector<std::string> command = words(std::string_view(pattern).substr(1));
    return "its core file went to " + (command.empty() ? "a program" : command[0]);
  }
  const std::size_t slash = pattern.rfind('/');
  const bool absolute = pattern.starts_with("/");
  const std::string folder = slash == std::string::npos ? cwd
                             : absolute                 ? pattern.substr(0, slash + 1)
                                                        : cwd + "/" + pattern.substr(0, slash);
  return "its core file is in " + (folder.empty() ? "/" : folder);
}

/// The Xid in a record of the kernel's log.  Empty: the record has none of GPU @p pci since @p since_us.  A record:
/// "6,1234,5678901234,-;NVRM: Xid (PCI:0000:34:00): 79, pid=1234, GPU has fallen off the bus."
std::string xid_in(const std::string& record, const std::string& pci, std::int64_t since_us) {
  const std::size_t text = record.find(';');
  const std::size_t xid = record.find("NVRM: Xid (PCI:");
  if (text == std::string::npos || xid == std::string::npos || xid < text) return {};
  const std::vector<std::string> head = split(std::string_view(record).substr(0, text), ',');
  if (head.size() < 3 || to_integer(head[2]).value_or(-1) < since_us) return {};
  // The driver omits the PCI function: it writes 0000:34:00 for 0000:34:00.0.
  if (pci.size() < 10 || record.find(pci.substr(0, pci.rfind('.'))) == std::string::npos) return {};
  return std::string(trim(std::string_view(record).substr(xid + 6, record.find('\n', xid) - xid - 6)));
}

std::string xid_of(const std::string& pci, std::int64_t since_us) {
  const Fd log(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::string last;
  char record[8192];
  for (int i = 0; log && !pci.empty() && i < 100000; ++i) {
    const ssize_t n = read(log.get(), record, sizeof record);
    if (n < 0 && errno == EPIPE) continue;  // the kernel has overwritten the next record
    if (n <= 0) break;
    if (std::string xid = xid_in({record, static_cast<std::size_t>(n)}, pci, since_us); !xid.empty())
      last = std::move(xid);
  }
  return last;
}

}  // namespace hvd::rank
