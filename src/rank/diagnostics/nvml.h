/// @file nvml.h — the part of NVIDIA's management library that hvdrank asks, by dlopen of libnvidia-ml.so.1.
/// Any call may take its time, or for ever where a GPU has fallen off the bus: only from threads that nobody waits for.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hvd::rank {

class Nvml {
 public:
  using Device = void*;
  struct MemoryUse {
    std::int64_t total = 0, free = 0, used = 0;
  };
  struct ProcessMemory {
    int pid = 0;  ///< as the driver counts them: those of the host, not always of a container
    std::int64_t bytes = 0;
  };
  enum class Peer { gpu, nvswitch, other };
  /// One link that is up, and where it leads.
  struct Link {
    Peer to = Peer::other;
    std::string pci;  ///< of what is there; empty: not told
  };

  /// Loads and starts the library; false where there is none.  Never unloaded: other threads of it may run.
  bool open();
  /// By UUID ("GPU-…", "MIG-…") or PCI address; nothing where it is not known.
  std::optional<Device> device(const std::string& name) const;

  // Nothing, or none, where this device (a part of one, say), or this version of the library, does not tell.
  std::optional<unsigned> busy_percent(Device device) const;
  std::optional<MemoryUse> memory(Device device) const;
  /// Those that compute on it.
  std::vector<ProcessMemory> processes(Device device) const;
  /// Memory errors that could not be corrected, since the driver was loaded.
  std::optional<std::int64_t> lost_words(Device device) const;
  std::vector<Link> links(Device device) const;

  /// From now on the driver's Xid events of @p device are kept.
  bool watch_xids(Device device);
  /// The next that is kept, without waiting.
  std::optional<std::uint64_t> next_xid() const;

 private:
  template <class F>
  bool find(F* function, const char* name) const;

  void* library_ = nullptr;
  void* events_ = nullptr;
};

}  // namespace hvd::rank
