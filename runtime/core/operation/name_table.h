/// @file name_table.h — the names of a process set's operations on this rank, and their ids from the coordinator.
///
/// The caller holds the mutex of the process set.  Entries keep their addresses until forget().
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/read_ahead.h"
#include "core/operation/checked_request.h"
#include "core/operation/name_entry.h"

namespace hvd::core {

/// Allows look-ups by string_view, without a copy.
struct NameHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
};
template <class T>
using ByName = std::unordered_map<std::string, T, NameHash, std::equal_to<>>;

class NameTable {
 public:
  /// Returns the entry of @p name, or makes one.
  NameEntry& entry(std::string_view name);
  /// nullptr: the name has no entry.
  NameEntry* find(std::string_view name) const;
  /// Marks the entries of all @p requests as in flight, and returns them: [requests.size()], valid until the next call.
  /// A request without a name gets one.  Throws Error{usage}, and marks none, if a name is in flight already or twice
  /// among the requests.
  std::span<NameEntry* const> take(std::span<const CheckedRequest> requests);
  /// Restarts the numbers in made names, since ranks that have joined have made fewer names than others.
  void restart_made_names();

  /// Gives @p name the coordinator's id and slot.
  NameEntry& assign(std::uint32_t id, std::uint32_t slot, std::string_view name);
  /// Frees @p id.  Returns the entry that had the id; the id stays in the entry until the caller changes it.  nullptr:
  /// no entry of this rank had the id.
  NameEntry* release_id(std::uint32_t id);
  /// Removes the entry.
  void forget(const NameEntry& e);
  /// Removes the entry if it is not in flight and has no id, since no command would ever remove it.
  void forget_unknown(const NameEntry& e);

  /// Calls f(entry) for each entry that is in flight and has an operation.
  template <class F>
  void in_flight(F&& f) const {
    for (const auto& [name, e] : entries_)
      if (e->in_flight.load() && e->operation) f(*e);
  }
  /// A few of the names in flight, for messages.
  std::string some_in_flight() const;
  /// The entry in flight whose name sorts first, among those that @p counts accepts.  nullptr: there is none.
  const NameEntry* first_in_flight(const std::function<bool(const NameEntry&)>& counts) const;

 private:
  NameEntry& next(std::string_view name);
  NameEntry& following(std::string_view name);
  std::string make_name(const SignatureHead& s);

  ByName<std::unique_ptr<NameEntry>> entries_;
  std::vector<NameEntry*> by_id_;  ///< by id; the length is the largest id ever used plus one
  std::uint64_t made_names_[num_kinds] = {};
  std::vector<NameEntry*> taken_;                ///< by the last take()
  NameEntry* last_ = nullptr;                    ///< the entry submitted last
  std::array<NameEntry*, read_ahead> recent_{};  ///< a ring of the entries submitted before; null: forgotten
  std::size_t turn_ = 0;                         ///< of the ring
  std::uint64_t epoch_ = 0;  ///< number of forgotten names: `after` pointers of an older epoch are invalid
};

}  // namespace hvd::core
