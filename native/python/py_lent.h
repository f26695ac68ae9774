/* The Python face of lent chunks. Needs Python.h before it. */
#ifndef BARCO_PY_LENT_H
#define BARCO_PY_LENT_H

#include "log/lent.h"

/* Takes the lent chunks, also where it fails. */
PyObject *py_lent_new(struct lent *lent);
/* NULL: the object is something else. */
struct lent *py_lent_of(PyObject *object);

/* py_codec.c: what the header at a position says, None where the chunk is cut off. */
PyObject *py_chunk_head(const uint8_t *bytes, size_t len, size_t at);
/* py_codec.c: the offset of a chunk's first event; an exception where that is cut off. */
PyObject *py_chunk_begin(const uint8_t *bytes, size_t len);

#endif
