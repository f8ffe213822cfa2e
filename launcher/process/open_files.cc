#include "launcher/process/open_files.h"

#include <sys/resource.h>

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

void allow_files(std::size_t ranks, bool all_here) {
  rlimit files{};
  const rlim_t wanted = 4 * ranks + 512, least = 2 * ranks + 32;
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted) return;
  if (all_here && files.rlim_max < least)
    throw Error(Code::unavailable, "",
                formatted("a process may open only {} files here, too few for {}", files.rlim_max,
                          count_of(static_cast<long long>(ranks), "rank")),
                formatted("raise the hard limit to {} or more (ulimit -Hn, or nofile in limits.conf)", wanted));
  files.rlim_cur = std::min(wanted, files.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace hvd::launcher
