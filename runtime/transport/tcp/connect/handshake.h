/// @file handshake.h — both ends of a new connection prove that they know the job's key.
///
/// TLS 1.3 with the key as pre-shared key, by OpenSSL.  No byte that the other end sends is interpreted by us before
/// that.  Then each end says one thing within TLS: who calls, and whether it is welcome.  What follows is plain, or the
/// same TLS goes on (--encrypt-tensors).
///
/// Between processes of one host the kernel says whose the other end is (unix_listener.h): there it takes no key, and
/// the two things are said without TLS.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "transport/tcp/stream/tls_stream.h"

namespace hvd::transport::tcp {

using JobKey = std::array<unsigned char, 32>;

/// OpenSSL's context for all connections of a transport.  Not copied: handshakes point to it.
class KeyContext {
 public:
  /// Throws Error{unavailable} without OpenSSL.
  explicit KeyContext(const JobKey& key);
  ~KeyContext();
  KeyContext(const KeyContext&) = delete;
  KeyContext& operator=(const KeyContext&) = delete;
  const JobKey& key() const { return key_; }
  void* get() const { return context_; }

 private:
  const JobKey key_;
  void* context_;
};

/// The caller's first words: its rank, and the rank that it calls.
struct Caller {
  std::uint32_t from = 0, to = 0;  ///< ranks
  std::uint32_t lane = 0;          ///< which of the connections between the two
  std::uint32_t encrypts = 0;      ///< what follows the handshake, as it must be at both ends
  std::uint64_t world = 0;         ///< of the listener: a number of its own for each world
};

/// What the listener answers.  otherwise: one end encrypts, the other does not.
enum class Welcome : unsigned char { none = 0, yes = 1, duplicate = 2, stranger = 3, otherwise = 4 };

/// One end.  It does no input or output itself: bytes go in and come out.
class Handshake {
 public:
  /// The caller's end.
  Handshake(const KeyContext& context, const Caller& caller) : Handshake(&context, caller, true) {}
  /// The listener's.
  explicit Handshake(const KeyContext& context) : Handshake(&context, {}, false) {}
  /// Without a key; the caller's end, and the listener's.
  explicit Handshake(const Caller& caller) : Handshake(nullptr, caller, true) {}
  Handshake() : Handshake(nullptr, {}, false) {}
  ~Handshake();
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  /// @p data came from the other end.  False: the other end has another key, or none.
  bool take(const void* data, std::size_t bytes);
  /// The other end has proved the key.
  bool proved() const { return proved_; }
  /// What is to be sent now.
  std::string give();
  /// On the listener: the caller has said who it is, and waits for answer().
  bool introduced() const { return introduced_; }
  const Caller& caller() const { return caller_; }
  void answer(Welcome welcome);
  /// On the caller: the listener's answer; none while there is none.
  Welcome welcome() const { return welcome_; }
  /// What came behind the end of TLS.
  std::string rest();
  /// The session for the bytes after the handshake.  Call it once, when the handshake is over.  Null without a key.
  std::unique_ptr<TlsSession> take_session();

 private:
  Handshake(const KeyContext* context, const Caller& caller, bool calls);
  bool step();
  void step_without_key();

  void* ssl_ = nullptr;                  ///< null: without a key
  void *in_ = nullptr, *out_ = nullptr;  ///< OpenSSL's memory buffers; owned by ssl_
  std::string plain_in_, plain_out_;     ///< without a key
  const bool calls_;
  bool proved_ = false, introduced_ = false;
  Caller caller_;
  Welcome welcome_ = Welcome::none;
};

}  // namespace hvd::transport::tcp
