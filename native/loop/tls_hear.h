/* tls_hear: what comes by TLS behind a handshake (tls.h). */
#ifndef BARCO_TLS_HEAR_H
#define BARCO_TLS_HEAR_H

struct conn;

/* What has come, bio.in, is heard. The connection may be closed then. */
void tls_hear(struct conn *conn);
/* It can not go on, and OpenSSL's errors say why. */
void tls_fail(struct conn *conn);

#endif
