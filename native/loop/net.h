/* net: the seam to the kernel. Two engines with the same semantics: io_uring, and epoll with a
 * writer thread where io_uring is refused. */
#ifndef BARCO_NET_H
#define BARCO_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;
struct conn;
struct listener;
struct msghdr;

/* One receive buffer: large enough that bulk bodies cost few completions (limits.md section 3). */
#define RECV_BUFFER_BYTES 65536u
#define RECV_LITTLE_BYTES 4096u /* at a time, of a connection that is wary */
#define WRITES_MAX 8u /* under way at a time, of whoever asks for them */

/* A write to a file that is stable when it ends; part of what it is for. */
struct write {
    int fd;
    void *owner;
    void (*done)(struct write *write, int64_t result); /* bytes, or -errno */
};

struct net {
    const char *name;
    void (*free)(struct net *net);
    /* All report failures through the callbacks of loop.h, never by a return value. */
    void (*listen)(struct net *net, struct listener *listener);
    void (*watch)(struct net *net, int epoll_fd);
    void (*adopt)(struct net *net, struct conn *conn);
    void (*recv_start)(struct net *net, struct conn *conn);
    void (*recv_stop)(struct net *net, struct conn *conn);
    void (*send)(struct net *net, struct conn *conn, const void *bytes, size_t len);
    /* Sends what may be overwritten later: after submit() the kernel has taken what it could,
     * and reads no more of it. May say that nothing was sent, once it is worth another try. */
    void (*send_now)(struct net *net, struct conn *conn, const struct msghdr *message);
    /* Makes the connection's operations end; it is freed when none is left. */
    void (*close)(struct net *net, struct conn *conn);
    void (*write)(struct net *net, struct write *write, const void *bytes, size_t len,
                  uint64_t offset);
    /* Submits what has been asked for, and waits for nothing. True: there is nothing left. */
    bool (*submit)(struct net *net);
    /* Submits, waits at most timeout_ns (-1: for ever) and calls back. */
    void (*wait)(struct net *net, int64_t timeout_ns);
};

/* NULL, and *reason says why, where the kernel refuses. */
struct net *net_uring_new(struct loop *loop, const char **reason);
struct net *net_epoll_new(struct loop *loop, const char **reason);

#endif
