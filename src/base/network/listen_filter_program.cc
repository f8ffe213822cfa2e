#include "base/network/listen_filter_program.h"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace hvd {

namespace {

using Instructions = std::vector<sock_filter>;
using Words = std::array<std::uint32_t, 4>;

// Offsets in a packet.  For a TCP socket's filter, offset 0 is the TCP header, and `network` is the IP header.
constexpr std::uint32_t tcp_flags = 13, network = static_cast<std::uint32_t>(SKF_NET_OFF);
constexpr std::uint32_t source_4 = network + 12, target_4 = network + 16, source_6 = network + 8,
                        target_6 = network + 24;
constexpr std::uint32_t tcp_syn = 0x02, accept_all = 0xffffffff, drop = 0;

// A socket's filter may have net.core.optmem_max bytes, usually 20 KiB or 2 500 instructions.  With these limits a
// program has at most 1 400 instructions.
constexpr std::size_t most_ranges_4 = 250, most_hosts_6 = 60, most_networks_6 = 100;

sock_filter load(std::uint16_t size, std::uint32_t at) {
  return BPF_STMT(static_cast<std::uint16_t>(BPF_LD | BPF_ABS | size), at);
}
sock_filter recall(std::uint32_t slot) { return BPF_STMT(BPF_LD | BPF_MEM, slot); }
sock_filter verdict(std::uint32_t what) { return BPF_STMT(BPF_RET | BPF_K, what); }
/// Skips @p yes instructions if the condition is true for the loaded value, else @p no instructions.
sock_filter when(std::uint16_t condition, std::uint32_t value, std::uint8_t yes, std::uint8_t no) {
  return BPF_JUMP(static_cast<std::uint16_t>(BPF_JMP | BPF_K | condition), value, yes, no);
}

Words words_of(const Address& address) {
  Words words{};
  for (std::size_t i = 0; i < address.size(); ++i) words[i / 4] = words[i / 4] << 8 | address[i];
  return words;
}

/// At most most_ranges_4 ranges that contain all values.  The widest gaps lie between the ranges.
/// @param values  ascending
std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges_of(const std::vector<std::uint32_t>& values) {
  std::vector<std::size_t> cuts;  // indices of values at which a new range begins
  for (std::size_t i = 1; i < values.size(); ++i) cuts.push_back(i);
  if (cuts.size() >= most_ranges_4) {
    const auto last = cuts.begin() + (most_ranges_4 - 1);
    auto gap = [&](std::size_t i) { return values[i] - values[i - 1]; };
    std::nth_element(cuts.begin(), last, cuts.end(), [&](std::size_t a, std::size_t b) { return gap(a) > gap(b); });
    cuts.erase(last, cuts.end());
    std::sort(cuts.begin(), cuts.end());
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges;
  std::size_t begin = 0;
  cuts.push_back(values.size());
  for (std::size_t end : cuts) {
    if (begin < end) ranges.emplace_back(values[begin], values[end - 1]);
    begin = end;
  }
  return ranges;
}

Instructions version_4(const std::vector<std::uint32_t>& from) {
  Instructions code = {load(BPF_B, source_4),
                       when(BPF_JEQ, IN_LOOPBACKNET, 0, 1),
                       verdict(accept_all),
                       load(BPF_W, target_4),
                       BPF_STMT(BPF_MISC | BPF_TAX, 0),
                       load(BPF_W, source_4),
                       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 1),
                       verdict(accept_all)};
  for (const auto& [lowest, highest] : ranges_of(from)) {
    code.push_back(when(BPF_JGE, lowest, 0, 2));
    code.push_back(when(BPF_JGT, highest, 1, 0));
    code.push_back(verdict(accept_all));
  }
  code.push_back(verdict(drop));
  return code;
}

Instructions version_6(std::vector<Words> from) {
  Instructions code;
  // Equal source and target: this machine sends to itself.  Packets of ::1 have it as their target too.
  for (std::uint32_t i = 0; i < 4; ++i) {
    code.push_back(load(BPF_W, source_6 + 4 * i));
    code.push_back(BPF_STMT(BPF_ST, i));
  }
  for (std::uint32_t i = 0; i < 4; ++i) {
    code.push_back(load(BPF_W, target_6 + 4 * i));
    code.push_back(BPF_STMT(BPF_MISC | BPF_TAX, 0));
    code.push_back(recall(i));
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, static_cast<std::uint8_t>(4 * (3 - i) + 1)));
  }
  code.push_back(verdict(accept_all));
  std::uint32_t compared = 4;
  if (from.size() > most_hosts_6) {  // compare only the first 64 bits
    compared = 2;
    for (Words& words : from) words[2] = words[3] = 0;
    from.erase(std::unique(from.begin(), from.end()), from.end());
  }
  if (from.size() > most_networks_6) return {verdict(accept_all)};
  for (const Words& words : from) {
    for (std::uint32_t i = 0; i < compared; ++i) {
      code.push_back(recall(i));
      code.push_back(when(BPF_JEQ, words[i], 0, static_cast<std::uint8_t>(2 * (compared - 1 - i) + 1)));
    }
    code.push_back(verdict(accept_all));
  }
  code.push_back(verdict(drop));
  return code;
}

}  // namespace

std::vector<sock_filter> let_in(const std::vector<Address>& from) {
  std::vector<std::uint32_t> from_4;
  std::vector<Words> from_6;
  for (const Address& address : from) {
    const Words words = words_of(address);
    if (words[0] == 0 && words[1] == 0 && words[2] == 0xffff)
      from_4.push_back(words[3]);
    else
      from_6.push_back(words);
  }
  std::sort(from_4.begin(), from_4.end());
  from_4.erase(std::unique(from_4.begin(), from_4.end()), from_4.end());
  std::sort(from_6.begin(), from_6.end());
  from_6.erase(std::unique(from_6.begin(), from_6.end()), from_6.end());

  Instructions code;
  if (!from.empty()) code = {load(BPF_B, tcp_flags), when(BPF_JSET, tcp_syn, 1, 0), verdict(accept_all)};
  const Instructions four = version_4(from_4), six = version_6(std::move(from_6));
  code.push_back(load(BPF_B, network));  // the upper half of this byte is the IP version
  code.push_back(BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 4));
  code.push_back(when(BPF_JEQ, 6, 0, 1));
  code.push_back(BPF_STMT(BPF_JMP | BPF_JA, static_cast<std::uint32_t>(four.size())));
  code.insert(code.end(), four.begin(), four.end());
  code.insert(code.end(), six.begin(), six.end());
  return code;
}

}  // namespace hvd
