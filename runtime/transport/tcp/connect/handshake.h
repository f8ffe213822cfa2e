/// @file handshake.h — both ends of a new connection prove that they know the job's key.
///
/// TCP connections use TLS 1.3 by OpenSSL, with the job's key as pre-shared key.  Until the key is proved, only OpenSSL
/// interprets bytes from the other end.  Then each end sends one record within TLS: the caller sends Caller, and the
/// listener answers with Welcome.  Later bytes are plain, or use the same TLS session (--encrypt-tensors).
///
/// Unix sockets need no key: the kernel tells the user of the other end (unix_listener.h).  Caller and Welcome are then
/// sent without TLS.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "transport/tcp/stream/tls_stream.h"

namespace hvd::transport::tcp {

using JobKey = std::array<unsigned char, 32>;

/// OpenSSL's context for all connections of a transport.  Must outlive all handshakes made from it.
class KeyContext {
 public:
  /// Throws Error{unavailable} if OpenSSL is missing, or does not accept the settings.
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

/// The first message of the caller: its rank, and the rank that it calls.
struct Caller {
  std::uint32_t from = 0, to = 0;  ///< ranks
  std::uint32_t lane = 0;          ///< number of the lane between the two ranks
  std::uint32_t encrypts = 0;      ///< 1: bytes after the handshake are encrypted; must be equal at both ends
  std::uint64_t world = 0;         ///< ListenAddress::world of the listener
  /// 0: makes the lane.  Otherwise the lane exists, and moves to another network.  The lower rank makes the connection,
  /// and sends the number of its call.  The higher rank asks the lower one to call, and sends the number of the last
  /// call that it has accepted, or 1.
  std::uint64_t move = 0;
};

/// The listener's answer.  none: no answer yet.  duplicate: the lane exists, or the listener calls for the lane itself.
/// stranger: the listener expects no call from this caller.  otherwise: only one end encrypts.
enum class Welcome : unsigned char { none = 0, yes = 1, duplicate = 2, stranger = 3, otherwise = 4 };

/// One end of a handshake.  Makes no system calls: the owner passes received bytes to take(), and sends the bytes of
/// give().
class Handshake {
 public:
  /// The caller's end, with the job's key.
  Handshake(const KeyContext& context, const Caller& caller) : Handshake(&context, caller, true) {}
  /// The listener's end, with the job's key.
  explicit Handshake(const KeyContext& context) : Handshake(&context, {}, false) {}
  /// The caller's end and the listener's end, without a key.
  explicit Handshake(const Caller& caller) : Handshake(nullptr, caller, true) {}
  Handshake() : Handshake(nullptr, {}, false) {}
  ~Handshake();
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  /// Takes bytes from the other end.  False: the other end does not know the key.
  bool take(const void* data, std::size_t bytes);
  /// True if the other end has proved that it knows the key.
  bool proved() const { return proved_; }
  /// Returns bytes that the owner must send to the other end.
  std::string give();
  /// Listener: true if caller() has arrived.  The caller waits for answer().
  bool introduced() const { return introduced_; }
  const Caller& caller() const { return caller_; }
  void answer(Welcome welcome);
  /// Caller: the listener's answer.
  Welcome welcome() const { return welcome_; }
  /// Returns received bytes after the end of the handshake.
  std::string rest();
  /// Returns the session for bytes after the handshake; null without a key.  Call once, after rest() and give().
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
