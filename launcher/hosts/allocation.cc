#include "launcher/hosts/allocation.h"

#include "base/error.h"
#include "base/format.h"
#include "launcher/hosts/host_reader.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_names = 4u << 20;  ///< a resource manager may write a host's name once for each slot

}  // namespace

long long Allocation::total_slots() const {
  long long total = 0;
  for (const HostSlots& h : hosts) total += h.slots;
  return total;
}

void add_host(Allocation& allocation, const std::string& host, int slots, const std::string& where) {
  if (++allocation.named > most_names)
    throw Error(Code::usage, where, formatted("hosts are named more than {} times", most_names));
  const auto [place, is_new] = allocation.places.try_emplace(host, allocation.hosts.size());
  if (is_new) {
    if (allocation.hosts.size() == most_hosts)
      throw Error(Code::usage, where, formatted("there are more than {} hosts", most_hosts));
    allocation.hosts.push_back({host, slots, where});
    return;
  }
  int& sum = allocation.hosts[place->second].slots;
  if (sum > most_slots - slots) throw Error(Code::usage, where, "'" + host + "' has more slots than any host has");
  sum += slots;
}

}  // namespace hvd::launcher
