/// @file name_table.h — the names of a process set's operations on this rank, and the ids that the coordinator gave
/// them.
///
/// Not thread-safe: under the mutex of the process set.  Entries keep their address until they are forgotten.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/operation/checked_request.h"
#include "core/operation/name_entry.h"

namespace hvd::core {

/// Finds a name without making a string of it.
struct NameHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
};
template <class T>
using ByName = std::unordered_map<std::string, T, NameHash, std::equal_to<>>;

class NameTable {
 public:
  /// @p ids  how many there are
  explicit NameTable(std::uint32_t ids) : by_id_(ids) {}

  /// The entry of this name, made when there is none.
  NameEntry& entry(std::string_view name);
  /// nullptr: there is none.
  NameEntry* find(std::string_view name) const;
  /// All or nothing: the entries of @p requests, in flight from now on.  A request without a name gets one.  Throws
  /// Error{usage} when one of them is in flight already, or comes twice.  [requests.size()], valid until the next call.
  std::span<NameEntry* const> take(std::span<const CheckedRequest> requests);
  /// Requests without a name count anew: ranks that have joined have made fewer of them.
  void restart_made_names();

  /// The coordinator's id for @p name.
  NameEntry& assign(std::uint32_t id, std::uint32_t slot, std::string_view name);
  /// The id is nobody's any more.  Its entry, which keeps it until it is changed; nullptr: it had none here.
  NameEntry* release_id(std::uint32_t id);
  /// The entry is gone.
  void forget(const NameEntry& e);
  /// The same for an entry that is not in flight, unless it has an id: else nothing would ever make it go.
  void forget_unknown(const NameEntry& e);

  /// Calls f(entry) for all that are in flight and have an operation.
  template <class F>
  void in_flight(F&& f) const {
    for (const auto& [name, e] : entries_)
      if (e->in_flight.load() && e->operation) f(*e);
  }
  /// A few of the names in flight, for messages.
  std::string some_in_flight() const;
  /// The first of them by the alphabet but for that of @p except; nullptr: there is none.
  const std::string* first_in_flight(const Operation* except) const;

 private:
  NameEntry& next(std::string_view name);
  std::string make_name(const Signature& s);

  ByName<std::unique_ptr<NameEntry>> entries_;
  std::vector<NameEntry*> by_id_;  ///< [ids]
  std::uint64_t made_names_[num_kinds] = {};
  std::vector<NameEntry*> taken_;  ///< by the last take()
  NameEntry* last_ = nullptr;      ///< submitted last
  std::uint64_t epoch_ = 0;        ///< names that were ever forgotten: `after` pointers from before are void
};

}  // namespace hvd::core
