/// @file group_failures.h — groups that failed on other ranks while this rank submits their tensors one by one.
///
/// A group fails as a whole.  A rank that has submitted one of its tensors by itself, in no group, learns of it through
/// that one operation, which ends with the command `fail`.  Until the caller has released the operation, it cannot know
/// that the others' group is gone, and would wait for ever for the group's other tensors.  So what it submits meanwhile
/// counts as submitted before the failure, and a tensor that was in such a group is refused.
///
/// Pure.  Under the mutex of the process set.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>

#include "core/operation/checked_request.h"
#include "core/operation/name_table.h"

namespace hvd::core {

class GroupFailures {
 public:
  /// The command `fail`, the @p command th, ended this rank's operation of @p handle; 0: it ended none here.
  void operation_failed(std::int64_t handle, std::uint64_t command) {
    handle_ = handle;
    command_ = command;
  }
  /// The command `fail_group`, of a group that this rank had nothing of under way.
  void group_failed(std::uint64_t group, std::string text) {
    if (handle_ == 0) return;
    unseen_.push_back({command_, group, handle_, std::move(text)});
    if (unseen_.size() > most_unseen) unseen_.pop_front();
  }
  /// The command `outdate`: @p name was part of @p group, which has failed; announcements older than @p command ended.
  void outdate(std::string_view name, std::uint64_t command, std::uint64_t group) {
    if (any() && outdated_.size() < most_outdated) outdated_[std::string(name)] = {command, group};
  }

  /// There are failures of which the caller may not know.
  bool any() const { return handle_ != 0 || !unseen_.empty(); }
  /// Forgets what the caller has seen.  @p valid(handle): it has not been released.
  template <class Valid>
  void forget_seen(Valid&& valid) {
    if (handle_ != 0 && !valid(handle_)) handle_ = 0;
    std::erase_if(unseen_, [&](const UnseenFailure& u) { return !valid(u.handle); });
    if (!any()) outdated_.clear();  // what fails next has a larger number than all of these
  }
  /// Throws Error{mismatch} when one of @p requests was part of a group elsewhere that has failed, and the caller
  /// cannot know.  @p rank: this one, as messages call it.
  void refuse(std::span<const CheckedRequest> requests, int rank) const;
  /// How many commands had been carried out when @p e was submitted, as far as the caller can know.
  /// @param executed  how many have been carried out
  std::uint64_t submitted_at(const NameEntry& e, std::uint64_t executed) const;
  /// Groups and names that are kept: for tests.
  std::size_t known() const { return unseen_.size() + outdated_.size(); }

 private:
  /// What is kept while the caller does not release the handle of a failed operation.  More of it: the caller is told
  /// late, as of a stall.
  static constexpr std::size_t most_unseen = 1024, most_outdated = 16 << 10;
  struct UnseenFailure {
    std::uint64_t command, group;
    std::int64_t handle;
    std::string text;
  };
  struct OutdatedName {
    std::uint64_t command = 0, group = 0;
  };
  std::deque<UnseenFailure> unseen_;
  ByName<OutdatedName> outdated_;  ///< by the last command `outdate` for the name
  std::int64_t handle_ = 0;        ///< ended by the last command `fail`, until it is released
  std::uint64_t command_ = 0;      ///< number of that command
};

}  // namespace hvd::core
