#include "trace/trace_decoder.h"

#include <algorithm>
#include <utility>

namespace hvd::trace {

namespace {

/// Largest record: a name with all its dimensions.
constexpr std::size_t max_record_bytes = trace_name_bytes + (trace_max_dims + 8) * varint_max_bytes;

}  // namespace

/// Reads the parts of records in order.  `ended`: the bytes stop inside a record.  `bad`: the record is malformed.
class TraceDecoder::Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool ended = false, bad = false;
  bool good() const { return !ended && !bad; }
  bool empty() const { return at_ == end_; }
  const std::uint8_t* at() const { return at_; }

  std::uint8_t byte() {
    if (at_ == end_) {
      ended = true;
      return 0;
    }
    return *at_++;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint8_t next = byte();
      value |= std::uint64_t{next & 0x7fu} << shift;
      if (next < 0x80) return value;
    }
    bad = true;
    return 0;
  }
  std::uint64_t fixed_u64() {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < 8; ++i) value |= std::uint64_t{byte()} << (8 * i);
    return value;
  }
  std::string text(std::size_t bytes) {
    if (static_cast<std::size_t>(end_ - at_) < bytes) {
      ended = true;
      return {};
    }
    at_ += bytes;
    return {at_ - bytes, at_};
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

bool TraceDecoder::fail(std::string what) {
  if (error_.empty()) error_ = std::move(what);
  streams_.clear();
  return false;
}

bool TraceDecoder::feed(std::span<const std::uint8_t> body) {
  if (!error_.empty()) return false;
  if (body.size() < 2 || body[0] != trace_version || body[1] != 0)
    return fail("the records are of another version of hvdrun");
  body = body.subspan(2);
  while (!body.empty()) {
    if (body.size() < trace_section_header_bytes) return fail("a batch of records ends too early");
    const auto number = static_cast<std::uint16_t>(body[0] | body[1] << 8);
    const std::size_t bytes =
        body[2] | std::size_t{body[3]} << 8 | std::size_t{body[4]} << 16 | std::size_t{body[5]} << 24;
    body = body.subspan(trace_section_header_bytes);
    if (bytes > body.size() || number >= max_streams) return fail("a batch of records is malformed");
    if (!feed_section(number, body.first(bytes))) return false;
    body = body.subspan(bytes);
  }
  return true;
}

bool TraceDecoder::feed_section(std::uint16_t number, std::span<const std::uint8_t> bytes) {
  if (number >= streams_.size()) streams_.resize(number + 1u);
  Stream& stream = streams_[number];
  if (number == trace_control_stream) stream.begun = true;
  // The record that the last section left unfinished comes first, joined with the next bytes.
  while (!stream.rest.empty() && !bytes.empty()) {
    const std::size_t before = stream.rest.size();
    const std::size_t added = std::min(bytes.size(), max_record_bytes);
    std::vector<std::uint8_t> joined = std::exchange(stream.rest, {});
    joined.insert(joined.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(added));
    const std::size_t used = parse(number, stream, joined);
    if (!error_.empty()) return false;
    if (used < before) {  // the record is still unfinished, and contains all of `bytes`
      stream.rest = std::move(joined);
      if (stream.rest.size() > max_record_bytes) return fail("a record is too long");
      return true;
    }
    bytes = bytes.subspan(used - before);
  }
  const std::size_t used = parse(number, stream, bytes);
  if (!error_.empty()) return false;
  stream.rest.assign(bytes.begin() + static_cast<std::ptrdiff_t>(used), bytes.end());
  if (stream.rest.size() > max_record_bytes) return fail("a record is too long");
  return true;
}

/// Passes the whole records at the start of @p bytes to the listener.  Returns the number of their bytes.
std::size_t TraceDecoder::parse(std::uint16_t number, Stream& stream, std::span<const std::uint8_t> bytes) {
  Reader reader(bytes);
  const std::uint8_t* record = reader.at();
  while (!reader.empty()) {
    parse_record(number, stream, reader);
    if (reader.bad) {
      fail("a record is malformed");
      return 0;
    }
    if (reader.ended) break;
    record = reader.at();
  }
  return static_cast<std::size_t>(record - bytes.data());
}

void TraceDecoder::parse_record(std::uint16_t number, Stream& stream, Reader& reader) {
  const auto tag = static_cast<TraceTag>(reader.byte());
  const bool control = number == trace_control_stream;
  // Differences apply only when the record is complete.  Until then they go into a copy of the stream's position.
  Stream next{stream.begun, stream.ticks, stream.ns, stream.track, {}};
  const auto done = [&] {
    if (!reader.good()) return false;
    stream.ticks = next.ticks;
    stream.ns = next.ns;
    stream.track = next.track;
    return stream.begun;
  };
  switch (tag) {
    case TraceTag::nop:
      return;
    case TraceTag::clock:
      return control ? parse_clock(reader) : void(reader.bad = true);
    case TraceTag::name:
      return control ? parse_name(reader) : void(reader.bad = true);
    case TraceTag::reset:
      if (control) return start();
      stream = Stream{true, 0, 0, 0, {}};
      return;
    case TraceTag::submitted: {
      const std::int64_t ns = read_time(next, reader);
      const std::uint32_t track = read_track(next, reader);
      if (done()) listener_.on_submitted(track, ns);
      return;
    }
    case TraceTag::failed: {
      const std::int64_t ns = read_time(next, reader);
      const std::uint32_t track = read_track(next, reader);
      if (done()) listener_.on_failed(track, ns);
      return;
    }
    case TraceTag::batch_tensor: {
      const std::uint32_t track = read_track(next, reader);
      if (done()) listener_.on_batch_tensor(track);
      return;
    }
    case TraceTag::batch_begin:
    case TraceTag::batch_end: {
      const std::int64_t ns = read_time(next, reader);
      const auto batch = static_cast<std::uint32_t>(reader.varint());
      if (!done()) return;
      return tag == TraceTag::batch_begin ? listener_.on_batch_begin(batch, ns) : listener_.on_batch_end(batch, ns);
    }
    case TraceTag::phase_begin:
    case TraceTag::phase_end: {
      const std::int64_t ns = read_time(next, reader);
      const auto batch = static_cast<std::uint32_t>(reader.varint());
      const std::uint8_t phase = reader.byte();
      if (phase >= trace_phases) reader.bad = true;
      if (!done()) return;
      return tag == TraceTag::phase_begin ? listener_.on_phase_begin(batch, static_cast<Phase>(phase), ns)
                                          : listener_.on_phase_end(batch, static_cast<Phase>(phase), ns);
    }
    case TraceTag::ran:
    case TraceTag::ran_all:
      return parse_ran(tag, stream, reader);
    case TraceTag::cycle: {
      const std::int64_t ns = read_time(next, reader);
      if (done()) listener_.on_cycle(ns);
      return;
    }
    case TraceTag::step: {
      const std::int64_t ns = read_time(next, reader);
      const std::int64_t which = unzigzag(reader.varint());
      if (done()) listener_.on_step(which, ns);
      return;
    }
    case TraceTag::part: {
      const std::int64_t ns = read_time(next, reader);
      const std::uint8_t part = reader.byte(), begins = reader.byte();
      if (part >= traced_parts || begins > 1) reader.bad = true;
      if (done()) listener_.on_part(static_cast<TracedPart>(part), begins == 1, ns);
      return;
    }
    case TraceTag::lost: {
      const std::uint64_t records = reader.varint();
      if (done()) listener_.on_lost(number == trace_engine_stream, records);
      return;
    }
  }
  reader.bad = true;
}

/// Does not change the stream's position.
void TraceDecoder::parse_ran(TraceTag tag, const Stream& stream, Reader& reader) {
  const std::uint64_t begin = stream.ticks + static_cast<std::uint64_t>(unzigzag(reader.varint()));
  const auto batch = static_cast<std::uint32_t>(reader.varint());
  const std::uint8_t phase = tag == TraceTag::ran ? reader.byte() : 0;
  const std::uint64_t duration = tag == TraceTag::ran ? reader.varint() : 0;
  if (phase >= trace_phases) reader.bad = true;
  if (!reader.good() || !stream.begun) return;
  const std::int64_t ns = to_ns(begin);
  if (tag == TraceTag::ran_all) return listener_.on_batch_end(batch, ns);
  listener_.on_phase_begin(batch, static_cast<Phase>(phase), ns);
  listener_.on_phase_end(batch, static_cast<Phase>(phase), std::max(ns, to_ns(begin + duration)));
}

/// Resets all streams except the control stream, which has no differences.
void TraceDecoder::start() {
  for (std::size_t i = trace_control_stream + 1u; i < streams_.size(); ++i) streams_[i] = Stream{};
  clocks_seen_ = 0;
  tracks_ = 0;
  name_bytes_ = 0;
  listener_.on_start();
}

void TraceDecoder::parse_clock(Reader& reader) {
  const std::uint64_t ticks = reader.fixed_u64();
  const auto ns = static_cast<std::int64_t>(reader.fixed_u64());
  if (ns < 0 || ns > std::int64_t{1} << 62) reader.bad = true;
  if (!reader.good()) return;
  // Two readings close to each other give an inexact rate.  The older one stays until the newer is far_ns after it.
  constexpr std::int64_t far_ns = 10'000'000;
  if (clocks_seen_ < 2 || clocks_[1].ns - clocks_[0].ns >= far_ns || clocks_[1].ns < clocks_[0].ns)
    clocks_[0] = clocks_[1];
  clocks_[1] = {ticks, ns};
  ++clocks_seen_;
  listener_.on_clock(ns);
  const auto passed = static_cast<double>(static_cast<std::int64_t>(ticks - clocks_[0].ticks));
  const auto passed_ns = static_cast<double>(ns) - static_cast<double>(clocks_[0].ns);
  if (clocks_seen_ >= 2 && passed > 0 && passed_ns > 0) ns_per_tick_ = passed_ns / passed;
}

void TraceDecoder::parse_name(Reader& reader) {
  TraceTrack track;
  const std::uint64_t id = reader.varint();
  const std::uint8_t op = reader.byte();
  track.dtype = reader.byte();
  const std::uint64_t home = reader.varint();
  const std::uint8_t dims = reader.byte();
  if (op >= trace_ops || dims > trace_max_dims || home > 0x7fffffff) reader.bad = true;
  for (int i = 0; i < dims && reader.good(); ++i) track.shape.push_back(reader.varint());
  const std::uint64_t bytes = reader.varint();
  if (bytes > trace_name_bytes) reader.bad = true;
  if (!reader.good()) return;
  track.name = reader.text(bytes);
  if (reader.ended) return;
  name_bytes_ += track.name.size() + track.shape.size() * sizeof(track.shape[0]) + sizeof track;
  if (id != tracks_ + 1u || tracks_ == max_tracks || name_bytes_ > max_name_bytes) {
    reader.bad = true;
    return;
  }
  ++tracks_;
  track.op = static_cast<TraceOp>(op);
  track.home = static_cast<int>(home);
  listener_.on_track(tracks_, std::move(track));
}

std::int64_t TraceDecoder::read_time(Stream& stream, Reader& reader) {
  stream.ticks += static_cast<std::uint64_t>(unzigzag(reader.varint()));
  stream.ns = std::max(stream.ns, to_ns(stream.ticks));
  return stream.ns;
}

std::uint32_t TraceDecoder::read_track(Stream& stream, Reader& reader) {
  stream.track =
      static_cast<std::uint32_t>(std::uint64_t{stream.track} + static_cast<std::uint64_t>(unzigzag(reader.varint())));
  if (reader.good() && stream.begun && (stream.track == 0 || stream.track > tracks_)) reader.bad = true;
  return stream.track;
}

/// Converts by the last clock reading and the rate ns_per_tick_.  @p ticks  at most a year from that reading
std::int64_t TraceDecoder::to_ns(std::uint64_t ticks) const {
  constexpr double year_ns = 3.2e16;
  const double past = static_cast<double>(static_cast<std::int64_t>(clocks_[1].ticks - ticks)) * ns_per_tick_;
  return std::max<std::int64_t>(0, clocks_[1].ns - static_cast<std::int64_t>(std::clamp(past, -year_ns, year_ns)));
}

}  // namespace hvd::trace
