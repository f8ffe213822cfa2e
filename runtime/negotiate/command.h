/// @file command.h — the commands of the coordinator to the members, and the records of a member to the coordinator.
///
/// Commands and records are plain bytes in the host's byte order.  All processes of a job have the same version.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

#include "common/signature.h"
#include "common/tuned_settings.h"

namespace hvd::negotiate {

/// Every member carries out all commands in the same sequence.
enum class Command : std::uint32_t {
  batch = 1,   ///< u32 flags, u32 count, ids (idset.h): the members run these operations together, in ascending order
  assign,      ///< u32 id, u32 slot offset, name: the operation of this name gets an id.  A batch follows
  evict,       ///< u32 id: the members forget the id.  A rank that has submitted its operation sends a record again
  fail,        ///< u32 code, u32 0, u32 name length, name, text: the operation of this name ends with an error
  fail_group,  ///< u32 code, u64 group, text: all operations under way in this group end with an error
  outdate,     ///< u32 code, u64 command, u64 group, u32 group size, u32 count, names, text: the group has failed.
               ///< Operations of these names end with an error if they are outside the group and older than command
               ///< number `command`
  gone,        ///< u32 code, u32 rank, text: the rank takes part no longer
  joining,     ///< a rank wants to join.  From now on records announce all operations, in the order of submission
  stand_in,    ///< u32 id, signature: a rank that has joined, and has not submitted this operation, contributes a
               ///< stand-in
  joined,      ///< u32 rank: all ranks have joined, this rank last.  Members use ready bits again
  tune,        ///< TunedSettings (put_settings): they apply from the next batch on
};

inline constexpr std::uint32_t no_culprit = 1u
                                            << 16;  ///< flag of the code of gone: the rank is not known to be at fault
inline constexpr std::uint32_t batch_eager = 1;     ///< flag of a batch: all inputs are in the slots
/// Messages give this name to a rank's wait in join.
inline constexpr const char* join_text = "hvd.join()";

/// The two records of Kind::join.  The value is in Signature::root.
inline constexpr int wants_to_join = 0;  ///< asks for the command `joining`
/// Follows that command, and the records of all operations that this rank has under way.
inline constexpr int has_joined = 1;
inline constexpr std::uint32_t no_slot = 0xffffffffu;

/// Makes a name for an operation without one.  @p number counts the rank's unnamed calls of this operation, so
/// all ranks make the same names.  After a join the numbers start again at 0.  Between two joins a name is used once.
inline std::string made_name(std::string_view operation, std::uint64_t number) {
  return std::string(operation) + ".noname." + std::to_string(number);
}
/// True if @p name looks like a made name.  A caller's own name may look like one: it works, at a higher cost.
inline bool is_made_name(std::string_view name) {
  const std::size_t dot = name.find('.');
  return dot != std::string_view::npos && name.substr(dot).starts_with(".noname.");
}

/// True if @p name is that of a message between two ranks (hvd/torch/_c10d/point_to_point.py).  A receive may be posted
/// long before its message is sent.  So the message counts as a wait only while a thread waits for its end.
inline bool is_message_name(std::string_view name) {
  return name.starts_with("c10d") && name.find("/send ") != std::string_view::npos;
}

/// Appends plain values and text to a string of bytes.
class ByteWriter {
 public:
  template <class T>
  ByteWriter& put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  /// Appends seven bits in each byte, the lowest bits first.  Numbers below 128 take one byte.
  ByteWriter& varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
    return *this;
  }
  ByteWriter& text(std::string_view s) {
    put(static_cast<std::uint32_t>(s.size()));
    bytes_ += s;
    return *this;
  }
  ByteWriter& raw(std::string_view s) {
    bytes_ += s;
    return *this;
  }
  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_;
};

/// The longest name of an operation, in bytes.  A caller's name has at most 4096; a process set's name lists 32 ranks.
inline constexpr std::size_t longest_name = 4096;

/// Takes the values of a ByteWriter off the front of the bytes, which must outlive the reader.  Throws
/// std::runtime_error if too few bytes are left, or if a text or number is out of range.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1).front());
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("negotiation: a number is too long");
  }
  /// Takes a u32.  Throws unless the number is below @p end.
  std::uint32_t index(std::size_t end) {
    const auto value = get<std::uint32_t>();
    if (value >= end) throw std::runtime_error("negotiation: an id or rank that does not exist");
    return value;
  }
  std::string_view text() { return take(get<std::uint32_t>()); }
  std::string_view short_text() {
    const std::uint64_t bytes = varint();
    if (bytes > longest_name) throw std::runtime_error("negotiation: a name is too long");
    return take(bytes);
  }
  std::string_view take(std::size_t n) {
    if (n > left_.size()) throw std::runtime_error("negotiation: a message is too short");
    std::string_view head = left_.substr(0, n);
    left_.remove_prefix(n);
    return head;
  }
  std::string_view rest() const { return left_; }
  bool empty() const { return left_.empty(); }

 private:
  std::string_view left_;
};

inline void put_settings(ByteWriter& w, const TunedSettings& s) {
  w.put(s.fusion_bytes).put(s.hold_ns).put(s.slice_bytes).put(s.latency_ns);
}
/// Throws std::runtime_error on bytes that put_settings() cannot have written.
inline TunedSettings get_settings(ByteReader& r) {
  TunedSettings s;
  s.fusion_bytes = r.get<std::int64_t>();
  s.hold_ns = r.get<std::int64_t>();
  s.slice_bytes = r.get<std::int64_t>();
  s.latency_ns = r.get<std::int64_t>();
  if (!s.possible()) throw std::runtime_error("negotiation: settings that cannot be");
  return s;
}

/// Reads the bytes of Signature::blob().  Throws std::runtime_error if they are no possible signature.
inline Signature read_signature(std::string_view blob) {
  Signature s;
  constexpr std::size_t head = sizeof(SignatureHead);
  if (blob.size() < head || blob.size() > sizeof s) throw std::runtime_error("negotiation: a signature is malformed");
  std::memcpy(static_cast<void*>(&s), blob.data(), blob.size());
  bool good = s.ndim <= max_dims && s.bytes() == blob.size();
  good = good && s.kind <= num_kinds && s.dtype < num_dtypes && s.reduce < num_reduces && s.root >= 0;
  for (std::int64_t bytes = good ? static_cast<std::int64_t>(element_bytes(s.type())) : 0, i = 0; good && i < s.ndim;
       ++i) {
    const std::int64_t d = std::max<std::int64_t>(s.dims[i], 1);
    good = s.dims[i] >= -1 && bytes <= INT64_MAX / 2 / d;
    if (good) bytes *= d;
  }
  if (!good) throw std::runtime_error("negotiation: a signature is malformed");
  return s;
}

/// A member's announcement of an operation without an id.
struct Record {
  std::uint64_t executed = 0;  ///< commands that the sender had carried out by then
  Signature signature;
  std::string name;
};

/// Appends a record to @p to: u32 length, u64 executed, u32 signature length, signature, name.  The length lets a byte
/// queue carry records.
inline void append_record(std::string& to, std::uint64_t executed, const Signature& s, std::string_view name) {
  ByteWriter w;
  w.put(static_cast<std::uint32_t>(sizeof(std::uint64_t) + 4 + s.bytes() + name.size())).put(executed);
  w.text(s.blob()).raw(name);
  to += w.bytes();
}

/// Takes one record off the front of @p bytes.  Returns false if no whole record is there.  Throws std::runtime_error
/// on bytes that append_record() cannot have written.
inline bool next_record(std::string_view& bytes, Record& record) {
  std::uint32_t length;
  if (bytes.size() < sizeof length) return false;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > sizeof(std::uint64_t) + 4 + sizeof(Signature) + longest_name)
    throw std::runtime_error("negotiation: a record is too long");
  if (bytes.size() < sizeof length + length) return false;
  ByteReader r(bytes.substr(sizeof length, length));
  bytes.remove_prefix(sizeof length + length);
  record.executed = r.get<std::uint64_t>();
  record.signature = read_signature(r.text());
  record.name = r.rest();
  return true;
}

}  // namespace hvd::negotiate
