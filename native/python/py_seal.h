/* Sessions of TLS between brokers, as arguments of others. Needs Python.h before it. */
#ifndef BARCO_PY_SEAL_H
#define BARCO_PY_SEAL_H

#include <sys/types.h>

struct seal;

/* For "O&", None as no seal: whose session is given away, and who writes by it from now on. */
int py_seal_given(PyObject *object, void *out);
int py_seal_used(PyObject *object, void *out);
/* What seal_or_send() returned. */
PyObject *py_seal_taken(ssize_t result);

#endif
