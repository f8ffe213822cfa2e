/// @file maker.h — names the process that made a file, so that another process can tell later whether the maker lives.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace hvd {

/// Identifies one process for ever.  A process id alone does not: ids are used again, and in another container's /proc
/// the same id is another process.
struct Maker {
  long long pid = 0;
  long long start_ticks = 0;    ///< since this host's boot
  long long pid_namespace = 0;  ///< its inode
};

/// Nothing where /proc does not know it.
std::optional<Maker> maker_of(pid_t pid);

/// "PID.START.NAMESPACE" and back.
std::string to_text(const Maker& maker);
std::optional<Maker> maker_from(std::string_view text);

/// True only when it is certain that the process has ended: it was of this namespace, and is not in /proc any more.
/// For processes of this boot only.
bool is_gone(const Maker& maker);

bool is_in_this_namespace(const Maker& maker);

/// As in ps(1): R, S, D, T, …; 0 where there is no such process.
char process_state(pid_t pid);
/// Whether the process has a handler for the signal.  By default most signals kill.
bool catches_signal(pid_t pid, int number);

/// This boot of this host; "-" where it cannot be told.
std::string boot_id();

}  // namespace hvd
