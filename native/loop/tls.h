/* tls: the transport that seals what is said, by OpenSSL (docs/tls.md). For who accepts
 * clients, and between brokers, whose handshake is over before (seal.h).
 *
 * A handshake costs its server a signature: so they are begun in the order in which they were asked
 * for, so many a second, so many at a time, and for a part of each turn only. */
#ifndef BARCO_TLS_H
#define BARCO_TLS_H

#include "loop/tls_figures.h"
#include "loop/transport.h"

#define TLS_HANDSHAKES_PER_S_MAX 100000u

struct seal;
struct tls_options;

extern const struct transport tls_transport;

/* Connections that come from now on have this certificate. False, and `why` (TLS_WHY_BYTES) says
 * what is wrong: nothing is changed. Before a listener has the transport. */
bool tls_set(struct loop *loop, const struct tls_options *options, char *why);
/* loop_adopt() for a connection between brokers: with the seal's session; NULL: in plain. */
struct conn *tls_adopt(struct loop *loop, int fd, const struct protocol *protocol,
                       struct seal *seal);
/* After the connections. */
void tls_free(struct loop *loop);
/* Once a turn: who waits for a handshake, and who has taken too long for one. */
void tls_tend(struct loop *loop);
/* After so long `tls_tend` may have something to do that nobody tells of. */
int64_t tls_in_us(struct loop *loop);
/* The name in the certificate that a client has shown (the only CN of its subject), and which one
 * of `tls_options.client_ca` has signed. The length; 0: there is none. */
size_t tls_name(const struct conn *conn, const char **name);
/* NULL: there is no TLS. */
const struct tls_figures *tls_figures(const struct loop *loop);

#endif
