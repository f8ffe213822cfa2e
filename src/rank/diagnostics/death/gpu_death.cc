#include "rank/diagnostics/death/gpu_death.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "rank/diagnostics/death/death_facts.h"

namespace hvd::rank {

namespace {

/// The position of the last text that means "no memory on the GPU"; npos: there is none.
std::size_t last_sign(std::string_view words) {
  static constexpr std::string_view signs[] = {"CUDA out of memory",         "CUDA error: out of memory",
                                               "CUDA_ERROR_OUT_OF_MEMORY",   "cudaErrorMemoryAllocation",
                                               "torch.OutOfMemoryError",     "torch.cuda.OutOfMemoryError",
                                               "RESOURCE_EXHAUSTED: Out of", "no device memory for",
                                               "CUBLAS_STATUS_ALLOC_FAILED", "HIP out of memory"};
  std::size_t best = std::string_view::npos;
  const auto take = [&](std::size_t at) {
    if (at != std::string_view::npos && (best == std::string_view::npos || at > best)) best = at;
  };
  for (const std::string_view sign : signs) take(words.rfind(sign));
  if (words.find("device:GPU") != std::string_view::npos) take(words.rfind("OOM when allocating tensor"));
  return best;
}

/// The amount after @p key, such as "20.00 GiB".  A plain number of bytes is converted to this form.  Empty: no amount.
std::string amount_after(std::string_view words, std::string_view key) {
  const std::size_t at = words.find(key);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = words.substr(at + key.size(), 40);
  const std::size_t digits = std::min(rest.find_first_not_of("0123456789."), rest.size());
  if (digits == 0) return {};
  const std::string number(rest.substr(0, digits));
  const std::size_t blank = digits < rest.size() && rest[digits] == ' ' ? 1 : 0;
  for (const std::string_view unit : {"GiB", "MiB", "KiB"})
    if (rest.substr(digits + blank).starts_with(unit)) return number + " " + std::string(unit);
  const auto bytes = to_integer(number);
  return bytes ? human_bytes(*bytes) : "";
}

std::string first_amount(std::string_view words, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys)
    if (std::string amount = amount_after(words, key); !amount.empty()) return amount;
  return {};
}

std::string free_text(std::string_view said, const GpuFacts& facts) {
  const std::string total = amount_after(said, "total capacity of "), left = amount_after(said, " of which ");
  if (!total.empty() && !left.empty()) return left + " of " + total;
  if (const std::size_t open = said.find('('), close = said.find(" are free)");  // libhvd's message
      open < close && close != std::string_view::npos && said.starts_with("no device memory for")) {
    const std::string_view amounts = said.substr(open + 1, close - open - 1);  // other threads' output may be mixed in
    if (amounts.size() <= 40 && amounts.find_first_not_of("0123456789. ofKMGiB") == std::string_view::npos)
      return std::string(amounts);
  }
  if (facts.total_bytes <= 0) return {};
  return human_bytes(facts.free_bytes) + " of " + human_bytes(facts.total_bytes);
}

std::string process_text(const GpuFacts::GpuProcess& p) {
  return formatted("{} (pid {}){}", p.name.empty() ? "a process not seen from here" : p.name, p.pid,
                   p.bytes > 0 ? " " + human_bytes(p.bytes) : "");
}

}  // namespace

GpuVerdict out_of_gpu_memory(const std::string& last_words, const GpuFacts& facts) {
  const std::size_t at = last_sign(last_words);
  if (at == std::string::npos) return {};
  const std::string_view said = std::string_view(last_words).substr(at);
  std::string text = "its GPU's memory ran out";
  const std::string asked = first_amount(said, {"Tried to allocate ", "trying to allocate ", "memory allocating ",
                                                "no device memory for ", "failed to allocate "});
  if (!asked.empty()) text += ": it asked for " + asked;
  if (const std::string left = free_text(said, facts); !left.empty())
    text += (asked.empty() ? ": " : " when ") + left + " were free";
  std::string held = amount_after(said, "this process has ");
  std::int64_t own = 0;
  std::vector<std::string> others;
  std::vector<GpuFacts::GpuProcess> all = facts.processes;
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  for (const GpuFacts::GpuProcess& p : all) {
    if (p.own)
      own += p.bytes;
    else
      others.push_back(process_text(p));
  }
  if (held.empty() && own > 0) held = human_bytes(own);
  if (!held.empty()) text += "; it held " + held;
  if (!others.empty()) text += "; so did " + join(others, ", ");
  return {text,
          others.empty() ? "use a smaller batch or fewer ranks on this GPU"
                         : "others use this GPU: end them, use fewer ranks on it, or a smaller batch",
          wire::DeathFact::gpu_memory};
}

GpuVerdict gpu_errors(const GpuFacts& facts) {
  static constexpr std::pair<std::uint64_t, std::string_view> known[] = {
      {13, "a kernel failed"},           {31, "a kernel reached for memory that is not its own"},
      {43, "a kernel was stopped"},      {48, "memory errors that ECC could not correct"},
      {63, "a memory row was replaced"}, {64, "a memory row could not be replaced"},
      {74, "an NVLink failed"},          {79, "the GPU has fallen off the bus"},
      {94, "a contained memory error"},  {95, "a memory error that was not contained"}};
  std::vector<std::string> parts;
  std::vector<std::uint64_t> told;
  for (const std::uint64_t xid : facts.xids) {
    if (std::find(told.begin(), told.end(), xid) != told.end()) continue;
    told.push_back(xid);
    const auto* word =
        std::find_if(std::begin(known), std::end(known), [xid](const auto& k) { return k.first == xid; });
    parts.push_back(formatted("Xid {}{}", xid, word == std::end(known) ? "" : " (" + std::string(word->second) + ")"));
  }
  constexpr std::array<std::uint64_t, 3> of_programs = {13, 31, 43};
  const bool by_program = facts.lost_words == 0 && std::ranges::all_of(told, [&](std::uint64_t xid) {
                            return std::ranges::find(of_programs, xid) != of_programs.end();
                          });
  if (facts.lost_words > 0) parts.push_back(count_of(facts.lost_words, "memory error") + " that ECC could not correct");
  if (parts.empty()) return {};
  return {"the GPU's driver reports " + join(parts, ", "),
          facts.lost_words > 0 ? "nvidia-smi -q -d ECC,ROW_REMAPPER tells more; the GPU may need a reset"
                               : "NVIDIA lists what each Xid means and whether the GPU needs a reset",
          by_program ? wire::DeathFact::gpu_program : wire::DeathFact::gpu_error};
}

}  // namespace hvd::rank
