#include "transport/tcp/connect/handshake.h"

#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "transport/tcp/stream/tls_library.h"

namespace hvd::transport::tcp {
namespace {

constexpr int set_least_version = 123, tls_1_3 = 0x0304, verify_peer = 1;
constexpr int own_data = 0;

unsigned give_key(void* ssl, unsigned char* key, unsigned most) {
  const auto* context = static_cast<const KeyContext*>(tls().SSL_get_ex_data(ssl, own_data));
  if (!context || most < context->key().size()) return 0;
  std::memcpy(key, context->key().data(), context->key().size());
  return static_cast<unsigned>(context->key().size());
}

unsigned client_key(void* ssl, const char*, char* identity, unsigned most_identity, unsigned char* key, unsigned most) {
  std::snprintf(identity, most_identity, "hvd");
  return give_key(ssl, key, most);
}

unsigned server_key(void* ssl, const char* identity, unsigned char* key, unsigned most) {
  return identity && std::strcmp(identity, "hvd") == 0 ? give_key(ssl, key, most) : 0;
}

void need(bool well) {
  if (!well) throw Error(Code::unavailable, "OpenSSL", "it does not take the job's settings for TLS 1.3");
}

}  // namespace

KeyContext::KeyContext(const JobKey& key) : key_(key), context_(tls().SSL_CTX_new(tls().TLS_method())) {
  need(context_ != nullptr);
  need(tls().SSL_CTX_ctrl(context_, set_least_version, tls_1_3, nullptr) == 1);
  need(tls().SSL_CTX_set_ciphersuites(context_, "TLS_AES_128_GCM_SHA256") == 1);
  need(tls().SSL_CTX_set_num_tickets(context_, 0) == 1);
  tls().SSL_CTX_set_psk_client_callback(context_, client_key);
  tls().SSL_CTX_set_psk_server_callback(context_, server_key);
}

KeyContext::~KeyContext() { tls().SSL_CTX_free(context_); }

Handshake::Handshake(const KeyContext* context, const Caller& caller, bool calls) : calls_(calls), caller_(caller) {
  if (!context) {
    if (calls_) plain_out_.assign(reinterpret_cast<const char*>(&caller_), sizeof caller_);
    return;
  }
  ssl_ = tls().SSL_new(context->get());
  in_ = tls().BIO_new(tls().BIO_s_mem());
  out_ = tls().BIO_new(tls().BIO_s_mem());
  need(ssl_ && in_ && out_);
  tls().SSL_set_bio(ssl_, in_, out_);
  need(tls().SSL_set_ex_data(ssl_, own_data, const_cast<KeyContext*>(context)) == 1);
  if (calls_) {
    tls().SSL_set_verify(ssl_, verify_peer, nullptr);  // refuses certificates in place of the key
    tls().SSL_set_connect_state(ssl_);
  } else {
    tls().SSL_set_accept_state(ssl_);
  }
  step();
}

Handshake::~Handshake() {
  if (ssl_) tls().SSL_free(ssl_);
}

void Handshake::step_without_key() {
  const auto take_into = [this](void* to, std::size_t bytes) {
    if (plain_in_.size() < bytes) return false;
    std::memcpy(to, plain_in_.data(), bytes);
    plain_in_.erase(0, bytes);
    return true;
  };
  if (calls_ && welcome_ == Welcome::none) take_into(&welcome_, sizeof welcome_);
  if (!calls_ && !introduced_) introduced_ = take_into(&caller_, sizeof caller_);
}

bool Handshake::take(const void* data, std::size_t bytes) {
  if (!ssl_) {
    plain_in_.append(static_cast<const char*>(data), bytes);
    step_without_key();
    return true;
  }
  if (bytes > 0) tls().BIO_write(in_, data, static_cast<int>(bytes));
  return step();
}

bool Handshake::step() {
  const auto goes_on = [this](int result) {
    const int error = tls().SSL_get_error(ssl_, result);
    return error == want_read || error == want_write;
  };
  tls().ERR_clear_error();
  if (!proved_) {
    const int result = tls().SSL_do_handshake(ssl_);
    if (result != 1) return goes_on(result);
    if (tls().SSL_session_reused(ssl_) != 1) return false;  // the other end has not used the key
    proved_ = true;
    if (calls_) tls().SSL_write(ssl_, &caller_, sizeof caller_);
  }
  if (calls_) {
    if (welcome_ != Welcome::none) return true;
    const int result = tls().SSL_read(ssl_, &welcome_, 1);
    return result == 1 || goes_on(result);
  }
  if (introduced_) return true;
  const int result = tls().SSL_read(ssl_, &caller_, sizeof caller_);
  introduced_ = result == static_cast<int>(sizeof caller_);
  return introduced_ || (result <= 0 && goes_on(result));
}

std::string Handshake::give() {
  if (!ssl_) return std::exchange(plain_out_, {});
  std::string bytes(tls().BIO_ctrl_pending(out_), 0);
  if (!bytes.empty()) tls().BIO_read(out_, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

void Handshake::answer(Welcome welcome) {
  if (ssl_)
    tls().SSL_write(ssl_, &welcome, 1);
  else
    plain_out_ += static_cast<char>(welcome);
}

std::unique_ptr<TlsSession> Handshake::take_session() {
  return ssl_ ? std::make_unique<TlsSession>(std::exchange(ssl_, nullptr)) : nullptr;
}

std::string Handshake::rest() {
  if (!ssl_) return std::exchange(plain_in_, {});
  std::string bytes(tls().BIO_ctrl_pending(in_), 0);
  if (!bytes.empty()) tls().BIO_read(in_, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

}  // namespace hvd::transport::tcp
