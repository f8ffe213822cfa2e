/// @file elastic.cc — elastic jobs under a simulated clock: hvdrun's own ElasticJob and MeetingHub, with workers, links
/// and faults of a seed.
///
/// A seed draws hosts, limits, the deaths of ranks, the time that new ranks prepare (some for ever), and the changes of
/// hosts. Ranks also die while others recover, or join. No rank that prepares may be invited. In the end all slots must
/// train again, and no committed step may be lost. Every hundredth seed has 32 or 64 slots. In every eighth seed all
/// ranks that are to stay may die while others leave. The job must then end at once.
///
///     hvd-elastic [SEEDS] [FIRST]     --plant: checks that the simulation finds each bug that it can plant
///                                     --recovery: the cost of a death with 2 to 64 ranks; exit code 1 if it grows
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "launcher/elastic/elastic_job.h"
#include "launcher/start/meeting_hub.h"

namespace {

using namespace hvd;
using namespace hvd::launcher;
using Message = wire::MeetingMessage;

/// The code that --plant leaves out.
enum class Bug { none, no_revocation, nobody_is_told, state_of_rank_0_only, admitted_at_init };
constexpr int num_bugs = 5;

constexpr double fault_seconds = 6, most_seconds = 120, prepare_seconds = 5;

/// The slots of all hosts together, and of one host.
struct Shape {
  int slots = 0, of_host = 2;
  int hosts() const { return slots / of_host; }
};

/// The time from a rank's death to the next step of the others.
struct Recovery {
  double seconds = 0;
  int received = 0;  ///< by hvdrun: messages of ranks
  int sent = 0;      ///< by hvdrun to daemons: one message for all ranks of a host
};

struct SimRank {
  int host = 0;
  bool alive = true, has_state = false, told = false, told_to_stop = false, is_known_dead = false, prepares = false;
  std::uint64_t token = 0, epoch = 0;  ///< token: of its last join; epoch: its world's, 0: none
  double link_free = 0, up_free = 0;   ///< messages stay in order
};

struct SimWorld {
  std::vector<std::int32_t> members;
  std::set<std::int32_t> arrived;
  bool synced = false;
};

class Simulation {
 public:
  Simulation(unsigned seed, Bug bug)
      : bug_(bug), random_(seed), shape_(draw_shape(seed)), may_lose_the_state_(seed % 8 == 7) {
    const int ranks = std::max(2, 1 + below(shape_.slots));
    limits_.least = 1 + below(2);
    limits_.most = ranks + below(shape_.slots - ranks + 1);
    limits_.spares = below(3) == 0;
    begin(ranks);
    draw_faults();
  }

  /// Starts a rank in each slot; one of them dies.
  Simulation(unsigned seed, Shape shape) : bug_(Bug::none), random_(seed), shape_(shape) {
    limits_.most = shape.slots;
    begin(shape.slots);
    after(1, [this] { strike(); });
  }

  /// Returns the error; empty: none.
  std::string run() {
    while (!events_.empty() && wrong_.empty() && !has_ended_ && !is_well()) {
      const Event next = events_.top();
      events_.pop();
      now_ = next.at;
      if (now_ > most_seconds) return "it does not come to rest: " + picture();
      next.call();
    }
    return wrong_;
  }

  /// Runs until the others have made a step after the death.  If no step follows, `seconds` is most_seconds.
  Recovery recover() {
    while (now_ < most_seconds && wrong_.empty() && !(struck_at_ && trained_ > struck_in_)) {
      const Event next = events_.top();
      events_.pop();
      now_ = next.at;
      next.call();
    }
    cost_.seconds = wrong_.empty() ? now_ - struck_at_.value_or(0) : most_seconds;
    return cost_;
  }

 private:
  struct Event {
    double at;
    std::uint64_t number;
    std::function<void()> call;
    bool operator<(const Event& o) const { return std::tie(o.at, o.number) < std::tie(at, number); }
  };

  Shape draw_shape(unsigned seed) {
    if (seed % 100 != 99) return {2 * (1 + below(3))};
    return below(2) ? Shape{32, 4} : Shape{64, 8};
  }

  void begin(int ranks) {
    for (int h = 0; h < shape_.hosts(); ++h)
      all_hosts_.push_back({std::string(1, static_cast<char>('a' + h)), shape_.of_host});
    std::vector<ElasticWorker> workers;
    std::vector<int> host_of;
    for (int r = 0; r < ranks; ++r) {
      const int host = r / shape_.of_host;
      host_of.push_back(host);
      workers.push_back(
          {r, {all_hosts_[static_cast<std::size_t>(host)].name, r % shape_.of_host}, WorkerStage::starting});
      ranks_[r].host = host;
      ranks_[r].has_state = true;
    }
    job_.emplace(ElasticLimits{limits_, 600, {}, prepare_seconds}, workers, all_hosts_, SlotHistory({{0, 0}}));
    hub_.emplace(host_of);
    hub_->hold_strangers();
    for (int r = 0; r < ranks; ++r) after(unit() * 0.3, [this, r] { join(r); });
    after(0.05, [this] { turn(); });
  }

  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  double unit() { return static_cast<double>(random_() % 1000000) / 1e6; }
  void after(double seconds, std::function<void()> call) {
    events_.push({now_ + seconds, ++num_events_, std::move(call)});
  }
  void fails(const std::string& what) {
    if (wrong_.empty()) wrong_ = what + ": " + picture();
  }
  std::string picture() const {
    std::string text = "at " + std::to_string(now_) + " s";
    for (const auto& [number, r] : ranks_)
      if (r.alive) text += " " + std::to_string(number) + (r.has_state ? "*" : "") + "@" + std::to_string(r.epoch);
    return text;
  }

  // ---- faults

  void draw_faults() {
    double at = 0.5;
    for (int faults = 1 + below(8); faults > 0; --faults) {
      at += below(2) ? unit() * 0.06 : unit();
      if (at > fault_seconds - 1) break;
      if (below(5) == 0)
        after(at, [this] { change_hosts(); });
      else
        after(at, [this] { strike(); });
    }
    after(fault_seconds, [this] {
      job_->hosts_are(all_hosts_);
      is_quiet_ = true;
    });
  }

  void change_hosts() {
    std::vector<ElasticHost> hosts;
    for (const ElasticHost& h : all_hosts_)
      if (below(3) > 0) hosts.push_back({h.name, below(shape_.of_host + 1)});
    job_->hosts_are(hosts);
  }

  /// A rank that has the state lives on, and does not leave.
  void strike() {
    std::vector<int> living;
    int holders = 0;
    for (const auto& [number, r] : ranks_)
      if (r.alive) {
        living.push_back(number);
        holders += r.has_state && r.epoch > 0 && !job_->is_excused(number) && !leaving_.contains(number);
      }
    if (living.empty()) return;
    const int victim = living[static_cast<std::size_t>(below(static_cast<int>(living.size())))];
    if (!started_ || (holders <= 1 && ranks_[victim].has_state)) return;
    struck_at_ = now_;
    struck_in_ = trained_;
    cost_ = {};
    end(victim, wire::Cause::signalled);
  }

  /// All ranks that are to stay die, while others leave: the state of those is older.
  void strike_all_that_stay() {
    std::set<int> staying;
    for (const auto& [number, r] : ranks_)
      if (r.alive && !leaving_.contains(number)) staying.insert(number);
    if (worlds_.empty() || !doomed_.empty() || has_ended_) return;
    const std::vector<std::int32_t>& world = worlds_.rbegin()->second.members;
    if (staying != std::set<int>(world.begin(), world.end())) return;
    doomed_ = staying;
    for (const int number : staying) end(number, wire::Cause::signalled);
  }

  void end(int number, wire::Cause cause) {
    SimRank& r = ranks_[number];
    if (!r.alive) return;
    r.alive = false;
    after(std::max(r.up_free - now_, 0.0) + 0.0005 + unit() * 0.05,
          [this, number, cause] { hear_of_end(number, cause); });
  }

  // ---- hvdrun: its parts are connected as Session, DaemonLinks and ElasticPart do it

  void hear_of_end(int number, wire::Cause cause) {
    wire::DeathRecord death;
    death.rank = number, death.cause = cause, death.code = cause == wire::Cause::signalled ? 9 : 0;
    ranks_[number].is_known_dead = true;
    const bool lives = job_->survives(death, now_) || cause == wire::Cause::finished;
    if (doomed_.erase(number) > 0 && (!lives || doomed_.empty())) {
      has_ended_ = !lives;
      if (lives) fails("the job goes on without the state");
      return;
    }
    if (!lives) return fails("the job ends");
    carry_out(job_->turn(now_));
    const bool died = cause != wire::Cause::finished && !ranks_[number].told_to_stop;
    if (died && bug_ != Bug::no_revocation) send(hub_->revoke(number, "it has died"));
    send(hub_->end(number, "it has died"));
  }

  void turn() {
    carry_out(job_->turn(now_));
    const std::vector<ElasticWorker> start = std::move(to_start_);
    to_start_.clear();
    for (const ElasticWorker& w : start) {
      const auto host = std::find_if(all_hosts_.begin(), all_hosts_.end(),
                                     [&](const ElasticHost& h) { return h.name == w.place.host; });
      const int h = static_cast<int>(host - all_hosts_.begin());
      ranks_[w.number].host = h;
      hub_->add(h);
      after(0.05 + unit(), [this, n = w.number] { expect(n); });
    }
    after(0.05, [this] { turn(); });
  }

  void carry_out(const ElasticOrders& orders) {
    if (!orders.end.empty()) return fails(orders.end);
    to_start_.insert(to_start_.end(), orders.start.begin(), orders.start.end());
    for (const std::int32_t m : orders.invite.value_or(std::vector<std::int32_t>{}))
      if (ranks_[m].prepares) fails(std::to_string(m) + " is invited while it prepares");
    if (orders.invite) take(hub_->invite(*orders.invite));
    if (bug_ != Bug::nobody_is_told && orders.change != HostChange::none)  // else early news
      for (const int number : orders.tell) down(number, [this, number] { ranks_[number].told = true; });
    for (const int number : orders.dismiss) {
      leaving_.insert(number);
      send(hub_->dismiss(number));
      if (may_lose_the_state_) after(unit() * 0.02, [this] { strike_all_that_stay(); });
    }
    for (const int number : orders.stop)
      if (ranks_.contains(number)) {
        ranks_[number].told_to_stop = true;
        down(number, [this, number] { end(number, wire::Cause::signalled); });
      }
  }

  void take(const MeetingHub::Answers& answers) {
    for (const MeetingAnswer& answer : answers) {
      if (answer.message.kind != Message::Kind::world) continue;
      std::vector<std::int32_t> members;
      for (const auto& m : answer.message.members) members.push_back(m.rank);
      started_ = true;
      worlds_[answer.message.epoch] = {members, {}, false};
      job_->met(answer.message.epoch, members, now_);
    }
    send(answers);
  }

  void send(const MeetingHub::Answers& answers) {
    for (const MeetingAnswer& answer : answers) {
      cost_.sent += static_cast<int>(answer.hosts.size());
      for (const auto& m : answer.message.members)
        down(m.rank,
             [this, number = m.rank, token = m.token, message = answer.message] { hear(number, token, message); });
    }
  }

  void down(int number, std::function<void()> call) {
    SimRank& r = ranks_[number];
    r.link_free = std::max(r.link_free, now_ + 0.0002 + unit() * 0.01);
    after(r.link_free - now_, [this, number, call = std::move(call)] {
      if (ranks_[number].alive) call();
    });
  }

  // ---- a rank

  /// The init() of a new rank.
  void expect(int number) {
    SimRank& r = ranks_[number];
    if (!r.alive) return;
    r.prepares = true;
    r.up_free = std::max(r.up_free, now_ + 0.0002 + unit() * 0.01);
    after(r.up_free - now_, [this, number] {
      if (ranks_[number].is_known_dead) return;
      if (bug_ == Bug::admitted_at_init) job_->waits(number, now_);
      const auto next = job_->expects(number, now_);
      if (std::count(next.begin(), next.end(), number) != 1) fails("a new rank is not in the world that it is told");
      const bool for_ever = !is_quiet_ && below(8) == 0;
      if (!for_ever) down(number, [this, number] { after(unit() * 2, [this, number] { join(number); }); });
    });
  }

  void join(int number) {
    SimRank& r = ranks_[number];
    if (!r.alive) return;
    r.epoch = 0;
    r.prepares = false;
    r.told = false;  // later news are of the next world
    const std::uint64_t token = ++r.token;
    r.up_free = std::max(r.up_free, now_ + 0.0002 + unit() * 0.01);
    after(r.up_free - now_, [this, number, token] {
      if (ranks_[number].is_known_dead) return;
      ++cost_.received;
      job_->waits(number, now_);
      Message m{.kind = Message::Kind::join, .rank = number, .token = token};
      take(hub_->receive(ranks_[number].host, m));
    });
  }

  void hear(int number, std::uint64_t token, const Message& m) {
    SimRank& r = ranks_[number];
    if (m.kind == Message::Kind::revoked) {
      if (r.epoch == m.epoch) rejoin(number);
      return;
    }
    if (token != r.token) return;
    if (m.kind == Message::Kind::refused) {
      if (m.text == wire::not_needed) return end(number, wire::Cause::finished);
      return after(0.02, [this, number] { join(number); });
    }
    r.epoch = m.epoch;
    SimWorld& w = worlds_.at(m.epoch);
    w.arrived.insert(number);
    if (w.arrived.size() == w.members.size()) after(unit() * 0.03, [this, e = m.epoch] { synchronise(e); });
  }

  void rejoin(int number) {
    ranks_[number].epoch = 0;
    after(0.001 + unit() * 0.02, [this, number] { join(number); });
  }

  bool is_whole(std::uint64_t epoch) {
    const SimWorld& w = worlds_.at(epoch);
    return std::all_of(w.members.begin(), w.members.end(),
                       [&](std::int32_t m) { return ranks_[m].alive && ranks_[m].epoch == epoch; });
  }

  /// Some ranks may get the state before one dies: then they have it.
  void synchronise(std::uint64_t epoch) {
    SimWorld& w = worlds_.at(epoch);
    if (!is_whole(epoch)) return;
    const int from_all = bug_ == Bug::state_of_rank_0_only ? 1 : static_cast<int>(w.members.size());
    if (std::none_of(w.members.begin(), w.members.begin() + from_all,
                     [&](std::int32_t m) { return ranks_[m].has_state; }))
      return fails("rank 0 has no state");
    for (const std::int32_t m : w.members)
      after(unit() * 0.02, [this, m, epoch] {
        if (ranks_[m].alive && ranks_[m].epoch == epoch && is_whole(epoch)) ranks_[m].has_state = true;
      });
    after(0.025, [this, epoch] { step(epoch); });
  }

  void step(std::uint64_t epoch) {
    SimWorld& w = worlds_.at(epoch);
    if (!is_whole(epoch)) return;
    if (epoch < trained_) return fails("a step of an old world, after one of a newer one");
    trained_ = epoch;
    w.synced = true;
    if (!ranks_[w.members[0]].told) return after(0.02 + unit() * 0.05, [this, epoch] { step(epoch); });
    for (const std::int32_t m : w.members) rejoin(m);  // HostsUpdatedInterrupt: all ranks at the same commit
  }

  /// After the faults: the world has all ranks that are to be in it, and no others.
  bool is_well() {
    if (!is_quiet_ || trained_ == 0 || now_ < fault_seconds + 2) return false;
    const SimWorld& w = worlds_.at(trained_);
    const std::size_t wanted = static_cast<std::size_t>(std::min(*limits_.most, shape_.slots));
    return w.synced && is_whole(trained_) && w.members.size() == wanted && !ranks_[w.members[0]].told;
  }

  const Bug bug_;
  std::mt19937 random_;
  const Shape shape_;
  const bool may_lose_the_state_ = false;
  std::vector<ElasticHost> all_hosts_;
  WorldLimits limits_;
  std::optional<ElasticJob> job_;
  std::optional<MeetingHub> hub_;
  std::map<int, SimRank> ranks_;
  std::map<std::uint64_t, SimWorld> worlds_;
  std::vector<ElasticWorker> to_start_;
  std::set<int> leaving_;
  std::priority_queue<Event> events_;
  std::uint64_t num_events_ = 0, trained_ = 0;
  double now_ = 0;
  std::optional<double> struck_at_;  ///< the last death, and the world that trained then
  std::uint64_t struck_in_ = 0;
  Recovery cost_;
  bool started_ = false, is_quiet_ = false;
  std::set<int> doomed_;    ///< ranks killed together, the last with the state, whose deaths hvdrun has not seen
  bool has_ended_ = false;  ///< the end that is required
  std::string wrong_;
};

/// Returns the first seed that fails; -1: none.
long first_wrong(long seeds, long first, Bug bug, std::string* why) {
  for (long seed = first; seed < first + seeds; ++seed)
    if (*why = Simulation(static_cast<unsigned>(seed), bug).run(); !why->empty()) return seed;
  return -1;
}

/// Prints the table of the costs of recoveries; false where a cost grows with the ranks, except for one message each.
bool show_recoveries() {
  std::printf("ranks  hosts  deaths  next step after: median  longest   received, sent by hvdrun\n");
  double first = 0;
  bool good = true;
  for (const Shape shape : {Shape{2, 1}, {4, 2}, {8, 4}, {16, 8}, {32, 4}, {64, 8}}) {
    std::vector<Recovery> all;
    for (unsigned seed = 0; seed < 100; ++seed) all.push_back(Simulation(seed, shape).recover());
    std::sort(all.begin(), all.end(), [](const Recovery& a, const Recovery& b) { return a.seconds < b.seconds; });
    const double median = all[all.size() / 2].seconds, longest = all.back().seconds;
    int received = 0, sent = 0;
    for (const Recovery& one : all) received = std::max(received, one.received), sent = std::max(sent, one.sent);
    std::printf("%5d %6d %7zu %21.3f s %7.3f s %10d %6d\n", shape.slots, shape.hosts(), all.size(), median, longest,
                received, sent);
    first = first > 0 ? first : median;
    good &= longest < 0.5 && median < 2 * first && received <= shape.slots && sent <= 3 * shape.hosts();
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  std::string why;
  if (argc > 1 && std::string(argv[1]) == "--plant") {
    int missed = 0;
    for (int bug = 1; bug < num_bugs; ++bug) {
      const long seed = first_wrong(20000, 0, static_cast<Bug>(bug), &why);
      std::printf("planted bug %d: %s\n", bug,
                  seed < 0 ? "not found" : ("seed " + std::to_string(seed) + ": " + why).c_str());
      missed += seed < 0;
    }
    return missed != 0;
  }
  if (argc > 1 && std::string(argv[1]) == "--recovery") return !show_recoveries();
  const long seeds = argc > 1 ? std::atol(argv[1]) : 2000, first = argc > 2 ? std::atol(argv[2]) : 0;
  const long seed = first_wrong(seeds, first, Bug::none, &why);
  if (seed < 0) std::printf("%ld seeds, all well\n", seeds);
  if (seed >= 0) std::printf("seed %ld: %s\n", seed, why.c_str());
  return seed >= 0;
}
