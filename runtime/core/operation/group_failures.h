/// @file group_failures.h — groups that failed on other ranks while this rank submits their tensors one by one.
///
/// A group fails as a whole.  Say that this rank has submitted one tensor of a failed group by itself, in no group.
/// The command `fail` ends that one operation, and so tells of the failure.  Until the caller has released the
/// operation, the caller cannot know that the group has failed.  The caller would then submit the group's other
/// tensors, and wait for them without end.  So until then, operations count as submitted before the failure, and a
/// tensor of such a group is refused.
///
/// Pure.  The caller holds the mutex of the process set.
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
  /// Records the command `fail`, which has the number @p command and ended the operation of @p handle.  0: the command
  /// ended no operation of this rank.
  void operation_failed(std::int64_t handle, std::uint64_t command) {
    handle_ = handle;
    command_ = command;
  }
  /// Records the command `fail_group` for a group.  This rank had no operation of the group under way.
  void group_failed(std::uint64_t group, std::string text) {
    if (handle_ == 0) return;
    unseen_.push_back({command_, group, handle_, std::move(text)});
    if (unseen_.size() > most_unseen) unseen_.pop_front();
  }
  /// Records the command `outdate`: @p name was part of @p group, which has failed.  Announcements older than @p
  /// command have ended.
  void outdate(std::string_view name, std::uint64_t command, std::uint64_t group) {
    if (any() && outdated_.size() < most_outdated) outdated_[std::string(name)] = {command, group};
  }

  /// True if the caller may not know all failures yet.
  bool any() const { return handle_ != 0 || !unseen_.empty(); }
  /// Forgets failures whose handles the caller has released.  @p valid(handle): the handle has not been released.
  template <class Valid>
  void forget_seen(Valid&& valid) {
    if (handle_ != 0 && !valid(handle_)) handle_ = 0;
    std::erase_if(unseen_, [&](const UnseenFailure& u) { return !valid(u.handle); });
    if (!any()) outdated_.clear();  // later failures have larger numbers
  }
  /// Throws Error{mismatch} if one of @p requests belonged to a group elsewhere that has failed unknown to the caller.
  /// @p rank: this rank's number for messages.
  void refuse(std::span<const CheckedRequest> requests, int rank) const;
  /// The number of commands that the runtime had carried out when the caller submitted @p e.  The count stops before
  /// the first failure that the caller may not know.
  /// @param executed  the number of commands carried out by now
  std::uint64_t submitted_at(const NameEntry& e, std::uint64_t executed) const;
  /// The number of groups and names kept here.  For tests.
  std::size_t known() const { return unseen_.size() + outdated_.size(); }

 private:
  /// Limits of the memory used while the caller does not release the handle of a failed operation.  Beyond these the
  /// caller learns of a failure late, as of a stall.
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
  std::int64_t handle_ = 0;        ///< of the operation that the last command `fail` ended, until released
  std::uint64_t command_ = 0;      ///< number of that command
};

}  // namespace hvd::core
