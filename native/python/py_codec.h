/* What the pure part of barco._native is made of. Include after Python.h. */
#ifndef BARCO_PY_CODEC_H
#define BARCO_PY_CODEC_H

#include <stdbool.h>
#include <stdint.h>

/* Adds the functions to the module; called once by module.c. 0, or -1 with an exception set. */
int py_codec_init(PyObject *module);

/* Converter for "O&": an int to uint64_t, with a ValueError instead of a wrap-around. */
int py_u64_argument(PyObject *arg, void *value);


/* Adds an item, and takes it. False, and *list is NULL, where that fails or one of them is NULL. */
bool py_append(PyObject **list, PyObject *item);

#define WITH_NAMES(function) ((PyCFunction)(void (*)(void))(function))

#endif
