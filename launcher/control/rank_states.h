/// @file rank_states.h — how far each rank of a job has come, as the session knows it.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "wire/channel/channel.h"
#include "wire/messages/death.h"

namespace hvd::launcher {

enum class RankStage { absent, greeted, running, ended, clean };

struct RankState {
  RankStage stage = RankStage::absent;
  wire::PeerId peer;
  bool local = false;
  bool gone = false;          ///< its guard's connection has ended
  bool told_to_stop = false;  ///< hvdrun has stopped this rank alone, not the whole job
  std::int64_t heard_ns = 0;  ///< when its guard's last message came, by our clock
  std::int64_t cut_ns = 0;    ///< when its host's last message came, if the connection to that host was lost; else 0
  std::int64_t rank_pid = 0;
  std::string phase;
  std::optional<wire::DeathRecord> death;
  struct AbortCall {
    int status = 0;
    std::string text;
    std::int64_t time_ns = 0;
  };
  std::optional<AbortCall> aborted;
  std::deque<wire::Frame> queue;  ///< frames that wait for room in the channel

  /// True if the rank's guard is connected and accepts messages.
  bool has_guard() const { return !gone && stage != RankStage::absent && stage != RankStage::clean; }
};

/// The states by rank, their number by stage, and the rank of each connection.
class RankStates {
 public:
  explicit RankStates(std::size_t ranks) : all_(ranks) { count(RankStage::absent) = ranks; }

  const std::vector<RankState>& all() const { return all_; }
  std::size_t size() const { return all_.size(); }
  RankState& operator[](int rank) { return all_[static_cast<std::size_t>(rank)]; }
  const RankState& operator[](int rank) const { return all_[static_cast<std::size_t>(rank)]; }

  /// Adds a rank with the next number, in the stage `absent`.
  void add() {
    all_.emplace_back();
    ++count(RankStage::absent);
  }
  void enter(RankState& state, RankStage stage) {
    --count(state.stage);
    ++count(stage);
    state.stage = stage;
  }
  std::size_t num_in(RankStage stage) const { return counts_[static_cast<std::size_t>(stage)]; }
  std::vector<int> in(RankStage stage) const {
    std::vector<int> found;
    for (std::size_t r = 0; r < all_.size(); ++r)
      if (all_[r].stage == stage) found.push_back(static_cast<int>(r));
    return found;
  }

  void connect(int rank, const wire::PeerId& peer) {
    (*this)[rank].peer = peer;
    rank_of_[peer] = rank;
  }
  /// -1: that connection is no rank's.
  int rank_of(const wire::PeerId& peer) const {
    const auto it = rank_of_.find(peer);
    return it == rank_of_.end() ? -1 : it->second;
  }

 private:
  std::size_t& count(RankStage stage) { return counts_[static_cast<std::size_t>(stage)]; }

  std::vector<RankState> all_;
  std::array<std::size_t, 5> counts_{};
  std::unordered_map<wire::PeerId, int> rank_of_;
};

}  // namespace hvd::launcher
