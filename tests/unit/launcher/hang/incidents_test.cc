/// Jobs of four ranks, with a clock that the test advances.
#include "launcher/hang/incidents.h"

#include <doctest/doctest.h>

#include <string>

#include "base/text.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

struct Job {
  JobFacts facts;
  Incidents incidents;
  explicit Job(LifeStage where = LifeStage::working, HangLimits patience = {}) : incidents(patience) {
    facts.ranks.assign(4, RankActivity{.where = where});
  }
  RankActivity& rank(int r) { return facts.ranks[static_cast<std::size_t>(r)]; }
  void come(int r, LifeStage where) { rank(r).where = where, rank(r).since = facts.now; }
  void wait(int r, const std::string& name) { rank(r).waits_for = name, rank(r).waits_since = facts.now; }
  void go_on(int r) { rank(r).waits_for.clear(); }
  void miss(const std::vector<int>& ranks, const std::string& tensor, int tensors = 1) {
    facts.waits.push_back({{tensor, tensors, 0, ranks, 0, 4}, facts.now});
  }

  /// "5 operation 1 x(2) waiting 3": the incidents until then, with two checks a second.
  std::vector<std::string> until(double end) {
    static const char* const kinds[] = {"init", "operation", "stuck", "late gpu", "end", "leaving", "stopped", "idle"};
    static const char* const whats[] = {"", "again ", "closed ", "near limit ", "give up "};
    std::vector<std::string> told;
    for (; facts.now <= end; facts.now += 0.5)
      for (const IncidentNotice& e : incidents.look(facts)) {
        const Incident& i = e.incident;
        told.push_back(std::to_string(static_cast<int>(facts.now)) + " " + whats[static_cast<int>(e.kind)] +
                       kinds[static_cast<int>(i.kind)] + " " + (i.missing.empty() ? "nobody" : ranges(i.missing)) +
                       (i.tensor.empty() ? "" : " " + i.tensor + "(" + std::to_string(i.tensors) + ")") + " waiting " +
                       std::to_string(i.waiting));
      }
    return told;
  }
};

using Told = std::vector<std::string>;

}  // namespace

TEST_CASE("incidents: a healthy life, with pauses and slow imports, is no incident") {
  Job job(LifeStage::absent);
  CHECK(job.until(300).empty());  // hvdrun has a message of its own for that
  for (int r = 0; r < 4; ++r) job.come(r, LifeStage::script);
  CHECK(job.until(900).empty());  // all import for ten minutes
  for (int r = 0; r < 4; ++r) {
    job.come(r, LifeStage::init);
    CHECK(job.until(job.facts.now + 7).empty());
  }
  for (int r = 0; r < 4; ++r) job.come(r, LifeStage::working);
  CHECK(job.until(2000).empty());
  for (int r = 1; r < 4; ++r) job.wait(r, "allreduce.a");  // the coordinator knows that steps are long here
  CHECK(job.until(job.facts.now + 60).empty());
  for (int r = 1; r < 4; ++r) job.go_on(r);
  for (int r = 0; r < 4; ++r) {
    job.come(r, r % 2 ? LifeStage::leaving : LifeStage::ended);
    CHECK(job.until(job.facts.now + 50).empty());
  }
  for (int r = 0; r < 4; ++r) job.come(r, LifeStage::ended);
  CHECK(job.until(job.facts.now + 300).empty());
}

TEST_CASE("incidents: a command that knows nothing of hvd says nothing, however long its ranks take") {
  Job job(LifeStage::script);
  job.come(0, LifeStage::ended);
  CHECK(job.until(3600).empty());
}

TEST_CASE("incidents: all have submitted, and one rank's GPU still computes") {
  using wire::GpuProgress;
  const auto job_of = [](const std::vector<GpuProgress>& gpus) {
    Job job;
    for (int r = 0; r < 4; ++r) {
      job.wait(r, "allreduce.a");
      job.rank(r).gpu = gpus[static_cast<std::size_t>(r)];
      if (job.rank(r).gpu == GpuProgress::computing) job.rank(r).gpu_late = "allreduce.b";
    }
    return job;
  };
  constexpr auto late = GpuProgress::computing, waits = GpuProgress::exchanging, none = GpuProgress::none;
  CHECK(job_of({waits, late, waits, waits}).until(30) == Told{"5 late gpu 1 allreduce.a(1) waiting 3"});
  CHECK(job_of({late, waits, waits, late}).until(30) == Told{"5 late gpu 0,3 allreduce.a(1) waiting 2"});
  CHECK(job_of({late, late, late, late}).until(30) == Told{"20 late gpu 0-3 allreduce.a(1) waiting 4"});
  CHECK(job_of({waits, waits, waits, waits}).until(30) == Told{"7 stuck nobody allreduce.a(1) waiting 4"});
  CHECK(job_of({none, none, none, none}).until(30) == Told{"20 stuck nobody allreduce.a(1) waiting 4"});
  const Job job = job_of({waits, late, waits, waits});
  JobFacts facts = job.facts;
  facts.now = 6;
  REQUIRE(incidents_now(facts, {}).size() == 1);
  CHECK(incidents_now(facts, {})[0].gpu_late == std::map<int, std::string>{{1, "allreduce.b"}});
  facts.ranks[1].waits_for.clear();  // the rank goes on
  facts.ranks[1].gpu = none;
  CHECK(incidents_now(facts, {}).empty());
  // The ranks have submitted more since, and the coordinator reports it.
  facts = job.facts;
  facts.now = 6;
  facts.waits.push_back({{"allreduce.c", 1, 0, {1}, 0, 4}, 0});
  REQUIRE(incidents_now(facts, {}).size() == 1);
  CHECK(incidents_now(facts, {})[0].kind == IncidentKind::operation);
  CHECK(incidents_now(facts, {})[0].gpu_late == std::map<int, std::string>{{1, "allreduce.b"}});
}

TEST_CASE("incidents: a hang is told, told again ever more rarely, and its end is told") {
  Job job;
  job.miss({1}, "allreduce.a", 300);
  CHECK(job.until(400) == Told{"5 operation 1 allreduce.a(300) waiting 3",
                               "65 again operation 1 allreduce.a(300) waiting 3",
                               "185 again operation 1 allreduce.a(300) waiting 3"});
  job.facts.waits.clear();
  CHECK(job.until(500) == Told{"402 closed operation 1 allreduce.a(300) waiting 3"});
  SUBCASE("the same rank once more has twice the time: it may just be slow") {
    job.miss({1}, "allreduce.b");
    CHECK(job.until(530) == Told{"510 operation 1 allreduce.b(1) waiting 3"});
  }
  SUBCASE("another rank has not") {
    job.miss({2}, "allreduce.b");
    CHECK(job.until(530) == Told{"505 operation 2 allreduce.b(1) waiting 3"});
  }
}

TEST_CASE("incidents: an operation whose name does not tell its kind is described by a rank that waits for it") {
  Job job;
  job.wait(0, "c10d/world #28");
  job.rank(0).waits_what = "allreduce of [16] float32";
  job.miss({1}, "c10d/world #28");
  job.facts.now = 6;
  const std::vector<Incident> found = incidents_now(job.facts, {});
  REQUIRE(found.size() == 1);
  CHECK(found[0].missing == std::vector<int>{1});
  CHECK(found[0].what == "allreduce of [16] float32");
  CHECK(found[0].waiter == 0);
}

TEST_CASE("incidents: one for all that waits for the same ranks, whatever tensor it is now") {
  Job job;
  job.miss({1}, "a");
  CHECK(job.until(8) == Told{"5 operation 1 a(1) waiting 3"});
  job.facts.waits[0].stall.tensor = "b", job.facts.waits[0].since = 6;
  CHECK(job.until(30).empty());
  SUBCASE("fewer ranks are no news") {
    job.facts.waits[0].stall.missing = {1, 3};
    CHECK(job.until(33) == Told{"32 operation 1,3 b(1) waiting 2"});
    job.facts.waits[0].stall.missing = {3};
    CHECK(job.until(80).empty());
  }
  SUBCASE("ranks go on together, and their reports come at different times") {
    job.facts.waits[0].stall.missing = {1, 3};
    CHECK(job.until(31.5).empty());
    job.facts.waits.clear();
    CHECK(job.until(60) == Told{"33 closed operation 1 b(1) waiting 2"});
  }
  SUBCASE("a rank that dies does not go on") {
    job.come(1, LifeStage::ended);
    job.facts.waits.clear();
    CHECK(job.until(60).empty());
  }
}

TEST_CASE("incidents: the few that took another branch are named, not those who wait for them") {
  Job job;
  job.miss({0, 2, 3}, "other");
  job.miss({1}, "grad");
  CHECK(job.until(8) == Told{"5 operation 1 grad(1) waiting 3", "7 operation 0,2-3 other(1) waiting 1"});
  Job late;
  late.miss({0, 2, 3}, "other");
  CHECK(late.until(1).empty());
  late.miss({1}, "grad");
  for (int r = 0; r < 4; ++r) late.wait(r, r == 1 ? "other" : "grad");
  CHECK(late.until(30) == Told{"6 operation 1 grad(1) waiting 3"});
}

TEST_CASE("incidents: two at once that have a rank in common are each told once") {
  Job job;
  job.miss({2}, "send");
  job.until(2);
  job.miss({1, 2}, "barrier");
  CHECK(job.until(60) == Told{"5 operation 2 send(1) waiting 3", "7 operation 1-2 barrier(1) waiting 2"});
  job.facts.waits.erase(job.facts.waits.begin());
  CHECK(job.until(100) == Told{"67 again operation 1-2 barrier(1) waiting 2"});
}

TEST_CASE("incidents: ranks outside of an elastic job's world are not missed, and what missed one of them is over") {
  Job job;
  job.come(3, LifeStage::outside);
  CHECK(job.until(300).empty());
  job.miss({1}, "a");
  CHECK(job.until(310) == Told{"305 operation 1 a(1) waiting 3"});
  job.facts.waits.clear();
  job.come(1, LifeStage::outside);
  CHECK(job.until(400).empty());
  job.come(0, LifeStage::ended);
  job.come(2, LifeStage::ended);
  CHECK(job.until(600).empty());
}

TEST_CASE("incidents: rank 0 is stopped, and cannot say who waits") {
  Job job;
  job.rank(0).stopped_since = 0;
  for (int r = 1; r < 4; ++r) job.wait(r, "allreduce.a");
  CHECK(job.until(30) == Told{"7 operation 0 allreduce.a(1) waiting 3"});
  job.rank(0).stopped_since.reset();
  for (int r = 1; r < 4; ++r) job.go_on(r);
  CHECK(job.until(60) == Told{"32 closed operation 0 allreduce.a(1) waiting 3"});
}

TEST_CASE("incidents: a rank is stopped, and no rank waits for it yet") {
  Job job;
  job.rank(3).stopped_since = 0;
  CHECK(job.until(10) == Told{"9 stopped 3 waiting 0"});
  job.miss({3}, "a");
  CHECK(job.until(20) == Told{"15 operation 3 a(1) waiting 3"});
  SUBCASE("before init, too") {
    Job early(LifeStage::script);
    early.rank(1).stopped_since = 0;
    CHECK(early.until(10) == Told{"9 stopped 1 waiting 0"});
  }
}

TEST_CASE("incidents: no rank is missing: the network, or the ranks themselves") {
  Job job;
  for (int r = 0; r < 4; ++r) job.wait(r, "allreduce.a");
  CHECK(job.until(30) == Told{"20 stuck nobody allreduce.a(1) waiting 4"});
  SUBCASE("what they said has not arrived at the coordinator") {
    Job cut;
    for (int r = 0; r < 4; ++r) cut.wait(r, "allreduce.a");
    cut.miss({2, 3}, "allreduce.a");
    CHECK(cut.until(10) == Told{"5 stuck nobody allreduce.a(1) waiting 4"});
  }
  SUBCASE("they took different branches: the coordinator will tell") {
    Job branches;
    for (int r = 0; r < 4; ++r) branches.wait(r, r == 1 ? "other" : "grad");
    CHECK(branches.until(50).empty());
  }
}

TEST_CASE("incidents: the coordinator is mute") {
  Job job;
  for (int r = 1; r < 4; ++r) job.wait(r, "a");
  CHECK(job.until(100) == Told{"63 operation 0 a(1) waiting 3"});
}

TEST_CASE("incidents: a rank never comes to init") {
  Job job(LifeStage::script);
  for (const int r : {0, 2, 3}) job.come(r, LifeStage::init);
  CHECK(job.until(100) == Told{"8 init 1 waiting 3", "68 again init 1 waiting 3"});
  SUBCASE("it does after all") {
    for (int r = 0; r < 4; ++r) job.come(r, LifeStage::working);
    CHECK(job.until(110) == Told{"102 closed init 1 waiting 3"});
  }
  SUBCASE("it ends without") {
    job.come(1, LifeStage::ended);
    CHECK(job.until(220) == Told{"188 again init 1 waiting 3"});
  }
}

TEST_CASE("incidents: survivors meet again, and one still works") {
  Job job;
  for (const int r : {0, 2, 3}) job.come(r, LifeStage::init);
  CHECK(job.until(31) == Told{"30 init 1 waiting 3"});
}

TEST_CASE("incidents: all have come to init, and it does not end") {
  Job job(LifeStage::init);
  CHECK(job.until(31) == Told{"20 init nobody waiting 4"});
}

TEST_CASE("incidents: the end") {
  Job job;
  SUBCASE("one rank works alone while MPI waits for it in the others") {
    for (int r = 1; r < 4; ++r) job.come(r, LifeStage::leaving);
    CHECK(job.until(70) == Told{"60 end 0 waiting 3"});
  }
  SUBCASE("one does not end after its script, the others have ended") {
    for (int r = 0; r < 4; ++r) job.come(r, r == 2 ? LifeStage::leaving : LifeStage::ended);
    CHECK(job.until(70) == Told{"60 leaving 2 waiting 0"});
    job.come(2, LifeStage::ended);
    CHECK(job.until(90).empty());
  }
  SUBCASE("one has shut down and works on: no incident") {
    for (int r = 1; r < 4; ++r) job.come(r, LifeStage::ended);
    job.come(0, LifeStage::script);
    CHECK(job.until(600).empty());
  }
}

TEST_CASE("incidents: the user's limit ends the job, wherever it hangs, but not a rank that works alone at the end") {
  const HangLimits patience{5, 60, 90};
  SUBCASE("init") {
    Job job(LifeStage::script, patience);
    job.come(0, LifeStage::init);
    CHECK(job.until(95).back() == "93 give up init 1-3 waiting 1");
  }
  SUBCASE("rank 0 is stopped: the runtime cannot do it") {
    Job job(LifeStage::working, patience);
    job.rank(0).stopped_since = 0;
    job.wait(1, "a");
    CHECK(job.until(100).back() == "93 give up operation 0 a(1) waiting 1");
  }
  SUBCASE("an operation's limit: the runtime's own may have to pause") {
    Job job(LifeStage::working, {5, 60, 20});
    for (int r = 1; r < 4; ++r) job.wait(r, "a");
    job.miss({0}, "a");
    CHECK(job.until(27) == Told{"5 operation 0 a(1) waiting 3", "15 near limit operation 0 a(1) waiting 3",
                                "20 near limit operation 0 a(1) waiting 3", "23 give up operation 0 a(1) waiting 3"});
  }
  SUBCASE("put off") {
    Job job(LifeStage::script, patience);
    job.come(0, LifeStage::init);
    CHECK(job.until(95).back() == "93 give up init 1-3 waiting 1");
    CHECK(job.incidents.put_off({IncidentKind::init, {1, 2, 3}}, 110));
    CHECK(!job.incidents.put_off({IncidentKind::operation, {1, 2, 3}}, 110));
    CHECK(job.until(105).empty());
    CHECK(job.until(115) == Told{"110 give up init 1-3 waiting 1"});
    CHECK(job.until(119).empty());
  }
  SUBCASE("the end") {
    Job job(LifeStage::ended, patience);
    job.come(0, LifeStage::working);
    CHECK(job.until(100) == Told{"60 end 0 waiting 0"});
    job.come(0, LifeStage::leaving);
    CHECK(job.until(200) ==
          Told{"102 closed end 0 waiting 0", "160 leaving 0 waiting 0", "193 give up leaving 0 waiting 0"});
  }
}

TEST_CASE("incidents: no rank computes, and no operation is under way") {
  Job job;
  for (int r = 0; r < 3; ++r) job.rank(r).idle_since = 10;
  CHECK(job.until(200).empty());  // rank 3 computes
  job.rank(3).idle_since = 190;
  CHECK(may_become_hang(job.facts));
  CHECK(job.until(400) == Told{"250 idle 0-3 waiting 0", "310 again idle 0-3 waiting 0"});
  job.rank(1).idle_since.reset();
  CHECK(job.until(500) == Told{"402 closed idle 0-3 waiting 0"});
}

TEST_CASE("incidents: idle ranks that wait in a known place are no idle job") {
  Job job;
  for (int r = 0; r < 4; ++r) job.rank(r).idle_since = 0;
  job.come(2, LifeStage::init);
  CHECK(job.until(80) == Told{"30 init 0-1,3 waiting 1"});
  Job one;
  for (int r = 1; r < 4; ++r) one.come(r, LifeStage::outside);
  one.rank(0).idle_since = 0;
  CHECK(one.until(300).empty());  // a single worker waits for nobody
}
