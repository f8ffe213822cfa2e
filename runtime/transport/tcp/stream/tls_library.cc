#include "transport/tcp/stream/tls_library.h"

#include <dlfcn.h>

#include "base/error.h"

namespace hvd::transport::tcp {
namespace {

template <class F>
void find(void* library, const char* function, F* out) {
  *out = reinterpret_cast<F>(dlsym(library, function));
  if (*out == nullptr) throw Error(Code::unavailable, "OpenSSL", std::string("it has no function ") + function);
}

void* open_library() {
  for (const char* name : {"libssl.so.3", "libssl.so.1.1"})
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  throw Error(Code::unavailable, "OpenSSL", "there is no libssl.so.3 or libssl.so.1.1",
              "install OpenSSL (apt install libssl3), or use --transport mpi");
}

TlsLibrary load() {
  void* const library = open_library();  // never closed
  TlsLibrary l{};
#define HVD_FIND(name) find(library, #name, &l.name)
  HVD_FIND(TLS_method);
  HVD_FIND(SSL_CTX_new);
  HVD_FIND(SSL_CTX_free);
  HVD_FIND(SSL_CTX_ctrl);
  HVD_FIND(SSL_CTX_set_num_tickets);
  HVD_FIND(SSL_CTX_set_ciphersuites);
  HVD_FIND(SSL_set_verify);
  HVD_FIND(SSL_CTX_set_psk_client_callback);
  HVD_FIND(SSL_CTX_set_psk_server_callback);
  HVD_FIND(SSL_new);
  HVD_FIND(SSL_free);
  HVD_FIND(SSL_set_bio);
  HVD_FIND(SSL_set_ex_data);
  HVD_FIND(SSL_get_ex_data);
  HVD_FIND(SSL_set_connect_state);
  HVD_FIND(SSL_set_accept_state);
  HVD_FIND(SSL_do_handshake);
  HVD_FIND(SSL_session_reused);
  HVD_FIND(SSL_get_error);
  HVD_FIND(SSL_read);
  HVD_FIND(SSL_write);
  HVD_FIND(SSL_pending);
  HVD_FIND(SSL_key_update);
  HVD_FIND(BIO_new);
  HVD_FIND(BIO_s_mem);
  HVD_FIND(BIO_meth_new);
  HVD_FIND(BIO_meth_set_write);
  HVD_FIND(BIO_meth_set_read);
  HVD_FIND(BIO_meth_set_ctrl);
  HVD_FIND(BIO_set_data);
  HVD_FIND(BIO_get_data);
  HVD_FIND(BIO_set_init);
  HVD_FIND(BIO_set_flags);
  HVD_FIND(BIO_clear_flags);
  HVD_FIND(BIO_read);
  HVD_FIND(BIO_write);
  HVD_FIND(BIO_ctrl_pending);
  HVD_FIND(ERR_clear_error);
#undef HVD_FIND
  return l;
}

}  // namespace

const TlsLibrary& tls() {
  static const TlsLibrary loaded = load();
  return loaded;
}

}  // namespace hvd::transport::tcp
