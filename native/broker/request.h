/* request: the protocol of clients, HTTP/1.1. */
#ifndef BARCO_REQUEST_H
#define BARCO_REQUEST_H

#include "broker/client.h"

extern const struct protocol client_protocol;

#endif
