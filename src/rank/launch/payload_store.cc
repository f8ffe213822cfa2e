#include "rank/launch/payload_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/format.h"

namespace hvd::rank {

PayloadStore::PayloadStore() : fd_(memfd_create("hvd-payload", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!fd_) throw Error(Code::unavailable, "payload", "no memory file: " + errno_text(errno));
}

void PayloadStore::add(std::string_view piece) {
  if (!write_all(fd_.get(), piece))
    throw Error(Code::unavailable, "payload", "does not fit into this host's memory: " + errno_text(errno));
  bytes_ += piece.size();
}

void PayloadStore::seal() { fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL); }

std::string PayloadStore::path() const { return formatted("/proc/{}/fd/{}", getpid(), fd_.get()); }

Fd text_in_memory(const char* name, std::string_view text) {
  Fd fd(memfd_create(name, MFD_CLOEXEC));
  if (!fd || !write_all(fd.get(), text) || lseek(fd.get(), 0, SEEK_SET) != 0)
    throw Error(Code::unavailable, name, "no memory file: " + errno_text(errno));
  return fd;
}

}  // namespace hvd::rank
