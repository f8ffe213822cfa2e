/// @file tls_library.h — OpenSSL's functions for connections, loaded on first use.
///
/// The functions are declared here and found at run time.  So one build runs with OpenSSL 1.1.1 and 3.  A job on one
/// host that uses unix sockets needs no OpenSSL.
#pragma once

namespace hvd::transport::tcp {

inline constexpr int want_read = 2, want_write = 3;  ///< results of SSL_get_error

/// Each function is as in openssl/ssl.h, with void* in place of pointers to OpenSSL's types.
struct TlsLibrary {
  using PskClient = unsigned (*)(void* ssl, const char* hint, char* identity, unsigned most_identity,
                                 unsigned char* key, unsigned most_key);
  using PskServer = unsigned (*)(void* ssl, const char* identity, unsigned char* key, unsigned most_key);

  const void* (*TLS_method)();
  void* (*SSL_CTX_new)(const void* method);
  void (*SSL_CTX_free)(void* context);
  long (*SSL_CTX_ctrl)(void* context, int command, long number, void* more);
  int (*SSL_CTX_set_num_tickets)(void* context, unsigned long tickets);
  int (*SSL_CTX_set_ciphersuites)(void* context, const char* names);
  void (*SSL_set_verify)(void* ssl, int mode, void* callback);
  void (*SSL_CTX_set_psk_client_callback)(void* context, PskClient callback);
  void (*SSL_CTX_set_psk_server_callback)(void* context, PskServer callback);
  void* (*SSL_new)(void* context);
  void (*SSL_free)(void* ssl);
  void (*SSL_set_bio)(void* ssl, void* in, void* out);
  int (*SSL_set_ex_data)(void* ssl, int index, void* data);
  void* (*SSL_get_ex_data)(const void* ssl, int index);
  void (*SSL_set_connect_state)(void* ssl);
  void (*SSL_set_accept_state)(void* ssl);
  int (*SSL_do_handshake)(void* ssl);
  int (*SSL_session_reused)(const void* ssl);
  int (*SSL_get_error)(const void* ssl, int result);
  int (*SSL_read)(void* ssl, void* data, int bytes);
  int (*SSL_write)(void* ssl, const void* data, int bytes);
  int (*SSL_pending)(const void* ssl);
  int (*SSL_key_update)(void* ssl, int kind);
  void* (*BIO_new)(const void* method);
  const void* (*BIO_s_mem)();
  void* (*BIO_meth_new)(int type, const char* name);
  int (*BIO_meth_set_write)(void* method, int (*write)(void* bio, const char* data, int bytes));
  int (*BIO_meth_set_read)(void* method, int (*read)(void* bio, char* data, int bytes));
  int (*BIO_meth_set_ctrl)(void* method, long (*control)(void* bio, int command, long number, void* more));
  void (*BIO_set_data)(void* bio, void* data);
  void* (*BIO_get_data)(void* bio);
  void (*BIO_set_init)(void* bio, int done);
  void (*BIO_set_flags)(void* bio, int flags);
  void (*BIO_clear_flags)(void* bio, int flags);
  int (*BIO_read)(void* bio, void* data, int bytes);
  int (*BIO_write)(void* bio, const void* data, int bytes);
  unsigned long (*BIO_ctrl_pending)(void* bio);
  void (*ERR_clear_error)();
};

/// Loads OpenSSL on the first call.  Any thread.  Throws Error{unavailable} if OpenSSL is missing.
const TlsLibrary& tls();

}  // namespace hvd::transport::tcp
