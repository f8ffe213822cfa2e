/// @file nvml.h — the part of NVIDIA's management library that hvdrank uses, by dlopen() of libnvidia-ml.so.1.
///
/// A call may take long.  If a GPU has fallen off the bus, a call never returns.  So call only from a thread for which
/// no other thread waits.
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
    int pid = 0;  ///< the driver's number: the host's, which in a container may differ
    std::int64_t bytes = 0;
  };
  enum class Peer { gpu, nvswitch, other };
  /// One link that is up, and the device at its other end.
  struct Link {
    Peer to = Peer::other;
    std::string pci;  ///< of the device at the other end; empty: unknown
  };

  /// Loads and initialises the library.  False: this host has none.  Never unloads the library, because its threads may
  /// run.
  bool open();
  /// Finds a device by UUID ("GPU-…", "MIG-…") or PCI address.  Nothing: the device is unknown.
  std::optional<Device> device(const std::string& name) const;

  // The following functions return nothing, or an empty list, if the device or the library does not support the call.
  // Example: a MIG slice.
  std::optional<unsigned> busy_percent(Device device) const;
  std::optional<MemoryUse> memory(Device device) const;
  /// The processes that compute on @p device.
  std::vector<ProcessMemory> processes(Device device) const;
  /// Uncorrectable memory errors since the driver was loaded.
  std::optional<std::int64_t> lost_words(Device device) const;
  std::vector<Link> links(Device device) const;

  /// Makes the driver record Xid events of @p device from now on.
  bool watch_xids(Device device);
  /// The next recorded event, or nothing; never waits.
  std::optional<std::uint64_t> next_xid() const;

 private:
  template <class F>
  bool find(F* function, const char* name) const;

  void* library_ = nullptr;
  void* events_ = nullptr;
};

}  // namespace hvd::rank
