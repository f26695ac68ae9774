/* Needs Python.h before it. */
#ifndef BARCO_PY_CHECK_H
#define BARCO_PY_CHECK_H

#include "core/core.h"

/* UPCALL_CHECK as a tuple. */
PyObject *py_check(const struct upcall *up);

#endif
