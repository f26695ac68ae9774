/* Conditions that Python has read from a request. Include after Python.h. */
#ifndef BARCO_PY_CONDITIONS_H
#define BARCO_PY_CONDITIONS_H

#include <stdbool.h>

#include "read/condition.h"

/* From tuples, whose bytes they point to from then on. False with an exception set. */
bool py_conditions(PyObject *given, struct conditions *out);

#endif
