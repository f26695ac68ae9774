/* What the pure part of barco._native is made of. Include after Python.h. */
#ifndef BARCO_PY_CODEC_H
#define BARCO_PY_CODEC_H

#include <stdint.h>

/* Adds the functions to the module; called once by module.c. 0, or -1 with an exception set. */
int py_codec_init(PyObject *module);

/* Allocates what the two functions below need: 0, or -1 with an exception set. */
int py_batch_prepare(void);

/* Converter for "O&": an int to uint64_t, with a ValueError instead of a wrap-around. */
int py_u64_argument(PyObject *arg, void *value);

PyObject *py_batch_encode(PyObject *module, PyObject *args, PyObject *kwargs);

/* py_arrow.c */
PyObject *py_tokens(PyObject *module, PyObject *args);
PyObject *py_batch_columns(PyObject *module, PyObject *args, PyObject *kwargs);

#endif
