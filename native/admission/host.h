/* host: whom a request is meant for. */
#ifndef BARCO_HOST_H
#define BARCO_HOST_H

#include "core/client.h"

/* 0, or the problem: the request is for another host, or a page of another origin sent it. */
uint16_t request_origin(struct conn *conn, const struct http1_request *head);
bool reactor_add_host(struct reactor *reactor, const char *text, size_t len);
void hosts_free(struct reactor *reactor);

#endif
