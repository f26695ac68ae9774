/* send: in which order connections send, and how much of it at a time. */
#ifndef BARCO_SEND_H
#define BARCO_SEND_H

struct conn;
struct loop;

/* Sends what waits first on the connection, now or by send_late(). */
void send_ready(struct conn *conn);
/* Once a turn, after everything else: a portion of what was put off. */
void send_late(struct loop *loop);
/* Before the connection is freed. */
void send_forget(struct conn *conn);

#endif
