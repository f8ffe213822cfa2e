#include "launcher/supervise/watch.h"

#include <algorithm>

#include "base/error.h"

namespace hvd::launcher {

namespace {

using Where = RankNow::Where;

constexpr double look_every = 0.5;
constexpr double word_lasts = 5;  // a conductor says every second who waits
constexpr std::size_t most_asked = 64;

double now_seconds() { return static_cast<double>(monotonic_ns()) / 1e9; }

Where where_of(wire::Place place) {
  switch (place) {
    case wire::Place::script:
      return Where::script;
    case wire::Place::init:
      return Where::init;
    case wire::Place::working:
      return Where::working;
    case wire::Place::leaving:
      break;
  }
  return Where::leaving;
}

}  // namespace

Watch::Watch(const Session& session, const Plan& plan, std::optional<Patience> patience, Hands hands)
    : session_(session),
      plan_(plan),
      patience_(patience),
      hands_(std::move(hands)),
      incidents_(patience.value_or(Patience{})),
      ranks_(plan.ranks.size()) {}

void Watch::standing(int rank, const wire::Standing& s) {
  const double now = now_seconds();
  RankNow& r = ranks_[static_cast<std::size_t>(rank)];
  r.where = where_of(s.place);
  r.since = now - s.place_seconds;
  r.waits_for = s.waits_for;
  for (char& c : r.waits_for)
    if (static_cast<unsigned char>(c) < 32) c = '?';  // it goes to a terminal
  r.waits_since = now - s.waited_seconds;
}

void Watch::stall(int rank, std::string_view body) {
  const double now = now_seconds();
  try {
    said_[rank] = {now, long_waits_from_json(std::string(body), static_cast<int>(ranks_.size()), now)};
  } catch (const Error&) {}  // from the rank itself, which may send anything
}

void Watch::paused(int rank, bool paused) {
  RankNow& r = ranks_[static_cast<std::size_t>(rank)];
  r.stopped_since.reset();
  if (paused) r.stopped_since = now_seconds();
}

void Watch::all_paused(bool paused) {
  all_paused_ = paused;
  resumed_ = now_seconds();
  for (RankNow& r : ranks_) r.stopped_since.reset();
}

/// The session knows best who is not there yet, and who has ended.
Facts Watch::facts(double now) const {
  Facts f{now, ranks_, {}};
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    RankNow& r = f.ranks[i];
    const RankState& state = session_.ranks()[i];
    if (state.stage == Stage::absent) r.where = Where::absent;
    if (state.stage == Stage::running && r.where == Where::absent) r.where = Where::script;
    if (state.stage < Stage::ended) continue;
    r.where = Where::ended;
    if (state.death) r.since = static_cast<double>(state.death->time_ns) / 1e9;
  }
  for (const auto& [rank, said] : said_)
    if (now - said.at < word_lasts) f.waits.insert(f.waits.end(), said.waits.begin(), said.waits.end());
  for (RankNow& r : f.ranks) {
    r.since = std::max(r.since, resumed_);
    r.waits_since = std::max(r.waits_since, resumed_);
  }
  for (LongWait& w : f.waits) w.since = std::max(w.since, resumed_);
  std::erase_if(f.waits, [&](const LongWait& w) { return now - w.since < patience_->hang && w.since == resumed_; });
  return f;
}

void Watch::turn() {
  const double now = now_seconds();
  if (!patience_ || all_paused_ || now < next_look_) return;
  next_look_ = now + look_every;
  for (const Event& event : incidents_.look(facts(now))) tell(event);
}

/// The missing ones; and where several hosts are, one of each, which knows whether another does not answer.
std::vector<int> Watch::whom_to_ask(const Incident& incident) const {
  std::vector<int> ranks(
      incident.missing.begin(),
      incident.missing.begin() + static_cast<std::ptrdiff_t>(std::min(incident.missing.size(), most_asked)));
  if (plan_.hosts.size() < 2) return ranks;
  std::size_t hosts = 0;
  for (const RankPlace& p : plan_.ranks)
    if (p.local_rank == 0 && hosts++ < most_asked && std::find(ranks.begin(), ranks.end(), p.rank) == ranks.end())
      ranks.push_back(p.rank);
  return ranks;
}

void Watch::tell(const Event& event) {
  if (event.what == Event::What::closed) return hands_.say(closed_line(event.incident, event.seconds, plan_));
  if (event.what == Event::What::give_up) return hands_.give_up(given_up(event.incident, event.seconds, plan_));
  hands_.ask(whom_to_ask(event.incident), [this, event](const Pictures& pictures) {
    std::vector<int> ended;
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      if (session_.ranks()[r].stage >= Stage::ended) ended.push_back(static_cast<int>(r));
    for (const std::string& line : hang_lines(event.incident, event.seconds, plan_, pictures, ended)) hands_.say(line);
  });
}

}  // namespace hvd::launcher
