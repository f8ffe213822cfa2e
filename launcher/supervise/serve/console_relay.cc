#include "launcher/supervise/serve/console_relay.h"

#include <algorithm>
#include <string>

#include "base/format.h"

namespace hvd::launcher {

namespace {

using namespace std::chrono_literals;
using wire::ConsoleInput;
using wire::ConsoleOutput;
using wire::ConsoleRefusal;

constexpr auto busy_limit = 3s;
constexpr int nobody = -1;

std::string body_of(ConsoleInput word, std::string_view bytes = {}) {
  std::string body(1, static_cast<char>(word));
  return body.append(bytes);
}

}  // namespace

void ConsoleRelay::open(int caller, long long rank) {
  if (rank < 0 || rank >= static_cast<long long>(session_.ranks().size()))
    return callers_.answer(caller, std::string(console_line::refused) + console_line::no_such_rank + "\n");
  callers_.converse(caller);
  const int number = static_cast<int>(rank);
  if (caller_of_.contains(number)) return waiting_.push_back({caller, number, Clock::now() + busy_limit});
  ask(caller, number);
}

void ConsoleRelay::ask(int caller, int rank) {
  if (session_.ranks()[static_cast<std::size_t>(rank)].stage != RankStage::running ||
      !session_.tell(rank, wire::Type::console_input, body_of(ConsoleInput::open)))
    return refuse(caller, ConsoleRefusal::absent);
  caller_of_[rank] = caller;
}

void ConsoleRelay::refuse(int caller, ConsoleRefusal why, std::string_view text) {
  callers_.say(caller, formatted("{}{}{}\n", console_line::refused, std::string(1, static_cast<char>(why)), text));
  callers_.end(caller);
}

void ConsoleRelay::take(int rank, std::string_view body) {
  const auto it = caller_of_.find(rank);
  if (body.empty()) return;
  if (it == caller_of_.end()) {  // the caller is gone: the rank must not wait for input
    if (static_cast<ConsoleOutput>(body[0]) == ConsoleOutput::open)
      session_.tell(rank, wire::Type::console_input, body_of(ConsoleInput::leave));
    return;
  }
  const int caller = it->second;
  const std::string_view rest = body.substr(1);
  switch (static_cast<ConsoleOutput>(body[0])) {
    case ConsoleOutput::open: {
      const RankState& state = session_.ranks()[static_cast<std::size_t>(rank)];
      callers_.say(caller, formatted("{}{} {}\n", console_line::opened, state.rank_pid, map_.host_of(rank).name));
      return;
    }
    case ConsoleOutput::text:
      return callers_.say(caller, rest);
    case ConsoleOutput::refused:
      if (!rest.empty()) callers_.say(caller, formatted("{}{}\n", console_line::refused, rest));
      return;
    case ConsoleOutput::end:
      callers_.end(caller);
      caller_of_.erase(it);
      return;
  }
}

void ConsoleRelay::rank_ended(int rank) {
  const auto it = caller_of_.find(rank);
  if (it == caller_of_.end()) return;
  callers_.end(it->second);
  caller_of_.erase(it);
}

void ConsoleRelay::turn() {
  while (const auto heard = callers_.heard()) {
    const auto it = std::find_if(caller_of_.begin(), caller_of_.end(),
                                 [&](const auto& entry) { return entry.second == heard->id; });
    if (it == caller_of_.end()) {
      if (heard->gone) std::erase_if(waiting_, [&](const Waiting& w) { return w.caller == heard->id; });
      continue;
    }
    if (!heard->bytes.empty())
      session_.tell(it->first, wire::Type::console_input, body_of(ConsoleInput::text, heard->bytes));
    if (heard->gone) {
      session_.tell(it->first, wire::Type::console_input, body_of(ConsoleInput::leave));
      it->second = nobody;
    } else if (heard->ended) {
      session_.tell(it->first, wire::Type::console_input, body_of(ConsoleInput::end));
    }
  }
  for (std::size_t i = 0; i < waiting_.size();) {
    const Waiting w = waiting_[i];
    const bool is_free = !caller_of_.contains(w.rank);
    if (!is_free && Clock::now() < w.limit) {
      ++i;
      continue;
    }
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    if (is_free)
      ask(w.caller, w.rank);
    else
      refuse(w.caller, ConsoleRefusal::busy);
  }
}

}  // namespace hvd::launcher
