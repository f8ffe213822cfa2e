/// @file rounds.h — questions to several ranks: the answers are given together, once all have come or time is up.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace hvd::launcher {

/// Rounds that are open.  Thread: the event loop's.
template <class Answer>
class Rounds {
 public:
  using Clock = std::chrono::steady_clock;
  using Answers = std::map<int, Answer>;  ///< by rank
  using Done = std::function<void(const Answers&)>;

  /// @param asked  the ranks that will answer
  /// @param done   called by turn(), with the answers until then
  void open(std::set<int> asked, Clock::duration limit, Done done) {
    rounds_.push_back({std::move(asked), {}, Clock::now() + limit, std::move(done)});
  }
  void take(int rank, const Answer& answer) {
    for (Round& round : rounds_)
      if (round.open.erase(rank)) round.answers[rank] = answer;
  }
  void turn() {
    for (std::size_t i = 0; i < rounds_.size();) {
      if (!rounds_[i].open.empty() && Clock::now() < rounds_[i].limit) {
        ++i;
        continue;
      }
      const Round round = std::move(rounds_[i]);
      rounds_.erase(rounds_.begin() + static_cast<std::ptrdiff_t>(i));
      round.done(round.answers);
    }
  }
  bool empty() const { return rounds_.empty(); }

 private:
  struct Round {
    std::set<int> open;
    Answers answers;
    Clock::time_point limit;
    Done done;
  };
  std::vector<Round> rounds_;
};

}  // namespace hvd::launcher
