/* tls_hear: what comes by TLS behind a handshake (tls.h). */
#ifndef BARCO_TLS_HEAR_H
#define BARCO_TLS_HEAR_H

#include <stdint.h>

struct conn;
struct tls;

/* What has come, bio.in, is heard. The connection may be closed then. */
void tls_hear(struct conn *conn);
/* An alert of ours: as the last of what waits to be sent, or, where the kernel seals, if it has
 * room and nothing is half sent. */
void tls_tell(struct tls *tls, uint8_t level, uint8_t what);
/* It can not go on, and OpenSSL's errors say why. */
void tls_fail(struct conn *conn);

#endif
