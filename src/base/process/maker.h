/// @file maker.h — names the process that made a file.  Later, another process can check whether the maker has ended.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace hvd {

/// Identifies one process during one boot of a host.  A process id alone is not enough.  The kernel uses ids again, and
/// in another container the same id means another process.
struct Maker {
  long long pid = 0;
  long long start_ticks = 0;    ///< start of the process: clock ticks after the host's boot
  long long pid_namespace = 0;  ///< inode of the PID namespace
};

/// Reads /proc.  Nothing: /proc does not show the process.
std::optional<Maker> maker_of(pid_t pid);

/// "PID.START.NAMESPACE".
std::string to_text(const Maker& maker);
std::optional<Maker> maker_from(std::string_view text);

/// True only if the process is of this namespace and has certainly ended.  A process has ended if /proc lacks it, if it
/// is a zombie, or if its id belongs to another process.  The caller checks that the process is of this boot
/// (boot_id()).
bool is_gone(const Maker& maker);

bool is_in_this_namespace(const Maker& maker);

/// One letter as in ps(1): R, S, D, T, …; 0 if there is no such process.
char process_state(pid_t pid);
/// True if the process runs the same file as this process.
bool runs_this_program(pid_t pid);
/// True if the process has a handler for the signal.  Without a handler, most signals kill the process.
bool catches_signal(pid_t pid, int number);

/// Identifies this boot of this host; "-" if /proc does not show it.
std::string boot_id();

}  // namespace hvd
