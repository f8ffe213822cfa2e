#include "trace/timeline.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "collect.h"
#include "trace/trace_names.h"

using namespace hvd;
using trace::TraceTag;

namespace {

std::string json_text(std::string_view text) {
  std::string to;
  append_json_string(to, text);
  return to;
}

std::string us(std::int64_t ns) {
  std::string to;
  append_us(to, ns);
  return to;
}

/// Writes records by hand; a tick is a nanosecond.
class Script {
 public:
  Script& tag(TraceTag tag) { return byte(static_cast<std::uint8_t>(tag)); }
  Script& byte(std::uint8_t value) {
    bytes.push_back(value);
    return *this;
  }
  Script& number(std::uint64_t value) {
    std::uint8_t to[trace::varint_max_bytes];
    bytes.insert(bytes.end(), to, trace::put_varint(to, value));
    return *this;
  }
  Script& time(std::int64_t ns) {
    number(trace::zigzag(ns - last_));
    last_ = ns;
    return *this;
  }
  Script& track(std::int64_t id) {
    number(trace::zigzag(id - last_track_));
    last_track_ = id;
    return *this;
  }
  std::vector<std::uint8_t> take(std::uint16_t stream) {
    std::vector<std::uint8_t> body{trace::trace_version, 0, static_cast<std::uint8_t>(stream), 0};
    for (int i = 0; i < 4; ++i) body.push_back(static_cast<std::uint8_t>(bytes.size() >> (8 * i)));
    body.insert(body.end(), bytes.begin(), bytes.end());
    bytes.clear();
    return body;
  }

  std::vector<std::uint8_t> bytes;

 private:
  std::int64_t last_ = 0, last_track_ = 0;
};

struct Fixture {
  std::string text = std::string(trace::Timeline::opening());
  trace::Timeline timeline{0, [this](std::string_view lines) { return text += lines, true; }};
  Script control, user, engine;

  void start(int rank) {
    control.tag(TraceTag::clock);
    for (int i = 0; i < 16; ++i) control.byte(0);
    control.tag(TraceTag::clock);
    for (int i = 0; i < 2; ++i) {
      for (int k = 0; k < 8; ++k) control.byte(static_cast<std::uint8_t>(std::uint64_t{1'000'000'000} >> (8 * k)));
    }
    feed(rank, control.take(0));
    feed(rank, user.tag(TraceTag::reset).take(3));
    feed(rank, engine.tag(TraceTag::reset).take(1));
  }
  void name(int rank, int id, std::string_view text_of_it, trace::TraceOp op = trace::TraceOp::allreduce) {
    control.tag(TraceTag::name).number(static_cast<std::uint64_t>(id)).byte(static_cast<std::uint8_t>(op)).byte(7);
    control.number(0).byte(1).number(100).number(text_of_it.size());
    for (const char c : text_of_it) control.byte(static_cast<std::uint8_t>(c));
    feed(rank, control.take(0));
  }
  void submitted(int rank, std::int64_t ns, int track) {
    feed(rank, user.tag(TraceTag::submitted).time(ns).track(track).take(3));
  }
  void feed(int rank, const std::vector<std::uint8_t>& body) {
    REQUIRE_MESSAGE(timeline.feed(rank, body), timeline.why(rank));
  }

  /// All events but metadata, as "ph name ts dur pid tid".
  std::vector<std::string> events() {
    timeline.flush();
    std::string closed = text.substr(0, text.rfind('}') + 1) + "]";
    std::vector<std::string> found;
    for (const auto& event : nlohmann::json::parse(closed)) {
      if (event["ph"] == "M") continue;
      found.push_back(event["ph"].get<std::string>() + " " + event.value("name", "-") + " " +
                      us(static_cast<std::int64_t>(event["ts"].get<double>() * 1000 + 0.5)) + " " +
                      us(static_cast<std::int64_t>(event.value("dur", 0.0) * 1000 + 0.5)) + " " + event["pid"].dump() +
                      " " + event["tid"].dump() + (event.contains("args") ? " " + event["args"].dump() : ""));
    }
    return found;
  }
};

}  // namespace

TEST_CASE("json: strings of any bytes") {
  CHECK(json_text("a\"b\\c") == R"("a\"b\\c")");
  CHECK(json_text(std::string_view("\n\t\0\x7f", 4)) == R"("\u000a\u0009\u0000\u007f")");
  CHECK(json_text("grüße/層") == "\"grüße/層\"");
  CHECK(json_text("\xff\xc3") == "\"\xef\xbf\xbd\xef\xbf\xbd\"");
  CHECK(json_text("\xc0\x80 \xed\xa0\x80").size() == 2 + 5 * 3 + 1);  // overlong, a surrogate
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  CHECK(nlohmann::json::accept(json_text(all)));
}

TEST_CASE("json: microseconds keep their nanoseconds") {
  CHECK(us(0) == "0.000");
  CHECK(us(1) == "0.001");
  CHECK(us(1234567) == "1234.567");
  CHECK(us(-1500) == "-1.500");
  CHECK(us(INT64_MIN) == "-9223372036854775.808");
}

TEST_CASE("names are Horovod's") {
  CHECK(trace::phase_name(trace::Phase::mpi, trace::TraceOp::broadcast) == "MPI_BCAST");
  CHECK(trace::phase_name(trace::Phase::mpi, trace::TraceOp::adasum) == "MPI_ADASUM_ALLREDUCE");
  CHECK(trace::phase_name(trace::Phase::memcpy_in_fusion_buffer, trace::TraceOp::allreduce) ==
        "MEMCPY_IN_FUSION_BUFFER");
  CHECK(trace::op_name(trace::TraceOp::reducescatter) == "REDUCESCATTER");
  CHECK(trace::dtype_name(10) == "bfloat16");
  CHECK(trace::dtype_name(12) == "float8_e5m2");
  CHECK(trace::dtype_name(77) == "dtype77");
}

TEST_CASE_FIXTURE(Fixture, "timeline: a fused batch of two tensors") {
  start(0);
  name(0, 1, "a");
  name(0, 2, "b");
  submitted(0, 1000, 1);
  submitted(0, 2000, 2);
  engine.tag(TraceTag::batch_begin).time(3000).number(4).tag(TraceTag::batch_tensor).track(1);
  engine.tag(TraceTag::batch_tensor).track(2).tag(TraceTag::phase_begin).time(3100).number(4).byte(9);
  engine.tag(TraceTag::phase_end).time(3900).number(4).byte(9).tag(TraceTag::batch_end).time(4000).number(4);
  feed(0, engine.take(1));
  const std::string args = R"( {"dtype":"float32","shape":"[100]"})";
  CHECK(events() == std::vector<std::string>{"X NEGOTIATE_ALLREDUCE 1.000 2.000 0 1", "i 0 1.000 0.000 0 1",
                                             "X ALLREDUCE 3.000 1.000 0 1" + args, "X SHM_ALLREDUCE 3.100 0.800 0 1",
                                             "X NEGOTIATE_ALLREDUCE 2.000 1.000 0 2", "i 0 2.000 0.000 0 2",
                                             "X ALLREDUCE 3.000 1.000 0 2" + args, "X SHM_ALLREDUCE 3.100 0.800 0 2"});
}

TEST_CASE_FIXTURE(Fixture, "timeline: what a device did comes late, and two of one row do not overlap") {
  start(0);
  name(0, 1, "a");
  for (int round = 0; round < 2; ++round) {
    submitted(0, 1000 + 1000 * round, 1);
    engine.tag(TraceTag::batch_begin).time(1500 + 1000 * round).number(4 + static_cast<std::uint64_t>(round));
    engine.tag(TraceTag::batch_tensor).track(1);
  }
  auto ran = [this](std::uint64_t batch, std::int64_t begin, std::uint64_t duration) {  // the last time was 2500
    engine.tag(TraceTag::ran).number(trace::zigzag(begin - 2500)).number(batch).byte(8).number(duration);
    const auto end = begin + static_cast<std::int64_t>(duration);
    engine.tag(TraceTag::ran_all).number(trace::zigzag(end - 2500)).number(batch);
  };
  ran(4, 1800, 2000);
  ran(5, 3800, 700);
  feed(0, engine.take(1));
  const std::string args = R"( {"dtype":"float32","shape":"[100]"})";
  CHECK(events() == std::vector<std::string>{"X NEGOTIATE_ALLREDUCE 1.000 0.500 0 1", "i 0 1.000 0.000 0 1",
                                             "X ALLREDUCE 1.500 2.300 0 1" + args, "X NCCL_ALLREDUCE 1.800 2.000 0 1",
                                             "X NEGOTIATE_ALLREDUCE 3.800 0.000 0 1", "i 0 3.800 0.000 0 1",
                                             "X ALLREDUCE 3.800 0.700 0 1" + args, "X NCCL_ALLREDUCE 3.800 0.700 0 1"});
}

TEST_CASE_FIXTURE(Fixture, "timeline: a phase on the host ends at the latest when the device begins") {
  start(0);
  name(0, 1, "a");
  submitted(0, 1000, 1);
  engine.tag(TraceTag::batch_begin).time(1500).number(4).tag(TraceTag::batch_tensor).track(1);
  engine.tag(TraceTag::phase_begin).time(1600).number(4).byte(10);
  engine.tag(TraceTag::phase_end).time(2600).number(4).byte(10);
  engine.tag(TraceTag::ran).number(trace::zigzag(2000 - 2600)).number(4).byte(8).number(300);
  engine.tag(TraceTag::ran_all).number(trace::zigzag(2300 - 2600)).number(4);
  feed(0, engine.take(1));
  const std::string args = R"( {"dtype":"float32","shape":"[100]"})";
  CHECK(events() == std::vector<std::string>{"X NEGOTIATE_ALLREDUCE 1.000 0.500 0 1", "i 0 1.000 0.000 0 1",
                                             "X ALLREDUCE 1.500 0.800 0 1" + args, "X INIT_NCCL 1.600 0.400 0 1",
                                             "X NCCL_ALLREDUCE 2.000 0.300 0 1"});
}

TEST_CASE_FIXTURE(Fixture, "timeline: submissions of later rounds wait for their own batch") {
  start(0);
  name(0, 1, "a");
  for (int round = 0; round < 3; ++round) submitted(0, 1000 + 1000 * round, 1);
  for (int round = 0; round < 3; ++round) {
    engine.tag(TraceTag::batch_begin).time(1500 + 1000 * round).number(1).tag(TraceTag::batch_tensor).track(1);
    engine.tag(TraceTag::batch_end).time(1600 + 1000 * round).number(1);
  }
  feed(0, engine.take(1));
  std::vector<std::string> negotiations;
  for (const std::string& event : events())
    if (event.starts_with("X NEG")) negotiations.push_back(event);
  CHECK(negotiations == std::vector<std::string>{"X NEGOTIATE_ALLREDUCE 1.000 0.500 0 1",
                                                 "X NEGOTIATE_ALLREDUCE 2.000 0.500 0 1",
                                                 "X NEGOTIATE_ALLREDUCE 3.000 0.500 0 1"});
}

TEST_CASE_FIXTURE(Fixture, "timeline: the mark of each rank stands in the first rank's row, clocks aligned") {
  start(0);
  name(0, 1, "a");
  Script keep = user;
  control = user = engine = Script{};
  timeline.set_clock(1, {500, 20});
  start(1);
  name(1, 1, "other");
  name(1, 2, "a");
  submitted(1, 1000, 2);
  timeline.show_pending(1'000'001'500);
  CHECK(events() == std::vector<std::string>{"B NEGOTIATE_ALLREDUCE 1.500 0.000 1 1", "i 1 1.500 0.000 0 1"});
}

TEST_CASE_FIXTURE(Fixture, "timeline: what hangs is shown as begun, and ended when it ends") {
  start(0);
  name(0, 1, "a");
  submitted(0, 1000, 1);
  timeline.show_pending(500);
  CHECK(events().empty());
  timeline.show_pending(2'000'000'000);
  timeline.show_pending(3'000'000'000);
  CHECK(events() == std::vector<std::string>{"B NEGOTIATE_ALLREDUCE 1.000 0.000 0 1", "i 0 1.000 0.000 0 1"});
  feed(0, engine.tag(TraceTag::batch_begin).time(3'000'000'000).number(1).tag(TraceTag::batch_tensor).track(1).take(1));
  timeline.show_pending(5'000'000'000);
  feed(0, engine.tag(TraceTag::batch_end).time(6'000'000'000).number(1).take(1));
  const std::string args = R"( {"dtype":"float32","shape":"[100]"})";
  const auto found = events();
  CHECK(std::vector(found.begin() + 2, found.end()) ==
        std::vector<std::string>{"E - 3000000.000 0.000 0 1", "B ALLREDUCE 3000000.000 0.000 0 1" + args,
                                 "E - 6000000.000 0.000 0 1" + args});
}

TEST_CASE_FIXTURE(Fixture, "timeline: a failed negotiation says so; lost records end what was under way") {
  start(0);
  name(0, 1, "a");
  submitted(0, 1000, 1);
  feed(0, engine.tag(TraceTag::failed).time(2000).track(1).take(1));
  CHECK(events() ==
        std::vector<std::string>{"X NEGOTIATE_ALLREDUCE 1.000 1.000 0 1 {\"failed\":true}", "i 0 1.000 0.000 0 1"});
  engine.tag(TraceTag::batch_begin)
      .time(3000)
      .number(1)
      .tag(TraceTag::batch_tensor)
      .track(1)
      .tag(TraceTag::lost)
      .number(9);
  feed(0, engine.tag(TraceTag::batch_end).time(4000).number(1).take(1));
  CHECK(timeline.lost() == 9);
  CHECK(events().size() == 2);
}

TEST_CASE_FIXTURE(Fixture, "timeline: an event with arguments") {
  timeline.name_rank(1, "h");
  timeline.event(1, "agreement: result differs", 5000, R"({"tensor":"a\"b","ranks":[1]})");
  timeline.show_all();
  const auto all = nlohmann::json::parse(text + trace::Timeline::ending("end"));
  const auto& event = all[all.size() - 2];
  CHECK(event["ph"] == "i");
  CHECK(event["name"] == "agreement: result differs");
  CHECK(event["pid"] == 1);
  CHECK(event["args"] == nlohmann::json{{"tensor", "a\"b"}, {"ranks", {1}}});
}

TEST_CASE_FIXTURE(Fixture, "timeline: valid at every line, names of any bytes, closed at the end") {
  timeline.name_rank(0, "h\"ost");
  start(0);
  name(0, 1, "we\"ird\n\xff");
  submitted(0, 1000, 1);
  timeline.rank_ended(0, "killed by SIGKILL", 9000);
  timeline.flush();
  for (std::size_t line = text.find("},\n"); line != std::string::npos; line = text.find("},\n", line + 1))
    CHECK(nlohmann::json::accept(text.substr(0, line + 1) + "]"));
  timeline.show_all();
  text += trace::Timeline::ending("en\"d");
  const auto whole = nlohmann::json::parse(text);
  CHECK(whole[0]["args"]["name"] == "rank 0 (h\"ost)");
  CHECK(whole.back()["name"] == "hvd_end");
}
